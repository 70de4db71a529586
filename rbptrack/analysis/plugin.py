"""Base classes of plugins and analyzers. A plugin is a pydantic model, and its fields are its options."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import linecache
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin
from zlib import crc32

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from rbptrack.analysis.report import Report
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput, first_line, unknown_name
from rbptrack.base.validation import broken_rules, format_value
from rbptrack.config.patterns import split_list


class Plugin(BaseModel, ABC):
    """Base class of analyzers, importers and exporters.

    Each field is an option, and the text under a field is the option's help. Use pydantic's types for ranges, such as
    `k: PositiveInt = 10`. A list accepts `ks=10`, `ks=[1, 10]` and the text `ks="1,10"`.

    Raises:
        BadInput: an option is unknown, or its value breaks a rule.

    """

    model_config = ConfigDict(
        use_attribute_docstrings=True,
        extra="forbid",
        frozen=True,
        validate_default=True,
        coerce_numbers_to_str=True,
        arbitrary_types_allowed=True,
        protected_namespaces=(),
    )

    name: ClassVar[str] = ""
    """The name of the plugin's file, folder or entry point. It is set when the plugin is imported."""

    def __init__(self, **options: Any) -> None:
        values = {}
        for key, value in options.items():
            if key not in type(self).model_fields:
                raise unknown_name(f"option of {_plugin_name(type(self))}", key, type(self).model_fields)
            if isinstance(value, np.ndarray | np.generic):
                value = value.tolist()
            values[key] = _as_tuple(value) if _is_list(type(self).model_fields[key].annotation) else value
        try:
            super().__init__(**values)
        except ValidationError as error:
            broken = next(broken_rules(error))
            option = f"{broken.name}={format_value(broken.value)}: " if broken.name in values else ""
            raise BadInput(f"{_plugin_name(type(self))}: {option}{broken.sentence}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plugin with its file. Another process imports it from the file.

        A plugin's file is not on the module search path, so a plain pickle could not be read.
        """
        cls = type(self)
        file = vars(sys.modules[cls.__module__.partition(".")[0]]).get("__plugin__", "")
        options = {option: getattr(self, option) for option in cls.model_fields}
        return _unpickled, (file, cls.__module__, cls.__name__, cls.name, options)


class Analyzer(Plugin):
    """Base class of analyzers, which compute a report from measurements. Extend it in a file in `plugins/`."""

    leads: ClassVar[bool] = False
    """Whether the report's page begins with this analyzer's headline, first figure and results.

    It is True for one analyzer only.
    """

    cost: ClassVar[int] = 1
    """The relative running time of the analyzer. Analyzers with the highest cost start first."""

    @abstractmethod
    def analyze(self, runs: Runs) -> Report:
        """Compute a report from measurements.

        If a family cannot be used, add a note to the report and continue with the others. An exception ends the
        analysis without a report.
        """


@dataclass(frozen=True)
class Option:
    """An option of a plugin: its name, its default and its help, as texts for printing."""

    name: str
    default: str
    help: str


P = TypeVar("P", bound=Plugin)


def plugin_options(plugin: type[Plugin]) -> list[Option]:
    """Return the options of a plugin. Their help is empty if the plugin's source cannot be read."""
    texts = _texts_under_fields(plugin)
    options = []
    for name, field in plugin.model_fields.items():
        default = "" if field.is_required() else format_value(field.get_default(call_default_factory=True))
        text = field.description or texts.get(name, "")
        options.append(Option(name, default, " ".join(text.split())))
    return options


def _texts_under_fields(plugin: type[Plugin]) -> dict[str, str]:
    """Return the texts under the fields of a class, by the fields' names.

    Pydantic does not find these texts for a class that is defined in a notebook's cell.
    """
    texts = {}
    for function in filter(inspect.isfunction, vars(plugin).values()):
        code = function.__code__
        with suppress(SyntaxError, ValueError):
            for node in ast.walk(ast.parse("".join(linecache.getlines(code.co_filename)))):
                if not isinstance(node, ast.ClassDef) or node.name != plugin.__name__:
                    continue
                if not node.lineno <= code.co_firstlineno <= (node.end_lineno or 0):
                    continue
                for field, text in pairwise(node.body):
                    if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                        texts[ast.unparse(field.target)] = str(ast.literal_eval(text.value))
    return texts


def plugin_summary(plugin: type[Plugin]) -> str:
    """Return the first line of a plugin's docstring."""
    return inspect.cleandoc(plugin.__doc__ or _plugin_name(plugin)).splitlines()[0]


def make_plugin_from_words(plugin: type[P], words: Sequence[str]) -> P:
    """Make a plugin whose options come from the command line.

    Args:
        plugin: the class of the plugin.
        words: the options, such as `ks=1,10`.

    Raises:
        BadInput: a word is not key=value, an option does not exist, or its value is refused.

    """
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"{word}: write an option of {plugin.name} as key=value")
        if key in values:
            raise BadInput(f"{word}: {key} is given twice; a list is written as {key}=a,b")
        values[key] = value
    return make_plugin(plugin, values)


def make_plugin(plugin: type[P], options: Mapping[str, Any]) -> P:
    """Make a plugin whose options come from Python.

    Raises:
        BadInput: an option does not exist, or its value is refused. Any exception of the plugin's own validators
            becomes BadInput.

    """
    try:
        return plugin(**options)
    except BadInput:
        raise
    except Exception as error:  # a validator of the plugin raised it
        raise BadInput(f"{plugin.name} refuses these options: {type(error).__name__}: {first_line(error)}") from error


def import_file(path: Path) -> ModuleType:
    """Import a plugin's file or folder. A second call in the same process returns the same module."""
    file = path / "__init__.py" if path.is_dir() else path
    name = f"rbptrack_plugin_{path.stem}_{crc32(bytes(path)):x}"
    module = sys.modules.get(name)
    if module is not None:
        return module
    if not file.is_file():
        raise ImportError(f"{file} is not a file")  # reading a FIFO would never end
    search = [str(path)] if path.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    vars(module)["__plugin__"] = str(path)
    sys.modules[name] = module  # pydantic looks up the names of types there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for key in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[key]
        raise
    return module


def _unpickled(file: str, module: str, cls: str, name: str, options: dict[str, Any]) -> Plugin:
    """Rebuild a plugin in another process by importing its file."""
    if file:
        import_file(Path(file))
    plugin: type[Plugin] = getattr(importlib.import_module(module), cls)
    plugin.name = name
    return plugin(**options)


def _plugin_name(plugin: type[Plugin]) -> str:
    """Return the name of a plugin. If it is not set yet, return the name of the class."""
    return plugin.name or plugin.__name__


def _is_list(annotation: Any) -> bool:
    """Whether a type is a tuple or a list, or a union that contains one."""
    origin = get_origin(annotation) or annotation
    if origin in (Union, UnionType):
        return any(map(_is_list, get_args(annotation)))
    return origin in (tuple, list)


def _as_tuple(value: object) -> object:
    """Convert the value of a list option to a tuple. The value may be a list, a text with commas, or one element."""
    if isinstance(value, str):
        return tuple(split_list(value))
    if value is None:
        return None
    return tuple(value) if isinstance(value, Iterable) else (value,)
