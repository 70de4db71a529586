"""Fixtures of tests that need a store and finished cells."""

from tests.store_fixtures import no_pictures, store, write_cell

__all__ = ["no_pictures", "store", "write_cell"]
