"""Finds models and datasets on the Hub or on disk, and pins each to a commit or to the hash of its files."""
