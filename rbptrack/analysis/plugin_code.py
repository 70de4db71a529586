"""The code of plugins: imported under a name that is the same in every process, and hashed."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from zlib import crc32

from rbptrack.analysis.plugin import Plugin
from rbptrack.base.files import kind_of
from rbptrack.config.paths import PACKAGE, builtin_folder
from rbptrack.sources.fingerprint import contents_hash, own_code

BUILT_IN = "rbptrack.plugins"
"""The package of the plugins that ship with rbptrack, in a checkout and in a wheel."""

FOLDERS = ("importers", "exporters", "executors")
"""Folders of `plugins/` that hold plugins of one kind; all others are analyzers."""

_FROM_PATH = "rbptrack_plugin_"  # begins the names of modules from files and folders


def import_built_in(name: str) -> ModuleType:
    """Import a module that ships with rbptrack, such as `rbptrack.plugins.power_law`."""
    if importlib.util.find_spec(BUILT_IN) is None:  # a checkout that was not installed
        package = ModuleType(BUILT_IN)
        package.__path__ = [str(builtin_folder())]
        sys.modules[BUILT_IN] = package
    try:
        return importlib.import_module(name)
    except BaseException:
        _forget(name)
        raise


def import_path(path: Path) -> ModuleType:
    """Import a plugin's file or folder; one that is imported already and unchanged is the same module again.

    Raises:
        ImportError: it is neither.

    """
    file = path / "__init__.py" if path.is_dir() else path
    if not file.is_file():
        raise ImportError(f"it is {kind_of(file)}, not a file")  # a FIFO would be waited for
    name = f"{_FROM_PATH}{path.stem}_{crc32(bytes(path)):x}"
    code = _hash(path)
    module = sys.modules.get(name)
    if module is not None and vars(module).get("__rbptrack_code__") == code:
        return module  # a class imported anew is another class
    _forget(name)
    search = [str(path)] if path.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    vars(module)["__rbptrack_code__"] = code
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        _forget(name)
        raise
    return module


def path_of(plugin: Plugin) -> Path | None:
    """Return the file or folder that `import_path` imported a plugin from; None for one that any process can import."""
    top = type(plugin).__module__.partition(".")[0]
    module = sys.modules.get(top)
    if module is None or not module.__file__ or not top.startswith(_FROM_PATH):
        return None
    return _place(module)


@cache
def code_of(plugin: type[Plugin]) -> str:
    """Return a hash of the code that a plugin runs: rbptrack's, and the file, folder or package of each of its
    classes.
    """
    hashes = [own_code()]
    for cls in plugin.__mro__:
        if cls.__module__.partition(".")[0] in sys.stdlib_module_names:
            continue
        if not Path(inspect.getfile(cls)).is_relative_to(PACKAGE) or cls.__module__.startswith(f"{BUILT_IN}."):
            hashes.append(_hash(_place(_top(cls.__module__))))
    return " ".join(dict.fromkeys(hashes))


def _top(module: str) -> ModuleType:
    """Return the module that is a whole plugin or package, of one of its modules."""
    parts = module.split(".")
    if not module.startswith(f"{BUILT_IN}."):
        return sys.modules[parts[0]]
    depth = 4 if parts[2] in FOLDERS else 3
    return sys.modules[".".join(parts[:depth])]


def _place(module: ModuleType) -> Path:
    """Return the file of a module, or the folder of a package."""
    file = Path(module.__file__ or "")
    return file.parent if file.name == "__init__.py" else file


def _hash(path: Path) -> str:
    """Return a hash of a file, or of a folder's files: code and data."""
    if path.is_file():
        return contents_hash(path.parent, [path])
    return contents_hash(path, (file for file in path.rglob("*") if "__pycache__" not in file.parts))


def _forget(name: str) -> None:
    """Take a module and its submodules out of those that are imported."""
    for key in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[key]
