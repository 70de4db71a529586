"""Where models and datasets come from, pinned and cached."""
