"""What every plugin is: a dataclass whose fields are its options, checked when they are set, and what analyzers do."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar, get_origin, get_type_hints
from zlib import crc32

from pydantic import TypeAdapter, ValidationError

from rbptrack.analysis.report import Report
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput, first_line, unknown
from rbptrack.config.patterns import split_list


@dataclass(kw_only=True)
class Plugin(ABC):  # noqa: B024 - each kind adds its own methods
    """Base of analyzers, importers and exporters: a `@dataclass(kw_only=True)`, its fields options, its docstring help.

    Types and ranges of options are pydantic's: `margin: Annotated[float, Field(gt=0)] = 0.1`. A wrong value is BadInput
    where it is set, in Python as on the command line.

    Attributes:
        name: of the plugin's file, folder or entry point; discovery sets it.

    """

    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Check every option and convert it to its type; BadInput names the option, the value and the rule."""
        types = get_type_hints(type(self), include_extras=True)
        for option in fields(self):
            value = getattr(self, option.name)
            try:
                setattr(self, option.name, TypeAdapter(types[option.name]).validate_python(value))
            except ValidationError as error:
                wrong = error.errors()[0]
                name = self.name or type(self).__name__
                rule = wrong["msg"][:1].lower() + wrong["msg"][1:]
                raise BadInput(f"{name}: {option.name}={_shown(wrong['input'])}: {rule}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by file, so that another process can import a plugin that is on no search path."""
        cls = type(self)
        file = vars(sys.modules[cls.__module__.partition(".")[0]]).get("__plugin__", "")
        options = {option.name: getattr(self, option.name) for option in fields(self) if option.init}
        return _unpickled, (file, cls.__module__, cls.__name__, cls.name, options)


@dataclass(kw_only=True)
class Analyzer(Plugin):
    """Asks questions of measurements; extend it in a file of `plugins/`.

    Attributes:
        leads: whether its headline, first figure and results stand on the report's first page; one analyzer does.
        cost: how long it takes beside others; analyzers that run side by side begin with the largest.

    """

    leads: ClassVar[bool] = False
    cost: ClassVar[int] = 1

    @abstractmethod
    def analyze(self, runs: Runs) -> Report:
        """Answer for all measurements. A family that cannot be used gets a note in the report; an error ends it."""


@dataclass(frozen=True)
class Option:
    """An option of a plugin, as help shows it."""

    name: str
    default: str
    help: str


P = TypeVar("P", bound=Plugin)


def options_of(plugin: type[Plugin]) -> list[Option]:
    """The options of a plugin, with the text behind `name:` in its docstring."""
    doc = inspect.cleandoc(plugin.__doc__ or "")
    found = []
    for option in fields(plugin):
        matched = re.search(rf"^ *{option.name}: (.+(?:\n {{2,}}(?!\w+: ).+)*)", doc, re.MULTILINE)
        text = " ".join(matched[1].split()) if matched else ""
        default = option.default
        if option.default_factory is not MISSING:
            default = option.default_factory()
        found.append(Option(option.name, "" if default is MISSING else _shown(default), text))
    return found


def summary_of(plugin: type[Plugin]) -> str:
    """The first line of a plugin's docstring: what it answers or does."""
    return inspect.cleandoc(plugin.__doc__ or plugin.name).splitlines()[0]


def with_options(plugin: type[P], words: Sequence[str]) -> P:
    """A plugin with options of the command line, such as `ks=1,10`.

    Raises:
        BadInput: a word is no key=value, an option does not exist, or its value is refused.

    """
    types = get_type_hints(plugin)
    values: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"an option of {plugin.name} is key=value; got {word}")
        values[key] = value
        if get_origin(types.get(key)) in (tuple, list):
            values[key] = split_list(value)
    return configured(plugin, values)


def configured(plugin: type[P], options: Mapping[str, Any]) -> P:
    """A plugin with options from Python; BadInput as `with_options` raises it."""
    names = [option.name for option in fields(plugin)]
    for key in options:
        if key not in names:
            raise unknown(f"option of {plugin.name}", key, names)
    try:
        return plugin(**options)
    except BadInput:
        raise
    except Exception as error:  # of a plugin's own __post_init__
        raise BadInput(f"{plugin.name} takes no such options: {type(error).__name__}: {first_line(error)}") from error


def import_file(path: Path) -> ModuleType:
    """Import a plugin's file or folder, once in a process."""
    file = path / "__init__.py" if path.is_dir() else path
    name = f"rbptrack_plugin_{path.stem}_{crc32(bytes(path)):x}"
    module = sys.modules.get(name)
    if module is not None:
        return module
    if not file.is_file():
        raise ImportError(f"{file} is no file")  # a FIFO would be waited for
    search = [str(path)] if path.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    vars(module)["__plugin__"] = str(path)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for key in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[key]
        raise
    return module


def _unpickled(file: str, module: str, cls: str, name: str, options: dict[str, Any]) -> Plugin:
    """A plugin in another process; see `Plugin.__reduce__`."""
    if file:
        import_file(Path(file))
    found: type[Plugin] = getattr(importlib.import_module(module), cls)
    found.name = name
    return found(**options)


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
