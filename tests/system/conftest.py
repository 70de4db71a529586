from pathlib import Path

import pytest

from tests.store_fixtures import store, write_cell
from tests.system.slurm_cluster import cluster

__all__ = ["cluster", "store", "write_cell"]


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("system")
