"""Example plugins, one of each kind. `rbptrack plugins new NAME` copies an example and renames its class."""
