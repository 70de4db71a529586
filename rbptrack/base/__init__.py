"""Helpers for all packages: errors, durable files, checked Parquet, escaped names, words and signals."""
