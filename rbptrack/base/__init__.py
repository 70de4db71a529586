"""Helpers for all packages: errors, files, Parquet, formatting, escaping, conditions, passwords and signals."""
