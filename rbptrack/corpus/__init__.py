"""Read the documents of a dataset, tokenise them, and cut them into the sequences that a model reads."""
