"""From a dataset to sequences of tokens."""
