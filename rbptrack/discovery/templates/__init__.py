"""Plugins to start from, one of each kind. `rbptrack plugins new NAME` copies one and renames its class."""
