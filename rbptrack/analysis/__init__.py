"""The analyzers' public contract."""
