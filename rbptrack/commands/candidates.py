"""What may follow on a command line, for Tab completion. Fast: Hydra, MLflow and the plugins are not imported."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from rbptrack.base.errors import BadInput
from rbptrack.base.user_paths import user_path
from rbptrack.commands.catalogue import COMMANDS
from rbptrack.commands.pages import PAGES
from rbptrack.config.keys import Keys
from rbptrack.config.ladders import LADDERS, names
from rbptrack.config.paths import PACKAGE, builtin_folder, conf_folder, home, working_conf
from rbptrack.config.patterns import size_key
from rbptrack.config.schema import AnalyzeConfig, Config, Dtype, ReportConfig
from rbptrack.tracking import local

_CONFIGS = {"measure": Config, "plan": Config, "analyze": AnalyzeConfig, "report": ReportConfig}
_GROUPS = ("model", "dataset", "k", "protocol", "launch")
_FILTERS = ("family", "size", "dataset", "sweep")
_FIRST = ("model=", "dataset=", "k=")  # beside the commands, for a line without one
_FLAGS = ("--help", "--quiet")
_HYDRA_FLAGS = ("--multirun", "--config-dir", "--cfg", "--hydra-help")
_PATHS = ("out", "dataset.files", "dataset.path", "model.path", "sizes", "plugins.path", "tracking.artifacts")
_WORDS = {"cache": ("clear",), "completion": ("bash", "zsh"), "help": tuple(COMMANDS)}
_FIELD = re.compile(r"^    (\w+): (?!ClassVar)[^=\n]+ = ", re.MULTILINE)  # an option of an analyzer, in its file
_COLUMNS = ("model", "dataset", "family", "size", "non_embedding_params", "num_tokens", "started", "run_id")
_FORMATS = {"list": ("table", "csv", "markdown", "latex", "json"), "plan": ("table", "csv", "json")}
_VALUES: dict[str, tuple[str, ...]] = {
    "dtype": tuple(each.value for each in Dtype),
    "tokens": ("true", "false"),
    "documents": ("true", "false"),
    "ranks": ("csv", "parquet"),
    "moved": ("true", "false"),
    "browser": ("yes", "no"),
    "tf32": ("true", "false"),
}


def candidates(line: str) -> list[str]:
    """The words that may stand in place of the last one of a line up to the cursor, in the order of showing."""
    words, partial = _split(line)
    if not words and "=" not in partial and not partial.startswith("-"):
        return _starting([*COMMANDS, *_FIRST], partial)
    command = words[0] if words and words[0] in COMMANDS else "measure"
    arguments = words[1:] if words and words[0] in COMMANDS else words
    if partial.startswith("-"):
        return _starting([*_FLAGS, *(_HYDRA_FLAGS if command in _CONFIGS else ())], partial)
    if arguments[-1:] == ["--config-dir"]:
        return _starting(_files(partial), partial)
    key, equals, value = partial.partition("=")
    if equals:
        *done, last = value.split(",")
        start = f"{key}={','.join([*done, ''])}"
        return [start + name for name in _starting(_values(command, key, last), last) if name not in done]
    if command == "show":
        return _starting([*_measurements(), *_keys(command, partial)], partial)
    if command == "import":
        return _starting([*_files(partial), *_keys(command, partial)], partial)
    if command == "analyze":
        names = (
            [] if any("=" not in word or word.startswith("analyzer=") for word in arguments) else sorted(_analyzers())
        )
        return _starting([*_keys(command, partial), *_options(arguments), *names], partial)
    if command == "list" and partial:
        return _starting([*_keys(command, partial), *_values(command, "family", partial)], partial)
    options = _launch_options(arguments) if partial.startswith("launch.") else ()
    return _starting([*options, *_WORDS.get(command, ()), *_keys(command, partial)], partial)


def _split(line: str) -> tuple[list[str], str]:
    """The words between the program's name and the last one, and the last one, which the cursor touches."""
    for closing_quote in ("", "'", '"'):  # a quote may still be open
        with suppress(ValueError):
            words = shlex.split(line + closing_quote)[1:]
            return (
                (words, "") if line[-1:].isspace() and not closing_quote else (words[:-1], words[-1] if words else "")
            )
    return [], ""


def _starting(names: Iterable[str], beginning: str) -> list[str]:
    return list(dict.fromkeys(name for name in names if name.startswith(beginning)))


def _keys(command: str, partial: str) -> list[str]:
    """Options with `=`; of those in folders, the folder first: `engine.`, then `engine.threads=`."""
    if command not in _CONFIGS:
        return [f"{key}=" for key in PAGES[command].keys]
    known = Keys.of(_CONFIGS[command])
    groups = (
        _GROUPS if command in ("measure", "plan") else (*_FILTERS, *(("analyzer",) if command == "analyze" else ()))
    )
    depth = partial.count(".")
    plain = [f"{key}=" for key in known.settable if key.count(".") == depth and key not in ("analyzer",)]
    folders = [f"{key}." for key in [*known.folders, *known.free] if key.count(".") == depth and key != "filter"]
    first = [f"{group}=" for group in groups] if not depth else []
    extra = ["format="] if command in ("plan", "analyze") and not depth else []
    return [*first, *(key for key in plain if key[:-1] not in known.free), *extra, *folders]


def _values(command: str, key: str, partial: str) -> list[str]:
    """Values of an option, as far as they can be known."""
    if command in ("measure", "plan", "bench") and key in _GROUPS:
        return _by_folder(_configs(key), partial)
    if key in _FILTERS:
        return sorted(local.tag_values(home() / "mlflow.db", key), key=size_key)
    if key in ("analyzer", "analyzers"):
        return sorted(_analyzers())
    if key in ("sort", "columns"):
        signs = ("", "-") if key == "sort" else ("",)
        return [sign + name for sign in signs for name in (*_COLUMNS, *local.metrics(home() / "mlflow.db"))]
    if key in _PATHS:
        return _files(partial)
    if key == "format":
        return list(_FORMATS.get(command, ("table", "json")))
    if command in _CONFIGS and (choices := _of_type(_CONFIGS[command], key)):
        return choices
    return list(_VALUES.get(key, ()))


def _of_type(schema: Any, key: str) -> list[str]:
    """The values of an enum or a flag of a schema."""
    for part in key.split("."):
        schema = get_type_hints(schema).get(part) if hasattr(schema, "__dataclass_fields__") else None
    if isinstance(schema, type) and issubclass(schema, Enum):
        return [str(member.value) for member in schema]
    return ["true", "false"] if schema is bool else []


def _configs(group: str) -> list[str]:
    configs = set(names()) if group == "model" else set[str]()
    for folder in (conf_folder(), working_conf()):
        if folder:
            root = folder / group
            configs |= {path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml")}
    if group == "launch":
        configs |= _executors().keys()
    return sorted(configs, key=size_key)


def _by_folder(configs: Sequence[str], partial: str) -> list[str]:
    """A level at a time: `nano/`, then its sizes."""
    depth = partial.count("/")
    level = [name for name in configs if name.startswith(partial.rpartition("/")[0])]
    shown = ("/".join(name.split("/")[: depth + 1]) + "/" * (name.count("/") > depth) for name in level)
    return sorted(dict.fromkeys(shown), key=lambda name: name.rstrip("/") in LADDERS)  # checkpoints last


def _analyzers() -> dict[str, str]:
    """Names of analyzers, and the texts of their files: importing plugins takes a second."""
    texts: dict[str, str] = {}
    for folder in (builtin_folder(), Path.cwd() / "plugins"):
        for path in sorted([*folder.glob("*.py"), *folder.glob("*/__init__.py")]):
            name = path.parent.name if path.name == "__init__.py" and path.parent != folder else path.stem
            with suppress(OSError, UnicodeDecodeError):
                text = path.read_text("utf-8")
                if not name.startswith("_") and "(Analyzer)" in text:
                    texts[name] = text
    return texts


def _options(arguments: Sequence[str]) -> list[str]:
    """`analyzer.ks=`, for every option of the analyzers that the line names."""
    texts = _analyzers()
    named = {name for word in arguments for name in word.removeprefix("analyzer=").split(",")} & texts.keys()
    fields = [field for name in sorted(named) for field in _FIELD.findall(texts[name])]
    return [f"analyzer.{field}=" for field in dict.fromkeys(fields)]


def _executors() -> dict[str, str]:
    """Names of executors, and the texts of their files with those of the classes that they extend."""
    base = (PACKAGE / "analysis/executors.py").read_text("utf-8").partition("class Executor")[2]
    texts = {}
    for folder in (builtin_folder(), Path.cwd() / "plugins"):
        for path in sorted((folder / "executors").glob("[!_]*.py")):
            with suppress(OSError, UnicodeDecodeError):
                texts[path.stem] = base + path.read_text("utf-8")
    return texts


def _launch_options(arguments: Sequence[str]) -> list[str]:
    """`launch.cpus=`, for every option of the executor that the line names."""
    texts = _executors()
    named = [word.removeprefix("launch=") for word in arguments if word.startswith("launch=")]
    fields = [field for name in named if name in texts for field in _FIELD.findall(texts[name])]
    return [f"launch.{field}=" for field in dict.fromkeys(fields)]


def _measurements() -> list[str]:
    """`nano-6k/stdlib`, for every measurement in the local store."""
    return sorted(local.measured(home() / "mlflow.db"), key=size_key)


def _files(partial: str) -> list[str]:
    """Files and folders whose path begins so; folders end in a slash."""
    folder, _, _ = partial.rpartition("/")
    where = Path(folder or ("/" if partial.startswith("/") else "."))
    with suppress(OSError, BadInput):
        return sorted(
            (f"{folder}/" if "/" in partial else "") + path.name + "/" * path.is_dir()
            for path in user_path(str(where)).iterdir()
            if not path.name.startswith(".")
        )
    return []
