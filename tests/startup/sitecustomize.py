"""What every Python does at its start that finds this folder in its path: the first that saves a part is killed.

By itself, as by a lack of memory: SIGKILL. RBPTRACK_TESTS_DIE names a file that it makes first; who finds it lives.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_PARTS = "rbptrack.engine.parts"


class _Parts(MetaPathFinder):
    """Finds the module that saves parts, and changes it once it is loaded."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != _PARTS:
            return None
        sys.meta_path.remove(self)
        found = find_spec(name)
        assert found
        assert found.loader
        load = found.loader.exec_module

        def loaded(module: ModuleType) -> None:
            load(module)
            _die_with_a_part(module)

        found.loader.exec_module = loaded  # type: ignore[method-assign]
        return found


def _die_with_a_part(module: Any) -> None:
    write = module.Block.write

    def written(*arguments: Any, **options: Any) -> Any:
        table = write(*arguments, **options)
        try:
            os.close(os.open(os.environ["RBPTRACK_TESTS_DIE"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return table
        os.kill(os.getpid(), signal.SIGKILL)
        return table

    module.Block.write = written


if "RBPTRACK_TESTS_DIE" in os.environ:
    sys.meta_path.insert(0, _Parts())
