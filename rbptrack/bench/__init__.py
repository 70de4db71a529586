"""What the engine costs, and what precision changes: measured on the machine at hand, never quoted."""
