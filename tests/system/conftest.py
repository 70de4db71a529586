from tests.store_fixtures import store, write_cell

__all__ = ["store", "write_cell"]
