"""Load causal language models with transformers, split each into backbone and output head, and check both."""
