"""A measurement as one typed document: its fields, how it is built, and how it is kept in record.json."""
