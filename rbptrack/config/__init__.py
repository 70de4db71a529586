"""The request: the schema, patterns, composition, and where configs lie."""
