"""Reads a dataset's documents, tokenises them and cuts them into the sequences that a model reads."""
