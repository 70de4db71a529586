"""`python -m rbptrack import`: bundles, the authors' folders and plain tables into the store; no model, no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rbptrack.base.errors import BadInput
from rbptrack.base.files import kind_of
from rbptrack.base.user_paths import user_path
from rbptrack.base.words import counted
from rbptrack.commands.declared.exchange import IMPORT, ImportConfig
from rbptrack.config.paths import conf_folder
from rbptrack.console.output import say
from rbptrack.exchange import authors, rows, scores, served
from rbptrack.exchange.archive import Bundle
from rbptrack.exchange.delivery import Imported, Source, deliver
from rbptrack.exchange.imported import AnyImportedRow, ImportedRow, KnownModels
from rbptrack.tracking.record import Record
from rbptrack.tracking.rules import LARGEST_VOCABULARY
from rbptrack.tracking.store import Store


def _import(config: ImportConfig) -> int:
    if config.scores and not config.path:
        return _import_scores(config)
    if config.scores:
        raise BadInput(f"import takes {config.path} or scores={config.scores}, not both at once")
    if not config.path:
        raise BadInput(f"what to import? {IMPORT.usage}")
    path = user_path(config.path)
    _check_kind(path, folder=True)
    if config.sizes:
        _check_kind(user_path(config.sizes), folder=False)
    if not 0 <= config.vocab_size <= LARGEST_VOCABULARY:
        raise BadInput(f"vocab_size={config.vocab_size}: must be a whole number above 0")
    store = Store(config.tracking)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        source = _checked(path, config, folder, stack)
        store.check_writable()
        _summarise(path, deliver(store, source, tell=say))
    return 0


def _import_scores(config: ImportConfig) -> int:
    path = user_path(config.scores)
    _check_kind(path, folder=True)
    names = scores.read_names(user_path(config.scores_map)) if config.scores_map else {}
    table = scores.read(path, names=names, metric=config.scores_metric)
    store = Store(config.tracking)
    store.check_writable()
    models, tasks = table["model"].nunique(), table["task"].nunique()
    new = store.writer.keep_scores(table, path.name)
    what = f"{counted(len(table), 'score')} of {counted(models, 'model')} in {counted(tasks, 'task')}"
    say(f"{what} imported from {path}" if new else f"{what}: skipped, in the store already")
    return 0


def _check_kind(path: Path, *, folder: bool) -> None:
    """BadInput for what is not there, and for devices and FIFOs, which would be waited for."""
    if not path.exists():
        raise BadInput(f"{path}: no such file{' or folder' * folder}")
    if not path.is_file() and not (folder and path.is_dir()):
        raise BadInput(f"{path} is {kind_of(path)}, not a file{' or folder' * folder}")


def _checked(path: Path, config: ImportConfig, folder: Path, stack: ExitStack) -> Source:
    """The measurements of a source, of which every one was checked."""
    rules = AnyImportedRow if config.without_s else ImportedRow
    if path.suffix != ".jsonl" and (config.model or config.dataset):
        raise BadInput(f"model= and dataset= are for .jsonl files of a serving engine; {path} names its own")
    if path.is_dir() or path.suffix == ".jsonl":
        sizes = authors.read_sizes(user_path(config.sizes)) if config.sizes else {}
        about: dict[str, Any] = {"models": KnownModels.read(conf_folder()), "sizes": sizes, "rules": rules}
        about |= {"vocab_size": config.vocab_size, "folder": folder}
        if path.is_dir():
            return map(nullcontext, authors.read(path, **about))
        return map(nullcontext, served.read(path, model=config.model, dataset=config.dataset, **about))
    if path.suffix == ".zip":
        bundle = stack.enter_context(Bundle(path))
        bundle.check(folder, rules)
        return (_unpacked(bundle, fingerprint, folder) for fingerprint in bundle.fingerprints)
    if path.suffix in (".csv", ".parquet"):
        return (nullcontext((record, folder)) for record in rows.read(path, KnownModels.read(conf_folder()), rules))
    raise BadInput(f"{path}: expected a .zip, .csv, .parquet or .jsonl file, or a folder")


@contextmanager
def _unpacked(bundle: Bundle, fingerprint: str, folder: Path) -> Iterator[tuple[Record, Path]]:
    with bundle.unpacked(fingerprint, folder) as own:
        yield bundle.record(own), own


def _summarise(path: Path, done: Imported) -> None:
    """Print what was imported, and what the imported measurements lack."""
    skipped = f", {done.skipped} skipped: in the store already" if done.skipped else ""
    say(f"{done.imported} imported from {path}{skipped}")
    if done.without_size:
        listed = ", ".join(dict.fromkeys(done.without_size))
        say(f"without S (non_embedding_params), so that no law in size takes them: {listed}")
    if done.without_ranks:
        say(f"{done.without_ranks} without ranks: analyzers that need them leave these out")


main = IMPORT.running(_import)
