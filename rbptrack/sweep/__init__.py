"""A sweep's cells: checked, resolved once, measured, delivered, and analysed together."""
