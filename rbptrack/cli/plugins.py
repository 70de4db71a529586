"""The command `plugins`, which lists plugins and creates new ones."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rbptrack.base.errors import BadInput
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import short_path
from rbptrack.cli.options import NO_VALUES, PluginsPath
from rbptrack.console.output import print_problem, print_text, program_name

_COMMAND_OF_KIND = {
    "analyzer": "analyze {name}",
    "importer": "import FILE --importer {name}",
    "exporter": "export OUT --to {name}",
}


app = typer.Typer()


@app.callback(invoke_without_command=True)
def plugins(ctx: typer.Context, plugins_path: PluginsPath = NO_VALUES) -> int:
    """List analyzers, importers and exporters, what they do, and where they come from."""
    if ctx.invoked_subcommand:
        return 0
    import pandas as pd

    from rbptrack.analysis.plugin import plugin_summary
    from rbptrack.console.tables import print_table
    from rbptrack.discovery import KINDS, Plugins, find_plugins

    rows = []
    broken = []
    for kind in KINDS:
        available: Plugins[Any] = find_plugins(kind, plugins_path)
        for name, plugin in available.load_all().items():
            entry = available.entries[name]
            origin = "built-in" if entry.built_in else short_path(entry.origin)
            rows.append({"name": name, "kind": kind.name, "from": origin, "does": plugin_summary(plugin)})
        broken.extend(available.broken)
    print_table(pd.DataFrame(rows), wrap=True)
    for error in broken:
        print_problem(str(error), error.trace)
    return 1 if broken else 0


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="the name of the plugin and of its file")],
    kind_name: Annotated[
        Literal["analyzer", "importer", "exporter"], typer.Option("--kind", help="kind of plugin")
    ] = "analyzer",
) -> int:
    """Create a working plugin in plugins/ of this folder, as a file to start from."""
    from rbptrack.discovery import KINDS, find_plugins, plugin_template

    _check_plugin_name(name, folder_names=[kind.folder for kind in KINDS])
    kind = next(kind for kind in KINDS if kind.name == kind_name)
    existing = find_plugins(kind).entries.get(name)
    file = Path("plugins") / kind.folder / f"{name}.py"
    if existing or file.exists():
        origin = short_path(existing.origin) if existing else file
        raise BadInput(f"the {kind_name} {name} exists already, in {origin}. Give another name")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, plugin_template(kind, name))
    command = _COMMAND_OF_KIND[kind_name].format(name=name)
    print_text(f"{file} is a working {kind_name}. Try it, then change it: {program_name()} {command}")
    return 0


def _check_plugin_name(name: str, folder_names: Sequence[str]) -> None:
    """Raise BadInput if `name` is not allowed as the name of a plugin."""
    if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name) or name in folder_names:
        raise BadInput(
            f"{name}: the name of a plugin must consist of letters, digits and _, and begin with a letter. It must not "
            "be a keyword of Python or the name of a folder of plugins. Give another name, such as my_law"
        )
