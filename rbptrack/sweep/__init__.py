"""A cell resolved once, measured, delivered."""
