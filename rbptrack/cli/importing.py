"""The command `import`, which adds measurements from a file to a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.formatting import listed
from rbptrack.cli.options import NO_VALUES, PluginOptions, PluginsPath, Selection, select_all, with_selection
from rbptrack.config.paths import user_path
from rbptrack.console.output import print_problem, print_text

if TYPE_CHECKING:
    from rbptrack.analysis.importing import Importer
    from rbptrack.discovery import Plugins


@with_selection(select_all)
def import_(
    selection: Selection,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="a bundle, or a file that an importer can read")],
    options: PluginOptions = NO_VALUES,
    importer: Annotated[
        str, typer.Option(metavar="NAME", help="use this importer; needed if several importers can read the file")
    ] = "",
    plugins_path: PluginsPath = NO_VALUES,
) -> int:
    """Import measurements from a bundle, from tables of metrics or ranks, or from scores of tasks."""
    from rbptrack.analysis.plugin import make_plugin_from_words
    from rbptrack.console.progress import counting, spinner
    from rbptrack.discovery import IMPORTERS, call_plugin, find_plugins
    from rbptrack.exchange import CheckedContent, check_imported, import_bundle, import_content, is_bundle

    path = user_path(str(path))
    if not path.exists():
        raise BadInput(f"{path} does not exist")
    if not importer and is_bundle(path):
        if options:
            raise BadInput(f"a bundle has no options; got {listed(list(options))}")
        lines = import_bundle(path, selection.open_store())
    else:
        importers = find_plugins(IMPORTERS, plugins_path)
        importer = importer or _find_importer(importers, path)
        plugin = make_plugin_from_words(importers.load(importer), options)

        def read() -> CheckedContent:
            items = counting(plugin.read(path), f"reading {path.name}")
            return check_imported(path, items, read_name=_make_name_reader())

        content = call_plugin(plugin, read, CheckedContent)
        with spinner(f"storing {path.name}"):
            lines = import_content(importer, content, path, selection.open_store())
    for line in lines:
        print_text(line)
    return 0


def _find_importer(importers: Plugins[Importer], path: Path) -> str:
    """Return the name of the importer that can read a file. Raises BadInput unless exactly one importer can read it.

    A broken importer is skipped, and a line on standard error says why.
    """
    from rbptrack.discovery import call_plugin

    names = []
    errors: list[RbptrackError] = []
    candidates = [importer_class() for importer_class in importers.load_matching(["*"])]
    for importer in candidates:
        try:
            if call_plugin(importer, partial(importer.takes, path), bool):
                names.append(importer.name)
        except RbptrackError as error:
            errors.append(error)
    for problem in [*importers.broken, *errors]:
        print_problem(str(problem), problem.trace)
    if len(names) == 1:
        return names[0]
    if names:
        raise BadInput(f"{path} can be read by several importers: {listed(names)}. Choose one with --importer NAME")
    raise _unreadable_error(path, candidates)


def _unreadable_error(path: Path, importers: Sequence[Importer]) -> BadInput:
    """Return the error for a file that no importer can read. It names the columns or keys that the file lacks."""
    from rbptrack.analysis.input_files import TABLE_SUFFIXES, load_json, read_rows

    if path.suffix.lower() == ".zip":
        return BadInput(
            f"{path} is not a bundle of rbptrack, or it is damaged: it is not a zip file, or it holds no bundle.json"
        )
    if path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        return BadInput(f"{path} is a spreadsheet: save it as CSV, and import the CSV file")
    if path.suffix.lower() in TABLE_SUFFIXES:
        # raises a more precise error if the file is damaged
        if path.suffix.lower() == ".json":
            load_json(path, finite=False)
        else:
            read_rows(path)
    lacks = [reason for importer in importers if (reason := _missing_key(importer, path))]
    if lacks:
        return BadInput("\n  ".join([f"{path} cannot be read by any importer:", *lacks]))
    names = ", ".join(importer.name for importer in importers)
    return BadInput(
        f"{path} cannot be read by any importer ({names}). To learn why one of them cannot, add --importer NAME"
    )


def _missing_key(importer: Importer, path: Path) -> str:
    """Return which column or key a file lacks for an importer; empty if the importer gives no such reason."""
    from rbptrack.analysis.input_files import MissingKey
    from rbptrack.discovery import call_plugin

    try:
        call_plugin(importer, lambda: next(iter(importer.read(path)), None), object)
    except MissingKey as error:
        return str(error).replace(f"{path} ", "", 1)
    except RbptrackError:
        pass
    return ""


def _make_name_reader() -> Callable[[str], tuple[str, str]]:
    """Return a function that finds the family and the size for the name of a model.

    If a config in conf/model has a repository of this name, it gives the family and the size. Otherwise they are read
    from the name.
    """
    from rbptrack.analysis.model_names import family_and_size
    from rbptrack.config.choices import published_names

    published = cache(published_names)  # reads the configs on first use
    return lambda model: published().get(model.lower().rpartition("/")[2]) or family_and_size(model)
