"""Loads causal language models with transformers, splits each into backbone and output head, and checks both."""
