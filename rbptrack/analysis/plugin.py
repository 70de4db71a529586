"""Base classes of plugins, analyzers and exporters, and functions that make and describe plugins.

A plugin is a pydantic model. Its fields are its options.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin
from zlib import crc32

import numpy as np
from pydantic import BaseModel, ConfigDict, Secret, SecretBytes, SecretStr, ValidationError

from rbptrack.analysis.report import Report
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput, first_line, unknown_name
from rbptrack.base.names import split_list
from rbptrack.base.secrets import MIN_SECRET_LENGTH, declare_secret, is_secret, without_password
from rbptrack.base.validation import broken_rules, format_value


class Plugin(BaseModel, ABC):
    """Base class of analyzers, importers and exporters.

    Each field is an option, and the text under a field is the option's help. Pydantic's types restrict values, such as
    `k: PositiveInt = 10`. An option that is a list accepts one value (`k=10`), a list (`k=[1, 10]`) and a text
    (`k="1,10"`). The type `pydantic.SecretStr` declares a secret. rbptrack neither stores nor shows its value.

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
            annotation = type(self).model_fields[key].annotation
            if isinstance(value, np.ndarray | np.generic):
                value = value.tolist()
            values[key] = _as_tuple(value) if _accepts_list(annotation) else value
            if _is_secret_type(annotation):
                _declare_secrets(values[key])
        try:
            super().__init__(**values)
        except ValidationError as error:
            broken = next(broken_rules(error))
            option = f"{broken.name}={format_value(broken.value)}: " if broken.name in values else ""
            message = f"{_plugin_name(type(self))}: {option}{broken.sentence}"
            raise BadInput(without_password(message)) from None  # pydantic's error may show a secret

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plugin with the path of its file, from which another process imports it.

        An ordinary pickle could not be read, because a plugin's file is not on the module search path.
        """
        cls = type(self)
        file = vars(sys.modules[cls.__module__.partition(".")[0]]).get("__plugin__", "")
        options = {option: getattr(self, option) for option in cls.model_fields}
        return _rebuild_plugin, (file, cls.__module__, cls.__name__, cls.name, options)


class Analyzer(Plugin):
    """Base class of analyzers, which compute a report from measurements. Extend it in a file in `plugins/`."""

    leads: ClassVar[bool] = False
    """Whether the report's page begins with this analyzer's headline, first figure and results.

    Of the analyzers that ship with rbptrack, only `power_law` leads.
    """

    cost: ClassVar[int] = 1
    """The relative running time of the analyzer. Analyzers with the highest cost start first."""

    @abstractmethod
    def analyze(self, runs: Runs) -> Report:
        """Compute a report from measurements.

        If a family cannot be used, add a note to the report and continue with the other families. If the method raises
        an exception, there is no report.
        """


class Exporter(Plugin):
    """Base class of exporters, which write measurements for another program.

    Its fields are options of `rbptrack export --to NAME`.
    """

    @abstractmethod
    def export(self, runs: Runs, out: Path) -> str:
        """Export measurements, and return one line that tells the user what was written.

        Args:
            runs: the measurements.
            out: an empty folder for the exported files. It is deleted if the method raises an exception.

        Raises:
            BadInput: the exporter cannot run, for example because a Python package is missing.
            RbptrackError: the receiving program or server rejects the measurements.

        """


@dataclass(frozen=True)
class Option:
    """An option of a plugin: its name, its default and its help, as texts. A required option has an empty default."""

    name: str
    default: str
    help: str


P = TypeVar("P", bound=Plugin)


def plugin_options(plugin: type[Plugin]) -> list[Option]:
    """Return the options of a plugin. Their help is empty if the plugin's source cannot be read."""
    options = []
    for name, field in plugin.model_fields.items():
        default = "" if field.is_required() else format_value(field.get_default(call_default_factory=True))
        options.append(Option(name, default, " ".join((field.description or "").split())))
    return options


def plugin_summary(plugin: type[Plugin]) -> str:
    """Return the first line of a plugin's docstring."""
    return inspect.cleandoc(plugin.__doc__ or _plugin_name(plugin)).splitlines()[0]


def make_plugin_from_words(plugin: type[P], words: Sequence[str]) -> P:
    """Make a plugin with options from the command line, such as `k=1,10`.

    Raises BadInput if a word is not of the form key=value, if an option does not exist or is given twice, or if its
    value breaks a rule, or looks like a secret although the type of the option is not `pydantic.SecretStr`.
    """
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"{word}: an option of {plugin.name} must be written as key=value")
        if key in values:
            raise BadInput(f"{word}: the option {key} is given twice. Write a list as {key}=a,b")
        field = plugin.model_fields.get(key)
        is_declared = field is not None and _is_secret_type(field.annotation)
        if is_declared and 0 < len(value) < MIN_SECRET_LENGTH:
            raise BadInput(f"{key}: a secret of fewer than {MIN_SECRET_LENGTH} characters cannot be hidden in reports")
        if field is not None and not is_declared and is_secret(key, value):
            raise BadInput(
                f"{key}: this value looks like a secret, and others can read the options of {plugin.name} in its "
                "report. The plugin must declare it as pydantic.SecretStr, or read it from an environment variable"
            )
        values[key] = value
    return make_plugin(plugin, values)


def make_plugin_with_ks(plugin: type[P], ks: Sequence[int]) -> P:
    """Make a plugin whose option k has these values, if it has an option k that takes several. The rest is default.

    The value 0, which stands for cross-entropy in figures, is left out.
    """
    field = plugin.model_fields.get("k")
    shown = tuple(k for k in ks if k)
    return make_plugin(plugin, {"k": shown} if shown and field and _accepts_list(field.annotation) else {})


def make_plugin(plugin: type[P], options: Mapping[str, Any]) -> P:
    """Make a plugin with options from Python.

    Raises BadInput if an option does not exist, or if its value breaks a rule. Any other exception of the plugin's own
    validators also becomes BadInput.
    """
    try:
        return plugin(**options)
    except BadInput:
        raise
    except Exception as error:  # a validator of the plugin raised it
        fault = without_password(f"{type(error).__name__}: {first_line(error)}")
        raise BadInput(f"{plugin.name} refuses these options: {fault}") from error


def import_file(path: Path) -> ModuleType:
    """Import a plugin's file or folder. A second call in the same process returns the same module.

    Raises ImportError if the path is not a Python module. The module itself may raise any exception.
    """
    file = path / "__init__.py" if path.is_dir() else path
    name = f"rbptrack_plugin_{path.stem}_{crc32(bytes(path)):x}"
    module = sys.modules.get(name)
    if module is not None:
        return module
    if not file.is_file():
        raise ImportError(f"{file} is not a file")  # reading a named pipe would never end
    folders = [str(path)] if path.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    vars(module)["__plugin__"] = str(path)
    sys.modules[name] = module  # pydantic looks for the names of types in sys.modules
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for key in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[key]
        raise
    return module


def _rebuild_plugin(file: str, module: str, cls: str, name: str, options: dict[str, Any]) -> Plugin:
    """Import a pickled plugin from its file, and make it with its options."""
    if file:
        import_file(Path(file))
    plugin: type[Plugin] = getattr(importlib.import_module(module), cls)
    plugin.name = name
    return plugin(**options)


def _plugin_name(plugin: type[Plugin]) -> str:
    """Return the name of a plugin, or the name of its class if the plugin has no name yet."""
    return plugin.name or plugin.__name__


def _is_secret_type(annotation: Any) -> bool:
    """Return whether a type is one of pydantic's secrets, or contains one, as a union or a list does."""
    origin = get_origin(annotation) or annotation
    is_secret = isinstance(origin, type) and issubclass(origin, Secret | SecretBytes | SecretStr)
    return is_secret or any(map(_is_secret_type, get_args(annotation)))


def _declare_secrets(value: object) -> None:
    """Declare the texts in the value of a secret option, which may be a list, as secrets."""
    if isinstance(value, Secret | SecretBytes | SecretStr):
        value = value.get_secret_value()
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        declare_secret(value)
    elif isinstance(value, Iterable):
        for entry in value:
            _declare_secrets(entry)


def _accepts_list(annotation: Any) -> bool:
    """Return whether a type is a tuple or a list, or a union that contains a tuple or a list."""
    origin = get_origin(annotation) or annotation
    if origin in (Union, UnionType):
        return any(map(_accepts_list, get_args(annotation)))
    return origin in (tuple, list)


def _as_tuple(value: object) -> object:
    """Convert the value of a list option to a tuple. The value may be a list, a text with commas, or one element."""
    if isinstance(value, str):
        return tuple(split_list(value))
    if value is None:
        return None
    return tuple(value) if isinstance(value, Iterable) else (value,)
