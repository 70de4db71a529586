"""Print lines, tables and progress on the terminal, and keep a log."""
