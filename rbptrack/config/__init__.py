"""What is measured: schema, patterns, composition by Hydra, and the checks that every config meets."""
