"""Reads the documents of a dataset, tokenises them, and cuts them into the sequences that a model reads."""
