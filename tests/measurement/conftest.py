"""Fixtures of the tests of measurements."""

from tests.store_fixtures import write_cell

__all__ = ["write_cell"]
