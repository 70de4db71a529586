"""Causal language models: architecture, loading, device."""
