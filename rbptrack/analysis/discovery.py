"""Find plugins of every kind: files and folders of `plugins/`, and installed packages' entry points.

Names are those of files, folders and entry points, so that listing them imports nothing. A plugin is imported when it
is used; one that cannot be used is named, and hides no other.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract, isclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar
from zlib import crc32

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.executors import Executor
from rbptrack.analysis.exporting import Exporter
from rbptrack.analysis.importing import Importer
from rbptrack.analysis.plugin import Plugin
from rbptrack.analysis.plugin_code import BUILT_IN, FOLDERS, code_of, import_built_in, import_path
from rbptrack.base import __version__
from rbptrack.base.errors import BadInput, unknown
from rbptrack.config.paths import builtin_folder
from rbptrack.sources.cache import recall, remember

P = TypeVar("P", bound=Plugin)

_MOST_LISTED = 24  # names in an error


@dataclass(frozen=True)
class Kind(Generic[P]):
    """A kind of plugins.

    Attributes:
        word: what one is called.
        base: the class that they have in common.
        folder: of `plugins/`; empty for `plugins/` itself.

    """

    word: str
    base: type[P]
    folder: str = ""

    @property
    def points(self) -> str:
        """The group of entry points."""
        return f"rbptrack.{self.word}s"


ANALYZERS: Kind[Analyzer] = Kind("analyzer", Analyzer)  # type: ignore[type-abstract]
IMPORTERS: Kind[Importer] = Kind("importer", Importer, "importers")  # type: ignore[type-abstract]
EXPORTERS: Kind[Exporter] = Kind("exporter", Exporter, "exporters")  # type: ignore[type-abstract]
EXECUTORS: Kind[Executor] = Kind("executor", Executor, "executors")  # type: ignore[type-abstract]
KINDS: tuple[Kind[Any], ...] = (ANALYZERS, IMPORTERS, EXPORTERS, EXECUTORS)


@dataclass(frozen=True)
class Source:
    """Where a plugin comes from.

    Attributes:
        name: of the plugin.
        origin: its file or folder, or the package and object of its entry point.
        version: of the package that it comes from; empty for a file of the user's.
        path: its file or folder; None for an entry point.
        point: the entry point; None for a file.

    """

    name: str
    origin: str
    version: str = ""
    path: Path | None = None
    point: EntryPoint | None = None

    @property
    def is_built_in(self) -> bool:
        """Whether it ships with rbptrack."""
        return self.path is not None and self.path.is_relative_to(builtin_folder().resolve())


@dataclass
class Plugins(Generic[P]):
    """The plugins of one kind, each imported when it is asked for.

    Attributes:
        kind: of all of them.
        sources: where each comes from, by name.
        broken: one line per plugin that could not be used, naming its file.

    """

    kind: Kind[P]
    sources: dict[str, Source] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    _classes: dict[str, type[P]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """All names, sorted; some may turn out to be broken."""
        return sorted(self.sources)

    def add(self, source: Source) -> None:
        """Take a source under its name, once."""
        if not source.name.isidentifier():
            self.broken.append(f"{source.origin}: its name must be a word like 'my_law'; got {source.name!r}")
        elif source.name in self.sources:
            origin = self.sources[source.name].origin
            line = f"{source.origin}: the {self.kind.word} {source.name} exists already, in {origin}; rename one"
            self.broken.append(line)
        else:
            self.sources[source.name] = source

    def load(self, names: Collection[str] | None = None) -> Mapping[str, type[P]]:
        """Import some of them, by default all; returns those that can be used, by name."""
        chosen = self.names if names is None else sorted(names)
        for name in chosen:
            if name in self.sources and name not in self._classes:
                self._load(name)
        return {name: self._classes[name] for name in chosen if name in self._classes}

    def select(self, name: str) -> type[P]:
        """Import the plugin of that name; BadInput lists the options, or says what ails it."""
        before = len(self.broken)
        if name in self.sources and name not in self._classes:
            self._load(name)
        if name in self._classes:
            return self._classes[name]
        if reasons := self.broken[before:]:
            raise BadInput(f"the {self.kind.word} {name} cannot be used\n" + "\n".join(reasons))
        error = unknown(self.kind.word, name, self.names, most=_MOST_LISTED)
        raise BadInput("\n".join([str(error), *(f"broken plugin {line}" for line in self.broken)]))

    def _load(self, name: str) -> None:
        """Import one plugin; one that fails goes from the sources to the broken."""
        source = self.sources[name]
        try:
            self._classes[name] = _plugin(self.kind, source)
            code_of(self._classes[name])  # now: at a sweep's end, after hours of measuring, the disk may hold another
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may raise anything, also SystemExit; the others must not suffer
            words = str(error) if isinstance(error, _Unfit) else f"{type(error).__name__}: {error}"
            self.broken.append(f"{source.origin}: {words}")
            self._classes.pop(name, None)
            del self.sources[name]


class _Unfit(Exception):
    """What a module holds is not the plugin that its name promises."""


def discover(kind: Kind[P], extra: Sequence[str] = ()) -> Plugins[P]:
    """Find the plugins of a kind, without importing any.

    Args:
        kind: which.
        extra: folders named by plugins.path.

    """
    plugins = Plugins(kind)
    here = Path.cwd() / "plugins"
    folders = [builtin_folder(), here, *(Path(name).expanduser() for name in extra)]
    for folder in folders[2:]:
        if not folder.is_dir():
            plugins.broken.append(f"plugins.path={folder}: no such folder")
    places = dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir())
    if here.resolve() in places and here.resolve() != builtin_folder().resolve():
        _announce(here.resolve())
    for folder in places:
        for path in _candidates(folder, kind):
            version = __version__ if folder == builtin_folder().resolve() else ""
            plugins.add(Source(path.stem, str(path), version, path=path))
    for point in entry_points(group=kind.points):
        package, version = (point.dist.name, point.dist.version) if point.dist else ("package", "")
        plugins.add(Source(point.name, f"{package}: {point.value}", version, point=point))
    return plugins


def _candidates(folder: Path, kind: Kind[P]) -> Iterator[Path]:
    """Yield the files and folders of a plugins folder that are plugins of a kind, sorted by name."""
    place = folder / kind.folder
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if path.name.startswith(("_", ".")) or (path.name in FOLDERS and not kind.folder):
            continue
        if path.suffix == ".py" or (path / "__init__.py").is_file():
            yield path


def _announce(folder: Path) -> None:
    """Say which of the working folder's plugins run, once per set of files: they run, no matter who wrote them."""
    paths = [path for kind in KINDS for path in _candidates(folder, kind)]
    names = "\n".join(map(str, paths))
    key = f"plugins/{crc32(bytes(Path.cwd())):08x}"
    if paths and recall(key) != names:
        shown = ", ".join(f"plugins/{path.relative_to(folder)}" for path in paths)
        print(f"Loaded local plugins: {shown}.", file=sys.stderr)
        remember(key, names)


def _plugin(kind: Kind[P], source: Source) -> type[P]:
    """Return the class of a plugin, imported."""
    if source.point:
        target = source.point.load()
    elif source.is_built_in:
        target = import_built_in(".".join(filter(None, [BUILT_IN, kind.folder, source.name])))
    else:
        target = import_path(source.path or Path())
    cls = _class_of(kind, source.name, target) if isinstance(target, ModuleType) else target
    if not isclass(cls) or not issubclass(cls, kind.base):
        raise _Unfit(f"it is no {kind.base.__name__}: a class that extends rbptrack.analysis.{kind.base.__name__}")
    if isabstract(cls):
        raise _Unfit(f"{cls.__name__} lacks {', '.join(sorted(cls.__abstractmethods__))}")
    if "__dataclass_params__" not in vars(cls) or not is_dataclass(cls):
        raise _Unfit(f"{cls.__name__} must be a @dataclass(kw_only=True)")
    if not hasattr(cls, "name"):
        cls.name = source.name
    if cls.name != source.name:
        where = "entry point" if source.point else "file or folder"
        raise _Unfit(f"{cls.__name__}.name is {cls.name!r}, but its {where} is called {source.name!r}")
    return cls


def _class_of(kind: Kind[P], name: str, module: ModuleType) -> type[P]:
    """Return the plugin's class in a module, or in a submodule that it imports the class from."""
    classes = [
        value
        for value in vars(module).values()
        if isclass(value) and issubclass(value, kind.base) and not isabstract(value)
        and (value.__module__ == module.__name__ or value.__module__.startswith(f"{module.__name__}."))
    ]  # fmt: skip
    classes = list(dict.fromkeys(classes))
    named = [cls for cls in classes if getattr(cls, "name", name) == name] or classes
    if len(named) != 1:
        holds = f"it has {len(named)}: {', '.join(cls.__name__ for cls in named)}" if named else "it has none"
        raise _Unfit(f"a plugin's file or folder has one {kind.base.__name__}; {holds}")
    return named[0]
