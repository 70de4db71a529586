"""What is asked for: the schema, patterns, composition, and where configs lie."""
