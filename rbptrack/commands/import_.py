"""`python -m rbptrack import`: bundles, and whatever an importer takes, into the store; no model, no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path

import pandas as pd

from rbptrack.analysis.discovery import IMPORTERS, discover
from rbptrack.analysis.importing import Importer
from rbptrack.analysis.run_names import unmatched
from rbptrack.base.errors import BadInput, shortened
from rbptrack.base.files import kind_of
from rbptrack.base.user_paths import user_path
from rbptrack.base.words import counted
from rbptrack.commands.declaration import with_options
from rbptrack.commands.declared.exchange import IMPORT, ImportConfig
from rbptrack.config.keys import removed
from rbptrack.config.paths import conf_folder, plugin_folders
from rbptrack.config.schema import FilterConfig
from rbptrack.console.output import complain, say
from rbptrack.exchange.archive import Bundle
from rbptrack.exchange.delivery import Imported, Source, deliver
from rbptrack.exchange.imported import AnyImportedRow, ImportedRow, KnownModels
from rbptrack.exchange.intake import importer_of, take_in
from rbptrack.tracking.record import Record
from rbptrack.tracking.store import Store


def main(arguments: Sequence[str]) -> int:
    """Import a file or folder; returns the exit code."""
    words = [word if "=" in word or word.startswith("-") else f"path={word}" for word in arguments]
    if sum(word.startswith("path=") for word in words) > 1:
        raise BadInput(f"one file or folder at a time. {IMPORT.usage}")
    typed = dict(word.partition("=")[::2] for word in words)
    if sentence := next(filter(None, map(removed, typed)), ""):
        raise BadInput(sentence)
    if not typed.get("path"):
        IMPORT.parsed(words)  # a wrong option is an error before anything else
        raise BadInput(f"what to import? {IMPORT.usage}")
    path = user_path(typed["path"])
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    if not path.is_file() and not path.is_dir():
        raise BadInput(f"{path} is {kind_of(path)}, not a file or folder")  # a FIFO would be waited for
    wanted = typed.get("use", "")
    if path.suffix == ".zip" and not wanted:
        return _import_bundle(IMPORT.parsed(words), path)
    importers = discover(IMPORTERS, plugin_folders(words))
    importer = importer_of(path, importers, wanted=wanted)
    for line in importers.broken:
        complain(f"plugin left out: {line}")
    return _import(with_options(IMPORT, importer).parsed(words), path, importer)


def _rules(config: ImportConfig) -> type[AnyImportedRow]:
    return AnyImportedRow if config.without_s else ImportedRow


def _import_bundle(config: ImportConfig, path: Path) -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bundle = stack.enter_context(Bundle(path))
        bundle.check(folder, _rules(config))
        store = Store(config.tracking)
        store.check_writable()
        source: Source = (_unpacked(bundle, fingerprint, folder) for fingerprint in bundle.fingerprints)
        _summarise(path, deliver(store, source, tell=say))
    return 0


@contextmanager
def _unpacked(bundle: Bundle, fingerprint: str, folder: Path) -> Iterator[tuple[Record, Path]]:
    with bundle.unpacked(fingerprint, folder) as own:
        yield bundle.record(own), own


def _import(config: ImportConfig, path: Path, cls: type[Importer]) -> int:
    importer = cls(**{option.name: getattr(config, option.name) for option in fields(cls)})
    models = KnownModels.read(conf_folder())
    with tempfile.TemporaryDirectory() as folder:
        intake = take_in(importer, path, models=models, rules=_rules(config), folder=Path(folder))
        store = Store(config.tracking)
        store.check_writable()
        if intake.measurements:
            _summarise(path, deliver(store, map(nullcontext, intake.measurements), tell=say))
        if len(intake.scores):
            _keep_scores(store, intake.scores, path)
    return 0


def _keep_scores(store: Store, table: pd.DataFrame, path: Path) -> None:
    models = table["model"].nunique()
    tasks = table["task"].nunique()
    new = store.writer.keep_scores(table, path.name)
    what = f"{counted(len(table), 'score')} of {counted(models, 'model')} in {counted(tasks, 'task')}"
    say(f"{what} imported from {path}" if new else f"{what}: skipped, in the store already")
    try:
        measured = store.reader.runs(FilterConfig()).frame
    except BadInput:  # the store does not exist yet
        measured = pd.DataFrame({"model": [], "commit": []})
    if names := unmatched(table["model"], measured):
        complain(f"no measurement here is of {shortened(names)}; names=FILE.csv says which model a name is")


def _summarise(path: Path, done: Imported) -> None:
    """Print the number of imported measurements, and their gaps."""
    skipped = f", {done.skipped} skipped: in the store already" if done.skipped else ""
    say(f"{done.imported} imported from {path}{skipped}")
    if done.without_size:
        listed = ", ".join(dict.fromkeys(done.without_size))
        say(f"no non_embedding_params, so excluded from scaling laws: {listed}")
    if done.without_ranks:
        say(f"{done.without_ranks} have no ranks; rank analyzers skip them")
