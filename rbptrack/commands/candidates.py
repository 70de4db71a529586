"""What may follow on a command line, for Tab completion. Fast: Hydra, MLflow and the plugins are not imported."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rbptrack.base.errors import BadInput
from rbptrack.base.user_paths import user_path
from rbptrack.commands.catalogue import COMMANDS
from rbptrack.commands.declaration import Command, NoOptions
from rbptrack.config.ladders import LADDERS, names
from rbptrack.config.paths import PACKAGE, builtin_folder, conf_folder, home, working_conf
from rbptrack.config.patterns import size_key
from rbptrack.config.schema import FILTERS, AnalyzeConfig, Config
from rbptrack.tracking import local

_GROUPS = ("model", "dataset", "k", "protocol", "launch")
_FIRST = ("model=", "dataset=", "k=")  # beside the commands, for a line without one
_FLAGS = ("--help", "--quiet")
_HYDRA_FLAGS = ("--multirun", "--config-dir", "--cfg", "--hydra-help")
_FIELD = re.compile(r"^    (\w+): (?!ClassVar)[^=\n]+ = ", re.MULTILINE)  # an option of an analyzer, in its file
_PATHS = ("dataset.files", "dataset.path", "model.path", "tracking.artifacts")  # of configs
_COLUMNS = ("model", "dataset", "family", "size", "non_embedding_params", "num_tokens", "started", "run_id")


def candidates(line: str) -> list[str]:
    """Return the words that may stand in place of the last one of a line up to the cursor, in the order of showing."""
    words, partial = _split(line)
    if not words and "=" not in partial and not partial.startswith("-"):
        return _starting([*COMMANDS, *_FIRST], partial)
    command = COMMANDS[words[0] if words and words[0] in COMMANDS else "measure"]
    arguments = words[1:] if words and words[0] in COMMANDS else words
    composed = command.composed is not NoOptions
    if partial.startswith("-"):
        return _starting([*_FLAGS, *(_HYDRA_FLAGS if composed else ())], partial)
    if arguments[-1:] == ["--config-dir"]:
        return _starting(_files(partial), partial)
    key, equals, value = partial.partition("=")
    if equals:
        *done, last = value.split(",")
        start = f"{key}={','.join([*done, ''])}"
        return [start + name for name in _starting(_values(command, key, last), last) if name not in done]
    bare = next((option for option in command.declared() if option.key == command.bare_word), None)
    names = _of(bare.values, partial) if bare and (partial or bare.key != "family") else []
    if command.name == "analyze":
        named = any("=" not in word or word.startswith("analyzer=") for word in arguments)
        return _starting([*_keys(command, partial), *_options(arguments), *([] if named else _analyzers())], partial)
    launched = _launch_options(arguments) if partial.startswith("launch.") else []
    keys = [*launched, *_keys(command, partial)]
    return _starting([*keys, *names] if command.name == "list" else [*names, *keys], partial)


def _split(line: str) -> tuple[list[str], str]:
    """Return the words between the program's name and the last one, and the last one, which the cursor touches."""
    for closing_quote in ("", "'", '"'):  # a quote may still be open
        with suppress(ValueError):
            words = shlex.split(line + closing_quote)[1:]
            return (
                (words, "") if line[-1:].isspace() and not closing_quote else (words[:-1], words[-1] if words else "")
            )
    return [], ""


def _starting(names: Iterable[str], beginning: str) -> list[str]:
    return list(dict.fromkeys(name for name in names if name.startswith(beginning)))


def _keys(command: Command[Any], partial: str) -> list[str]:
    """Return options with `=`; of those in folders, the folder first: `engine.`, then `engine.threads=`."""
    if command.composed is NoOptions:
        return [f"{option.key}=" for option in command.declared() if option.meaning]
    keys = [option.key for option in command.declared() if option.key != "analyzer"]
    depth = partial.count(".")
    groups = {Config: _GROUPS, AnalyzeConfig: ("analyzer",)}.get(command.composed, ())
    plain = [f"{key}=" for key in keys if key.count(".") == depth]
    folders = [f"{key.rpartition('.')[0]}." for key in keys if key.count(".") == depth + 1]
    return [*(f"{group}=" for group in groups if not depth), *plain, *folders]


def _values(command: Command[Any], key: str, partial: str) -> list[str]:
    """Return values of an option, as far as they can be known."""
    if command.composed is Config and key in _GROUPS:
        return _by_folder(_configs(key), partial)
    if key == "analyzer":
        return sorted(_analyzers())
    if key in _PATHS:
        return _files(partial)
    values = next((option.values for option in command.declared() if option.key == key), ())
    return _of(values, partial)


def _of(values: Sequence[str] | str, partial: str) -> list[str]:
    """Return the words, or those of a kind of words, that `rbptrack.base.options.option` names."""
    if not isinstance(values, str):
        return list(values)
    if values in FILTERS:
        return sorted(local.tag_values(home() / "mlflow.db", values), key=size_key)
    if values in ("sort", "columns"):
        signs = ("", "-") if values == "sort" else ("",)
        return [sign + name for sign in signs for name in (*_COLUMNS, *local.metrics(home() / "mlflow.db"))]
    if values.endswith("configs"):
        return _by_folder(_configs(values.split()[0]), partial)
    kinds = {"files": lambda: _files(partial), "analyzers": lambda: sorted(_analyzers())}
    kinds |= {"measurements": _measurements, "commands": lambda: list(COMMANDS)}
    return kinds[values]()


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
    """Return a level at a time: `nano/`, then its sizes."""
    depth = partial.count("/")
    level = [name for name in configs if name.startswith(partial.rpartition("/")[0])]
    shown = ("/".join(name.split("/")[: depth + 1]) + "/" * (name.count("/") > depth) for name in level)
    return sorted(dict.fromkeys(shown), key=lambda name: name.rstrip("/") in LADDERS)  # checkpoints last


def _analyzers() -> dict[str, str]:
    """Return names of analyzers, and the texts of their files: importing plugins takes a second."""
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
    """Return `analyzer.ks=`, for every option of the analyzers that the line names."""
    texts = _analyzers()
    named = {name for word in arguments for name in word.removeprefix("analyzer=").split(",")} & texts.keys()
    fields = [field for name in sorted(named) for field in _FIELD.findall(texts[name])]
    return [f"analyzer.{field}=" for field in dict.fromkeys(fields)]


def _executors() -> dict[str, str]:
    """Return names of executors, and the texts of their files with those of the classes that they extend."""
    base = (PACKAGE / "analysis/executors.py").read_text("utf-8").partition("class Executor")[2]
    texts = {}
    for folder in (builtin_folder(), Path.cwd() / "plugins"):
        for path in sorted((folder / "executors").glob("[!_]*.py")):
            with suppress(OSError, UnicodeDecodeError):
                texts[path.stem] = base + path.read_text("utf-8")
    return texts


def _launch_options(arguments: Sequence[str]) -> list[str]:
    """Return `launch.cpus=`, for every option of the executor that the line names."""
    texts = _executors()
    named = [word.removeprefix("launch=") for word in arguments if word.startswith("launch=")]
    fields = [field for name in named if name in texts for field in _FIELD.findall(texts[name])]
    return [f"launch.{field}=" for field in dict.fromkeys(fields)]


def _measurements() -> list[str]:
    """Return `nano-6k/stdlib`, for every measurement in the local store."""
    return sorted(local.measured(home() / "mlflow.db"), key=size_key)


def _files(partial: str) -> list[str]:
    """Return files and folders whose path begins so; folders end in a slash."""
    folder, _, _ = partial.rpartition("/")
    where = Path(folder or ("/" if partial.startswith("/") else "."))
    with suppress(OSError, BadInput):
        return sorted(
            (f"{folder}/" if "/" in partial else "") + path.name + "/" * path.is_dir()
            for path in user_path(str(where)).iterdir()
            if not path.name.startswith(".")
        )
    return []
