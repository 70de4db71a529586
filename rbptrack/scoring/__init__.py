"""Hidden states to ranks."""
