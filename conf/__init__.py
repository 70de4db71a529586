"""The configs: what is measured."""
