"""The mathematics of the laws: pure functions on arrays."""
