"""Runs analyzers and makes the report."""
