"""From a dataset to the sequences that a model reads: documents, tokens, sequences."""
