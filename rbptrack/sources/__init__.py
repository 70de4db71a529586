"""Where models and datasets come from, pinned to a commit or to the hash of their files."""
