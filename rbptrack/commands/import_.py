"""`python -m rbptrack import`: bundles, the authors' folders and plain tables into the store; no model, no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rbptrack.commands.runner import OptionsCommand
from rbptrack.config.paths import conf_folder
from rbptrack.config.schema import TrackingConfig
from rbptrack.console import say
from rbptrack.errors import BadInput
from rbptrack.exchange import bundle, tables
from rbptrack.tracking import Connection, Reader, Writer
from rbptrack.tracking.record import Record

USAGE = """python -m rbptrack import PATH [sizes=sizes.csv] [vocab_size=N] [tracking.uri=...]

PATH is one of
  bundle.zip             what `python -m rbptrack export` wrote: same fingerprints, same numbers
  results.csv, .parquet  a row per measurement: model, dataset, ce and rbp_<k>, and where known
                         family, size, non_embedding_params, num_tokens, vocab_size, seq_len and
                         <metric>_se
  FOLDER                 what the paper's authors' code writes:
                         <dataset>/<org>/<model>/top<k>/metrics.json;
                         sizes: a CSV with model,non_embedding_params, which those files lack;
                         vocab_size: |V|, with which ranks.json becomes a rank table
What the store holds already is skipped. What a source lacks stays missing, and analyzers leave it
out."""


@dataclass
class ImportConfig:
    """Options of the command."""

    path: str = ""
    sizes: str = ""
    vocab_size: int = 0
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


def _import(config: ImportConfig) -> int:
    if not config.path:
        raise BadInput(f"what to import?\n{USAGE.splitlines()[0]}")
    path = Path(config.path).expanduser()
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    importer = _Importer(Connection(config.tracking))
    if path.is_dir():
        sizes = tables.read_sizes(Path(config.sizes).expanduser()) if config.sizes else {}
        found = tables.read_authors(path, tables.Names.of(conf_folder()), sizes, vocab_size=config.vocab_size)
        for record, ranks in list(found):  # all of it is right before any is logged
            importer.add(record, partial(tables.complete, record, ranks))
    elif path.suffix == ".zip":
        with bundle.opened(path) as measurements:
            for record, folder in measurements:
                record.tags["rbptrack.imported"] = f"bundle: {path.name}"
                importer.add(record, partial(_as_it_is, folder))
    elif path.suffix in (".csv", ".parquet"):
        for record in list(tables.read_table(path, tables.Names.of(conf_folder()))):
            importer.add(record, lambda empty: empty)
    else:
        raise BadInput(f"{path}: expected a .zip, .csv or .parquet file, or a folder")
    importer.summarise(path)
    return 0


def _as_it_is(folder: Path, empty: Path) -> Path:
    return folder


class _Importer:
    """Delivers records to a store that lacks them, and counts."""

    def __init__(self, connection: Connection) -> None:
        self._reader, self._writer = Reader(connection), Writer(connection)
        self._imported, self._skipped, self._without_ranks = 0, 0, 0
        self._without_size: list[str] = []

    def add(self, record: Record, artifacts: Callable[[Path], Path]) -> None:
        """Deliver a record, unless it is in the store already.

        Args:
            record: of the measurement.
            artifacts: gives the folder of its artifacts; may fill the empty one that it is called with.

        """
        if self._reader.find(record.fingerprint):
            self._skipped += 1
            return
        with tempfile.TemporaryDirectory() as empty:
            folder = artifacts(Path(empty))
            self._without_ranks += not (folder / "ranks.parquet").exists()
            self._writer.deliver(record, folder)
        self._imported += 1
        if "non_embedding_params" not in record.metrics:
            self._without_size.append(record.params.get("model.repo", record.tags["rbptrack.model"]))

    def summarise(self, path: Path) -> None:
        """Print what was imported, and what the imported measurements lack."""
        skipped = f", {self._skipped} skipped: in the store already" if self._skipped else ""
        say(f"{self._imported} imported from {path}{skipped}")
        if self._without_size:
            listed = ", ".join(dict.fromkeys(self._without_size))
            say(f"without S (non_embedding_params), so that no law in size takes them: {listed}")
        if self._without_ranks:
            say(f"{self._without_ranks} without ranks: analyzers that need them leave these out")


main = OptionsCommand(ImportConfig, USAGE, _import, bare_word="path")
