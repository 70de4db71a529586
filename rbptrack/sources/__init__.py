"""Finds models and datasets on the hub or on disk, and pins each to a commit or to the hash of its files."""
