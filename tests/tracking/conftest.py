from tests.cells import empty_database, measured, store

__all__ = ["empty_database", "measured", "store"]
