"""The terminal: lines, tables, progress."""
