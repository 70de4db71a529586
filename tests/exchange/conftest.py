"""Fixtures of tests that need a store and finished cells."""

from tests.store_fixtures import empty_database, store, write_cell

__all__ = ["empty_database", "store", "write_cell"]
