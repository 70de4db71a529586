"""Write the reference of the documentation from the code: commands, options, models, analyzers, the Python API.

python -m tools.reference          # writes docs/reference; `make docs` does it first

Nothing in docs/reference is written by hand: commands come from `rbptrack.commands.catalogue`, options from the schema and
the plugins' fields, models and datasets from conf/, analyzers and the API from docstrings.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import yaml

import rbptrack
from rbptrack.analysis.contract import Report
from rbptrack.analysis.discovery import ANALYZERS, EXECUTORS, EXPORTERS, IMPORTERS
from rbptrack.analysis.plugin import help_line
from rbptrack.analysis.runs import Runs
from rbptrack.commands.catalogue import GROUPS
from rbptrack.commands.declaration import Command
from rbptrack.config.ladders import LADDERS
from rbptrack.config.patterns import size_key
from rbptrack.config.schema import CellConfig, Config
from tools import plugin_pages
from tools.docstrings import Docstring, code, table

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/reference"
GENERATED = "<!-- made by tools/reference.py: change the code it is made from -->"


def pages() -> dict[str, str]:
    """Make every page: path below docs/reference -> its text."""
    analyzers = dict(plugin_pages.plugins_of(ANALYZERS))
    made = {
        "commands.md": _commands(),
        "options.md": _options(),
        "models.md": _models(),
        "analyzers.md": plugin_pages.index(analyzers),
        "api.md": _api(),
    } | {f"analyzers/{name}.md": plugin_pages.page(name, analyzer) for name, analyzer in analyzers.items()}
    return {path: f"{text.rstrip()}\n\n{GENERATED}\n" for path, text in made.items()}


# ---------------------------------------------------------------------- commands


def _commands() -> str:
    parts = ["# Commands", "`rbptrack help COMMAND` prints the same. A line without a command measures."]
    for title, commands in GROUPS.items():
        parts += [f"## {title}", *map(_command, commands)]
    return "\n\n".join(parts)


def _command(command: Command[Any]) -> str:
    parts = [f"### {command.name}", f"    rbptrack {command.synopsis}"]
    parts += [" ".join(paragraph.split()) for paragraph in command.about.strip().split("\n\n")]
    options = dict(command.more) | {option.shown: option.meaning for option in command.declared() if option.meaning}
    if options:
        parts.append(table(["option", "meaning"], ((code(shown), meaning) for shown, meaning in options.items())))
    if command.examples:
        examples = ((code(f"rbptrack {words}".strip()), meaning) for words, meaning in command.examples.items())
        parts.append(table(["example", "what it does"], examples))
    return "\n\n".join(parts)


# ----------------------------------------------------------------------- options


def _options() -> str:
    parts = [
        "# Options",
        "Every key of a sweep's configuration, typed as `key=value`; `--cfg job --resolve` prints the values of a command.",
        "## Sweep and cell",
        _keys((Config, CellConfig), ""),
    ]
    for prefix in ("model", "dataset", "k", "engine", "tracking"):
        kind = get_type_hints(Config)[prefix]
        parts += [f"## {prefix}.*", Docstring.of(kind).summary, _keys((kind,), f"{prefix}.")]
    parts += ["`reference.*` takes the keys of `model.*`."]
    for kind, title, typed in (
        (EXECUTORS, "Executors: launch=NAME", "launch."),
        (IMPORTERS, "Importers: import FILE", ""),
        (EXPORTERS, "Exporters: export to=NAME", ""),
    ):
        parts.append(f"## {title}")
        for name, plugin in plugin_pages.plugins_of(kind):
            parts += [f"### {name}", help_line(plugin), plugin_pages.plugin_options(plugin, typed)]
    return "\n\n".join(filter(None, parts))


def _keys(schemas: Iterable[type], prefix: str) -> str:
    """List the plain fields of dataclasses: key, default, values and meaning."""
    rows: dict[str, tuple[str, str, str]] = {}
    for schema in schemas:
        hints = get_type_hints(schema)
        for field in fields(schema):
            kind = hints[field.name]
            if is_dataclass(kind) or field.name == "reference":
                continue
            meaning = field.metadata.get("help") or _comments(schema).get(field.name, "")
            rows[field.name] = (code(prefix + field.name), code(plugin_pages.default_of(field)), _values(kind, meaning))
    return table(["key", "default", "meaning"], rows.values())


def _values(kind: object, meaning: str) -> str:
    """Put the values of an enum before a meaning."""
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        return meaning
    values = ", ".join(code(member.value) for member in kind)
    return ". ".join(filter(None, [values, meaning or Docstring.of(kind).summary.rstrip(".")]))


@cache
def _comments(schema: type) -> Mapping[str, str]:
    """Read the comment behind each field of a dataclass and of those it extends."""
    comments: dict[str, str] = {}
    for base in reversed(schema.__mro__[:-1]):
        comments |= dict(re.findall(r"^    (\w+):.*?  # (.*)$", inspect.getsource(base), re.MULTILINE))
    return comments


# ------------------------------------------------------------ models and datasets


def _models() -> str:
    families: dict[str, dict[str, dict[str, Any]]] = {}
    remarks: dict[str, str] = {}
    for path in sorted((ROOT / "conf/model").glob("*/*.yaml")):
        family = path.parent.name
        families.setdefault(family, {})[path.stem] = yaml.safe_load(path.read_text())
        remarks.setdefault(family, _remark(path))
    rows = [
        (code(name), ", ".join(sorted(sizes, key=size_key)), _repositories(sizes.values()), remarks[name])
        for name, sizes in families.items()
    ]
    rows += [
        (
            code(name),
            ", ".join(ladder.steps),
            ladder.where.get("repo", "built in").format(size="*"),
            _steps(ladder.steps),
        )
        for name, ladder in LADDERS.items()
    ]
    datasets = []
    for path in sorted((ROOT / "conf/dataset").glob("*.yaml")):
        config = yaml.safe_load(path.read_text())
        texts = ", ".join(config.get("fields", ["text"]))
        datasets.append((code(path.stem), config.get("repo", ""), texts, config.get("documents", "all"), _remark(path)))
    return "\n\n".join([
        "# Models and datasets that ship",
        "`model=FAMILY/SIZE`, or `'model=FAMILY/*'` for all sizes.",
        table(["family", "sizes", "repositories", "remarks"], rows),
        table(["dataset", "repository", "fields", "documents", "remarks"], datasets),
    ])  # fmt: skip


def _remark(path: Path) -> str:
    """Read the comment at the head of a YAML file."""
    lines = path.read_text().splitlines()
    head = lines[: next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))]
    return " ".join(line.removeprefix("#").strip() for line in head)


def _repositories(configs: Iterable[Mapping[str, Any]]) -> str:
    repos = {str(config.get("repo", "built in")) for config in configs}
    return repos.pop() if len(repos) == 1 else f"{_common(sorted(repos))}*"


def _common(names: list[str]) -> str:
    """Return the beginning that all names share, given in order."""
    return next((names[0][:i] for i in range(len(names[0]), 0, -1) if names[-1].startswith(names[0][:i])), "")


def _steps(steps: Mapping[str, tuple[int, ...]]) -> str:
    every = sorted({step for own in steps.values() for step in own})
    return f"{len(every)} checkpoints, step{every[0]} to step{every[-1]}: `SIZE-stepN`"


# --------------------------------------------------------------------------- API


def _api() -> str:
    parts = [
        "# Python API",
        "The public names of `rbptrack`, and what they return. `rbptrack.__version__` is the version.",
    ]
    for name in rbptrack.__all__:
        if name != "__version__":
            parts += [f"## rbptrack.{name}", *_documented(getattr(rbptrack, name))]
    for kind in (Runs, Report):
        parts += [f"## {kind.__name__}", *_documented(kind)]
    return "\n\n".join(filter(None, parts))


def _documented(thing: Any) -> Iterator[str]:
    """Yield signature and docstring; of a class its public methods and properties too."""
    if not inspect.isclass(thing):
        yield f"    {thing.__name__}{_signature(thing)}"
    yield Docstring.of(thing).markdown()
    members = [
        (name, member) for name, member in inspect.getmembers(thing) if inspect.isclass(thing) and name[0] != "_"
    ]
    for name, member in members:
        whose = member.fget if isinstance(member, property) else getattr(member, "func", member)
        if callable(whose) and inspect.isfunction(whose) and whose.__doc__:
            yield f"**`{name}{'' if isinstance(member, property) else _signature(whose)}`**"
            yield Docstring.of(whose).markdown()


def _signature(function: Any) -> str:
    """Write the signature without `self` and without the quotes of types."""
    signature = inspect.signature(function)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature.replace(parameters=parameters)))


def main() -> None:
    """Write the pages in place of those that are there."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for path, text in pages().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
