"""Fixtures of tests that need a store and finished cells."""

from tests.store_fixtures import store, write_cell

__all__ = ["store", "write_cell"]
