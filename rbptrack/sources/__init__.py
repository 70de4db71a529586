"""Find models and datasets on the Hub or on disk, and pin each to a commit or to the hash of its files."""
