"""The command line: each command in a file of its own, with its options and what it does."""
