"""The configuration of a measurement: its schema, patterns of names, composition by Hydra, and checks of values."""
