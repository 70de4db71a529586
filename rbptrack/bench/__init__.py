"""How fast measuring is on the machine at hand, beside the bare forward pass and the arithmetic limit."""
