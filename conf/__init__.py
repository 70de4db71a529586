"""The configs of models, datasets, lists of k and executors."""
