"""Corpus x model -> Measurement; knows nothing of MLflow or of config files."""
