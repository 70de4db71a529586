"""Find plugins, and import each one only when it is used.

A plugin is an entry point of an installed package, or a file or folder in one of three places: the folder `plugins/`
that ships with rbptrack, `plugins/` in the working folder, and the folders of `plugins.path`. A plugin has the name of
its entry point, file or folder. Plugins can therefore be listed without importing them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from inspect import isabstract, isclass
from pathlib import Path
from traceback import format_exception
from types import ModuleType
from typing import Any, Generic, TypeVar

from rbptrack.analysis.importing import Importer
from rbptrack.analysis.plugin import Analyzer, Exporter, Plugin, import_file, make_plugin
from rbptrack.base.errors import BadInput, unknown_name
from rbptrack.base.names import matches_patterns
from rbptrack.base.process import Stopped
from rbptrack.config.paths import builtin_plugins_folder, user_path
from rbptrack.discovery.run import describe_error, line_text

P = TypeVar("P", bound=Plugin)


@dataclass(frozen=True)
class PluginKind(Generic[P]):
    """A kind of plugin: analyzer, importer or exporter.

    Attributes:
        name: the name of the kind, such as `analyzer`.
        base: the class that plugins of this kind extend.
        folder: the folder of this kind in `plugins/`; empty for `plugins/` itself.

    """

    name: str
    base: type[P]
    folder: str = ""

    @property
    def entry_point_group(self) -> str:
        """The name of the group of entry points that packages use for plugins of this kind."""
        return f"rbptrack.{self.name}s"


ANALYZERS: PluginKind[Analyzer] = PluginKind("analyzer", Analyzer)  # type: ignore[type-abstract]
IMPORTERS: PluginKind[Importer] = PluginKind("importer", Importer, "importers")  # type: ignore[type-abstract]
EXPORTERS: PluginKind[Exporter] = PluginKind("exporter", Exporter, "exporters")  # type: ignore[type-abstract]
KINDS: tuple[PluginKind[Any], ...] = (ANALYZERS, IMPORTERS, EXPORTERS)


@dataclass(frozen=True)
class PluginEntry:
    """A plugin that was found but is not yet imported.

    Attributes:
        name: the name of the plugin.
        origin: the plugin's file or folder, or the package and the object of its entry point.
        load: a function that imports the plugin and returns its module or class.
        built_in: whether the plugin ships with rbptrack.

    """

    name: str
    origin: str
    load: Callable[[], object]
    built_in: bool = False


@dataclass
class Plugins(Generic[P]):
    """The plugins of one kind. Each one is imported only when it is used.

    Attributes:
        kind: the kind of the plugins.
        entries: the plugins that were found and are not known to be broken, by name.
        broken: an error for each plugin that cannot be used. The error names the plugin's file or entry point.

    """

    kind: PluginKind[P]
    entries: dict[str, PluginEntry] = field(default_factory=dict)
    broken: list[BadInput] = field(default_factory=list)
    _classes: dict[str, type[P]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The sorted names of `entries`. A plugin may still turn out to be broken when it is imported."""
        return sorted(self.entries)

    def add(self, plugin: PluginEntry) -> None:
        """Add a plugin. If its name is taken or is not a Python identifier, add an error to `broken` instead."""
        if not plugin.name.isidentifier():
            rule = "a plugin's name must consist of letters, digits and _, such as my_law. Rename the plugin"
            self.broken.append(BadInput(f"{plugin.origin}: {rule}"))
        elif plugin.name in self.entries:
            other_origin = self.entries[plugin.name].origin
            fault = f"{other_origin} already has the {self.kind.name} {plugin.name}. Rename one of them"
            self.broken.append(BadInput(f"{plugin.origin}: {fault}"))
        else:
            self.entries[plugin.name] = plugin

    def load_all(self) -> dict[str, type[P]]:
        """Import all plugins. Return the classes of the usable ones by name, and list the others in `broken`."""
        for name in self.names:
            self._import(name)
        return {name: self._classes[name] for name in self.names}

    def load_matching(self, patterns: Sequence[str]) -> list[type[P]]:
        """Import the plugins whose names match some patterns, and return their classes.

        Plugins that cannot be imported, and plugins with an option that has no default, are left out and listed in
        `broken`.

        Args:
            patterns: patterns of names and exclusions, such as `*` and `!forms`. If empty, all plugins are returned.

        Raises:
            BadInput: a pattern matches no name.

        """
        for pattern in patterns:
            if not any(matches_patterns([name], [pattern.removeprefix("!")]) for name in self.names):
                raise unknown_name(self.kind.name, pattern, self.names)
        usable = []
        for name in self.names:
            if not matches_patterns([name], patterns) or self._import(name) is not None:
                continue
            try:
                make_plugin(self._classes[name], {})
            except BadInput as error:
                self.broken.append(BadInput(f"{self.entries[name].origin}: {error}"))
            else:
                usable.append(self._classes[name])
        return usable

    def load(self, name: str) -> type[P]:
        """Import one plugin, and return its class.

        Raises BadInput if no plugin has the name, or if the plugin cannot be used. The error lists all names, or says
        why.
        """
        if name not in self.entries:
            error = unknown_name(self.kind.name, name, self.names)
            raise BadInput("\n".join([str(error), *(f"broken: {fault}" for fault in self.broken)]))
        fault = self._import(name)
        if fault is not None:
            raise fault
        return self._classes[name]

    def _import(self, name: str) -> BadInput | None:
        """Import one plugin. If the import fails, move the plugin to `broken` and return the error."""
        if name in self._classes:
            return None
        plugin = self.entries[name]
        try:
            self._classes[name] = _import_class(self.kind, plugin)
        except (KeyboardInterrupt, Stopped):
            raise
        except BaseException as error:  # a plugin may raise anything, even SystemExit, and must not stop the others
            if isinstance(error, BadInput):
                fault = BadInput(f"{plugin.origin}: {error}")
            else:
                place = f"{plugin.origin}{line_text(error, plugin.origin)}"
                fault = BadInput(f"{place}: the plugin cannot be imported: {describe_error(error)}")
                fault.trace = "".join(format_exception(error))
            self.broken.append(fault)
            del self.entries[name]
            return fault
        return None


def find_plugins(kind: PluginKind[P], paths: Sequence[str] = ()) -> Plugins[P]:
    """Find the plugins of a kind without importing them.

    Args:
        kind: the kind of the plugins.
        paths: further folders with plugins, the value of the setting `plugins.path`.

    Raises:
        BadInput: a folder of `paths` does not exist.

    """
    plugins = Plugins(kind)
    built_in = builtin_plugins_folder().resolve()
    folders = [built_in, Path.cwd() / "plugins"]
    for text in paths:
        folder = user_path(text)
        if not folder.is_dir():
            raise BadInput(f"plugins.path={text}: this folder does not exist")
        folders.append(folder)
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        for path in _plugin_paths(folder / kind.folder):
            plugins.add(PluginEntry(path.stem, str(path), partial(import_file, path), folder == built_in))
    for point in entry_points(group=kind.entry_point_group):
        package = point.dist.name if point.dist else "a package"
        plugins.add(PluginEntry(point.name, f"{package}: {point.value}", point.load))
    return plugins


def plugin_template(kind: PluginKind[Any], name: str) -> str:
    """Return the Python source of a working plugin of a kind, from which an author can start a new one.

    For the name `my_law`, the class in the source is called `MyLaw`.
    """
    source = (Path(__file__).parent / "templates" / f"{kind.name}.py").read_text(encoding="utf-8")
    return source.replace("Example", "".join(part.capitalize() for part in name.split("_")))


def _plugin_paths(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    other_kinds = {kind.folder for kind in KINDS}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(("_", ".")) or path.name in other_kinds:
            continue
        if path.suffix == ".py" or (path / "__init__.py").is_file():
            yield path


def _import_class(kind: PluginKind[P], plugin: PluginEntry) -> type[P]:
    target = plugin.load()
    cls = _find_class(kind, target) if isinstance(target, ModuleType) else target
    if not isclass(cls) or not issubclass(cls, kind.base):
        raise BadInput(f"the plugin must be a class that extends rbptrack.analysis.{kind.base.__name__}")
    if isabstract(cls):
        raise BadInput(f"{cls.__name__} lacks the method {', '.join(sorted(cls.__abstractmethods__))}")
    reserved = sorted({"name", "leads", "cost"}.intersection(cls.model_fields))
    if reserved:
        raise BadInput(f"{cls.__name__}: an option cannot be called {reserved[0]}. Give it another name")
    cls.model_rebuild()  # raises an exception if the type of an option is not imported
    cls.name = plugin.name
    return cls


def _find_class(kind: PluginKind[P], module: ModuleType) -> type[P]:
    """Return the plugin's class in a module. The module may import the class from its own submodules.

    Raises BadInput if the module does not have exactly one such class.
    """
    classes = []
    for value in vars(module).values():
        if isclass(value) and issubclass(value, kind.base) and not isabstract(value) and value not in classes:
            if value.__module__ == module.__name__ or value.__module__.startswith(f"{module.__name__}."):
                classes.append(value)
    if len(classes) != 1:
        fault = f"it has {len(classes)}: {', '.join(cls.__name__ for cls in classes)}" if classes else "it has none"
        raise BadInput(f"a plugin's file or folder must have one {kind.base.__name__}; {fault}")
    return classes[0]
