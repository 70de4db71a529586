"""The built-in analyzers, one file each, written on the public contract and nothing else."""
