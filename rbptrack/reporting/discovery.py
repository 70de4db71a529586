"""Find analyzers: plugins/*.py (built-in, the working folder's, plugins.path) and installed packages' entry points."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from zlib import crc32

from hydra.core.config_store import ConfigStore

from rbptrack.analysis.contract import Analyzer
from rbptrack.base import __version__
from rbptrack.base.errors import unknown
from rbptrack.base.files import kind_of
from rbptrack.base.words import listed
from rbptrack.config.paths import PACKAGE, builtin_folder, config_packages
from rbptrack.console.output import say
from rbptrack.sources.cache import recall, remember
from rbptrack.sources.fingerprint import contents_hash, own_code

_MOST_LISTED = 24  # analyzers in an error

_OF_FILES = "rbptrack_plugin_"  # begins the names of modules from files

ENTRY_POINTS = "rbptrack.analyzers"

MOVED = {
    "noise_floor": ("lack_of_fit",),
    "surface": ("lack_of_fit",),
    "contrasts": ("power_law", "compare"),
    "words": ("compare",),
    "thresholds": ("emergence",),
    "answers": ("emergence",),
    "position": ("tokens",),
}
"""Analyzers of 0.1 that others took in: their names are understood for one release."""


@dataclass
class Plugins:
    """What was found.

    Attributes:
        analyzers: class by name.
        origin: file or package that each name came from.
        version: of the package that each name came from; empty for a file.
        broken: one line per plugin that could not be used, naming its file; the others still work.

    """

    analyzers: dict[str, type[Analyzer]] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    version: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def add(self, cls: type[Analyzer], origin: str, version: str = "") -> None:
        """Register an analyzer under its name, once."""
        name = getattr(cls, "name", None)
        if not isinstance(name, str) or not name.isidentifier():
            self.broken.append(f"{origin}: {cls.__name__}.name must be a word like 'power_law'; got {name!r}")
        elif "__dataclass_params__" not in vars(cls) or not is_dataclass(cls):
            self.broken.append(f"{origin}: {cls.__name__} must be a @dataclass(kw_only=True)")
        elif name in self.analyzers:
            self.broken.append(f"{origin}: the analyzer {name} exists already, in {self.origin[name]}; rename one")
        else:
            self.analyzers[name] = cls
            code_of(cls)  # now: at a sweep's end, after hours of measuring, the disk may hold another
            self.origin[name], self.version[name] = origin, version

    def register(self) -> None:
        """Make each analyzer Hydra's config group option analyzer/<name>.

        Not part of `discover`: launchers that start other processes send them Hydra's config store, and plugin files
        cannot be imported there.
        """
        for name, cls in self.analyzers.items():
            ConfigStore.instance().store(group="analyzer", name=name, node=cls)

    def now(self, name: str) -> list[str]:
        """The analyzers that a name stands for: itself; of one that others took in, those, and a line says so."""
        if name in self.analyzers or not (homes := [home for home in MOVED.get(name, ()) if home in self.analyzers]):
            return [name]
        say(f"the analyzer {name} is now part of {listed(homes)}")
        return homes

    def select(self, name: str) -> type[Analyzer]:
        """The analyzer of that name; BadInput with the options (and what is broken) otherwise."""
        if name not in self.analyzers:
            error = unknown("analyzer", name, sorted(self.analyzers), most=_MOST_LISTED)
            error.args = ("\n".join([str(error), *(f"broken plugin {line}" for line in self.broken)]),)
            raise error
        return self.analyzers[name]


def discover(extra: Sequence[str] = ()) -> Plugins:
    """Load every plugin and collect what failed.

    Args:
        extra: folders named by plugins.path.

    """
    plugins = Plugins()
    folders = [builtin_folder(), Path.cwd() / "plugins", *(Path(p).expanduser() for p in extra)]
    files: dict[Path, None] = {}  # in order, each once
    for folder in folders:
        if folder.is_dir():
            files |= dict.fromkeys(p.resolve() for p in sorted(folder.glob("*.py")) if not p.name.startswith("_"))
        elif folder in folders[2:]:
            plugins.broken.append(f"plugins.path={folder}: no such folder")
    own = [path for path in files if path.parent == (Path.cwd() / "plugins").resolve() != folders[0].resolve()]
    _say_first(own)
    for path in files:
        try:
            for cls in _analyzers(load_file(path)):
                plugins.add(cls, str(path), __version__ if path.parent == folders[0].resolve() else "")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may raise anything, also SystemExit; the others must not suffer
            plugins.broken.append(f"{path}: {type(error).__name__}: {error}")
    for point in entry_points(group=ENTRY_POINTS):
        try:
            package = point.dist.name if point.dist else "package"
            plugins.add(point.load(), f"{package}: {point.value}", point.dist.version if point.dist else "")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            plugins.broken.append(f"entry point {point.name} ({point.value}): {type(error).__name__}: {error}")
    plugins.broken += config_packages()[1]
    return plugins


def _say_first(files: Sequence[Path]) -> None:
    """Say which files of the working folder run, where that has not been said of these: whoever made it, they run."""
    names = "\n".join(map(str, files))
    key = f"plugins/{crc32(bytes(Path.cwd())):08x}"
    if files and recall(key) != names:
        shown = ", ".join(f"plugins/{path.name}" for path in files)
        print(f"this folder's analyzers run as part of the program: {shown}", file=sys.stderr)
        remember(key, names)


def load_file(path: Path) -> ModuleType:
    """Import a plugin's file, under a name that is the same in every process."""
    if not path.is_file():
        raise ImportError(f"it is {kind_of(path)}, not a file")  # a FIFO would be waited for
    name = f"{_OF_FILES}{path.stem}_{crc32(bytes(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def plugin_file(analyzer: Analyzer) -> Path | None:
    """The file that `load_file` imported an analyzer from; None where it comes from an installed package."""
    module = sys.modules.get(type(analyzer).__module__)
    return Path(module.__file__) if module and module.__file__ and module.__name__.startswith(_OF_FILES) else None


@cache
def code_of(analyzer: type[Analyzer]) -> str:
    """A hash of the code that an analyzer runs: ours, and its file's and its bases' folder, or their whole packages."""
    parts = [own_code()]
    for cls in analyzer.__mro__[:-1]:
        path = Path(inspect.getfile(cls))
        package = sys.modules[cls.__module__.partition(".")[0]].__file__ if "." in cls.__module__ else None
        folder = Path(package).parent if package else path.parent
        if not folder.is_relative_to(PACKAGE):
            parts.append(contents_hash(folder, folder.rglob("*.py") if package else folder.glob("*.py")))
    return " ".join(dict.fromkeys(parts))


def _analyzers(module: ModuleType) -> Iterator[type[Analyzer]]:
    for value in vars(module).values():
        if inspect.isclass(value) and issubclass(value, Analyzer) and value.__module__ == module.__name__:
            if not inspect.isabstract(value):
                yield value
