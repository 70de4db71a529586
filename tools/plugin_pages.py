"""The reference's pages of plugins: an analyzer's question, method, options, tables, and when it declines."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from types import ModuleType
from typing import Any

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.discovery import Kind, discover
from rbptrack.analysis.plugin import Plugin, help_line
from rbptrack.analysis.rows import columns_of
from tools.docstrings import Docstring, code, table

_WIDEST = 60  # characters of a default, as options show it


def default_of(field: Field[Any]) -> str:
    value = field.default if field.default_factory is MISSING else field.default_factory()
    if value is MISSING or value == "???":
        return "(required)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = f"[{','.join(str(item.value if isinstance(item, Enum) else item) for item in value)}]"
    text = str(value.value if isinstance(value, Enum) else value).replace("\n", "\\n")
    return "" if text in ("[]", "{}", "None") or len(text) > _WIDEST else text


def plugins_of(kind: Kind[Any]) -> Iterator[tuple[str, type[Any]]]:
    """Yield name and class of every plugin of a kind that ships with rbptrack."""
    plugins = discover(kind, [])
    for name in plugins.names:
        if plugins.sources[name].is_built_in:
            yield name, plugins.select(name)


def index(analyzers: Mapping[str, type[Analyzer]]) -> str:
    rows = [(f"[{name}](analyzers/{name}.md)", help_line(analyzer)) for name, analyzer in analyzers.items()]
    return "\n\n".join([
        "# Analyzers",
        "`rbptrack analyze NAME` runs one, `rbptrack report` all. Options are typed as `analyzer.OPTION=VALUE`.",
        table(["analyzer", "question"], rows),
    ])  # fmt: skip


def page(name: str, analyzer: type[Analyzer]) -> str:
    module = sys.modules[analyzer.__module__]
    parts = [f"# {name}", help_line(analyzer)]
    parts += [Docstring.of(analyzer).body, "## Method", Docstring.of(module).body]
    parts += ["## Options", plugin_options(analyzer, "analyzer."), "## Tables"]
    for row in _rows(module):
        parts += [f"**{Docstring.of(row).summary.rstrip('.')}**", table(["column", "meaning"], _columns(row))]
    if reasons := list(_reasons(module)):
        parts += ["## When it declines", "\n".join(f"- {reason}" for reason in dict.fromkeys(reasons))]
    return "\n\n".join(filter(None, parts))


def _columns(row: type) -> Iterator[tuple[str, str]]:
    """Yield the columns of a row and their meanings; the ends of an interval stand beside its middle."""
    columns = columns_of(row)
    for name, column in columns.items():
        ends = [end for end in (f"{name}_low", f"{name}_high") if end in columns]
        if not name.endswith(("_low", "_high")) or name.rpartition("_")[0] not in columns:
            yield ", ".join(map(code, [name, *ends])), " ".join(column.meaning.split())


def plugin_options(plugin: type[Plugin], typed: str) -> str:
    meanings = Docstring.of(*plugin.__mro__[:-1]).attributes
    rows = [
        (code(typed + field.name), code(default_of(field)), meanings.get(field.name, "")) for field in fields(plugin)
    ]
    return table(["option", "default", "meaning"], rows) if rows else ""


def _rows(module: ModuleType) -> Iterator[type]:
    """Yield the rows of an analyzer's tables, in the order of its files, but for those that others extend."""
    rows = [
        row
        for own in _own_modules(module)
        for row in vars(own).values()
        if isinstance(row, type)
        and is_dataclass(row)
        and row.__module__ == own.__name__
        and row.__name__.endswith("Row")
    ]
    yield from (row for row in rows if not any(row in other.__mro__[1:] for other in rows))


def _reasons(module: ModuleType) -> Iterator[str]:
    """Yield why it finds nothing, as its code says it; `...` stands for what a sentence is filled with."""
    for own in _own_modules(module):
        for node in ast.walk(ast.parse(inspect.getsource(own))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "nothing_found" and node.args:
                sentence = node.args[0]
                if isinstance(sentence, ast.Name) and isinstance(getattr(own, sentence.id, None), str):
                    yield getattr(own, sentence.id)
                elif isinstance(sentence, ast.Constant):
                    yield str(sentence.value)
                elif isinstance(sentence, ast.JoinedStr):
                    yield "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "..." for part in sentence.values
                    )


def _own_modules(module: ModuleType) -> list[ModuleType]:
    """List a plugin's modules: the one of its class, and those beside it."""
    names = sorted(name for _, name, _ in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{module.__name__}."))
    return [module, *map(importlib.import_module, names)]
