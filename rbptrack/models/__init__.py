"""Causal language models of transformers: loaded, split where the vocabulary begins, and checked."""
