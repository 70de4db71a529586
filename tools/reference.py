"""Write docs/reference from the code; `make docs` does it before it builds the site.

python -m tools.reference

Commands come from Typer, options from the comments in `rbptrack.config.schema`, models and datasets from conf/,
analyzers from their docstrings. The page of the Python API is written by mkdocstrings when the site is built.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

import griffe
import typer
import yaml
from latex2mathml.converter import convert
from typer.cli import get_docs_for_click

from rbptrack.analysis.plugin import Plugin, options_of
from rbptrack.analysis.testing import PUBLIC
from rbptrack.cli import app
from rbptrack.config.patterns import natural_key
from rbptrack.config.schema import CellConfig, Config
from rbptrack.discovery import ANALYZERS, EXPORTERS, IMPORTERS, Kind, find
from rbptrack.ranks import COLUMNS

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/reference"

API = """\
# Python API

`import rbptrack` gives the four names that [Python and notebooks](../howto/python.md) explains. Plugins use the rest.

::: rbptrack.api
    options:
      members: [measure, LoggedMeasurement, runs, analyze]

::: rbptrack.callback.RankCallback

::: rbptrack.analysis.runs.Runs

::: rbptrack.analysis.report.Report

::: rbptrack.analysis.family.read_families

::: rbptrack.analysis.family.Family

::: rbptrack.stats.estimate.Estimate

::: rbptrack.stats.documents
    options:
      members: [estimate, Sums]

::: rbptrack.stats.laws
    options:
      members: [Law, laws]

::: rbptrack.ranks.table.RankTable

::: rbptrack.ranks.histogram.RankHistogram

::: rbptrack.ranks.counts.DocumentCounts

::: rbptrack.analysis.importing
    options:
      members: [Importer, ImportedMeasurement, ImportedScore]

::: rbptrack.analysis.exporting.Exporter

::: rbptrack.analysis.testing
    options:
      members: [AnalyzerContract, NeedsRanks, NeedsSizes, example_runs]
"""


def math(source: str, language: str, class_name: str, options: Any, md: Any, **kwargs: Any) -> str:
    """A block ```math as MathML, which browsers typeset without a script (see mkdocs.yml)."""
    return convert(source.strip(), display="block")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    cells = [[_prose(str(cell)).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def code(text: object) -> str:
    """Text as code; nothing where it is empty."""
    return f"`{text}`" if str(text) else ""


def commands() -> str:
    """Every command of the program with its arguments and flags."""
    program = typer.main.get_command(app)
    return get_docs_for_click(obj=program, ctx=typer.Context(program), name="rbptrack", title="Commands")


def options() -> str:
    """Every key of a sweep's config."""
    hints = get_type_hints(Config)
    parts = [
        "# Options",
        "Every key of a sweep's config, typed as `key=value`. `rbptrack WORDS --cfg job --resolve` prints the values "
        "that a command has. `reference=NAME` measures a second model in the same pass, and `reference.*` takes the "
        "keys of `model.*`.",
        "## The sweep and the cell",
        _keys((Config, CellConfig), ""),
    ]
    for group in ("model", "dataset", "k", "engine", "launch", "tracking", "plugins"):
        schema = hints[group]
        parts += [
            f"## {group}",
            _prose(" ".join(inspect.cleandoc(schema.__doc__).split())),
            _keys((schema,), f"{group}."),
        ]
    for kind in (IMPORTERS, EXPORTERS):
        parts.append(f"## {kind.word.capitalize()}s")
        for name, plugin in _built_in(kind):
            parts += [f"### {name}", _prose(inspect.getdoc(plugin) or ""), _options_of(plugin)]
    return "\n\n".join(part for part in parts if part)


def _keys(schemas: Iterable[type], prefix: str) -> str:
    rows: dict[str, tuple[str, str, str]] = {}
    for schema in schemas:
        hints = get_type_hints(schema)
        comments = dict(re.findall(r"^    (\w+):.*?  # (.*)$", inspect.getsource(schema), re.MULTILINE))
        for entry in fields(schema):
            kind = hints[entry.name]
            if is_dataclass(kind) or entry.name == "reference":
                continue
            meaning = comments.get(entry.name, "")
            if isinstance(kind, type) and issubclass(kind, Enum):
                values = ", ".join(code(member.value) for member in kind)
                about = meaning or " ".join(inspect.cleandoc(kind.__doc__ or "").split())
                meaning = f"{values}. {about}"
            rows.setdefault(entry.name, (code(prefix + entry.name), code(_default(entry)), meaning))
    return table(["key", "default", "meaning"], rows.values())


def _default(entry: Field[Any]) -> str:
    default = entry.default
    if entry.default_factory is not MISSING:
        default = entry.default_factory()
    if default is MISSING or default == "???":
        return ""
    if isinstance(default, Enum):
        return str(default.value)
    shown = str(default).replace("'", "").replace("\n", "\\n")
    return shown if default or isinstance(default, (bool, int)) else ""


def configs() -> str:
    """The models and datasets that ship."""
    families: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted((ROOT / "conf/model").glob("*/*.yaml")):
        families.setdefault(path.parent.name, {})[path.stem] = yaml.safe_load(path.read_text(encoding="utf-8"))
    models = []
    for family, sizes in families.items():
        repos = sorted({str(config.get("repo", "")) for config in sizes.values()} - {""})
        models.append((code(family), ", ".join(sorted(sizes, key=natural_key)), ", ".join(repos) or "built in"))
    datasets = []
    for path in sorted((ROOT / "conf/dataset").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        config = yaml.safe_load(text)
        head = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
        names = ", ".join(config.get("fields", ["text"]))
        datasets.append((code(path.stem), config.get("repo", ""), names, config.get("documents") or "all", head))
    return "\n\n".join([
        "# Models and datasets that ship",
        "A name is a file: `model=pythia/70m` is `conf/model/pythia/70m.yaml`, and `'model=pythia/*'` is the whole "
        "family. [Models and datasets](../howto/models-and-datasets.md) says how to add yours.",
        table(["family", "sizes", "repositories on the Hub"], models),
        table(["dataset", "repository", "fields", "documents", "what it is"], datasets),
    ])  # fmt: skip


def analyzers() -> str:
    """Method, options and glossary of every analyzer that ships."""
    parts = [
        "# Analyzers",
        "`rbptrack analyze NAME option=value` runs one, `rbptrack report` all. Every result has the columns family, "
        "dataset, metric, estimate, a 95% interval, p, p corrected by Holm, and a verdict.",
    ]
    for name, plugin in _built_in(ANALYZERS):
        module = inspect.getmodule(plugin)
        method = inspect.cleandoc(inspect.getdoc(module) or "")
        parts += [f"## {name}", _prose(method), _options_of(plugin)]
        glossary = getattr(module, "GLOSSARY", None) or getattr(module, "CHANGES_GLOSSARY", {})
        rows = []
        for entry, term in glossary.items():
            meaning = term if isinstance(term, str) else term.meaning
            rows.append((code(entry), meaning))
        parts.append(table(["in results and tables", "meaning"], rows))
    return "\n\n".join(part for part in parts if part)


def plugins() -> str:
    """Every name that a plugin may import, and the columns of a rank table."""
    parts = [
        "# What plugins import",
        "A plugin imports these names and nothing else of rbptrack. [Write a plugin](../howto/plugins.md) shows how "
        "they are used.",
    ]
    package = griffe.load("rbptrack", search_paths=[ROOT], resolve_aliases=True)
    for name in PUBLIC:
        module = package[name.removeprefix("rbptrack.")]
        rows = []
        for member in sorted(module.exports, key=str.lower):
            value = getattr(importlib.import_module(name), member)
            own = inspect.getdoc(value) if inspect.isclass(value) or inspect.isfunction(value) else ""
            about = own or (module[member].docstring.value if module[member].docstring else "")
            rows.append((code(member), about.partition("\n")[0]))
        parts += [f"## {name}", _prose(module.docstring.value.partition("\n")[0]), table(["name", "what it is"], rows)]
    rows = [(code(name), meaning) for name, meaning in COLUMNS.items()]
    about = "A rank table has one row per scored token, in the order of the text. R = greater + ties + 1."
    return "\n\n".join([*parts, "## The columns of a rank table", about, table(["column", "meaning"], rows)])


def _built_in(kind: Kind[Any]) -> list[tuple[str, type[Plugin]]]:
    plugins = find(kind)
    classes = plugins.load()
    return [(name, cls) for name, cls in classes.items() if plugins.found[name].built_in]


def _prose(text: str) -> str:
    """Text of a docstring as Markdown: outside of `code`, signs of Markdown and HTML are shown as they stand."""
    parts = re.split(r"(`[^`]*`)", text.strip())
    return "".join(part if part.startswith("`") else re.sub(r"([<*_])", r"\\\1", part) for part in parts)


def _options_of(plugin: type[Plugin]) -> str:
    rows = [(code(option.name), code(option.default), option.help) for option in options_of(plugin)]
    return table(["option", "default", "meaning"], rows) if rows else ""


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pages = {
        "commands": commands(),
        "options": options(),
        "configs": configs(),
        "analyzers": analyzers(),
        "plugins": plugins(),
        "api": API,
    }
    for name, text in pages.items():
        (FOLDER / f"{name}.md").write_text(f"{text.rstrip()}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
