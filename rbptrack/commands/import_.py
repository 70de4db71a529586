"""`python -m rbptrack import`: bundles, the authors' folders and plain tables into the store; no model, no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rbptrack.commands import options
from rbptrack.config.paths import conf_folder
from rbptrack.config.schema import TrackingConfig
from rbptrack.console import say
from rbptrack.errors import BadInput
from rbptrack.exchange import bundle
from rbptrack.exchange import tables as foreign
from rbptrack.tracking import Connection, Reader, Writer
from rbptrack.tracking.record import Record

USAGE = """python -m rbptrack import PATH [sizes=sizes.csv] [vocab_size=N] [tracking.uri=...]

PATH is one of
  bundle.zip             what `python -m rbptrack export` wrote: same fingerprints, same numbers
  results.csv, .parquet  a row per measurement: model, dataset, ce and rbp_<k>, and where known family, size,
                         non_embedding_params, num_tokens, vocab_size, seq_len, <metric>_se
  FOLDER                 what the paper's authors' code writes: <dataset>/<org>/<model>/top<k>/metrics.json;
                         sizes: a CSV with model,non_embedding_params, which those files lack;
                         vocab_size: |V|, with which ranks.json becomes a rank table
What is in the store already is skipped. What a source lacks stays missing, and analyzers leave it out."""


@dataclass
class ImportConfig:
    """Options of the command."""

    path: str = ""
    sizes: str = ""
    vocab_size: int = 0
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


def main(arguments: list[str]) -> int:
    """Import; returns the exit code."""
    words = [a if "=" in a or a.startswith("-") else f"path={a}" for a in arguments]
    config = options.parse(ImportConfig, words, usage=USAGE)
    if config is None:
        return 0
    if not config.path:
        raise BadInput(f"what to import?\n{USAGE.splitlines()[0]}")
    path = Path(config.path).expanduser()
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    take = _Taking(Connection(config.tracking))
    if path.is_dir():
        _import_authors(path, config, take)
    elif path.suffix == ".zip":
        with bundle.opened(path) as measurements:
            for record, folder in measurements:
                record.tags["rbptrack.imported"] = f"bundle: {path.name}"
                take(record, partial(_as_it_is, folder))
    elif path.suffix in (".csv", ".parquet"):
        rows = list(
            foreign.read_table(path, foreign.Names.of(conf_folder()))
        )  # all of it is right before any is logged
        for record in rows:
            take(record, lambda empty: empty)
    else:
        raise BadInput(f"{path}: expected a .zip, .csv or .parquet file, or a folder")
    take.tell(path)
    return 0


def _import_authors(path: Path, config: ImportConfig, take: _Taking) -> None:
    sizes = foreign.read_sizes(Path(config.sizes).expanduser()) if config.sizes else {}
    names = foreign.Names.of(conf_folder())
    for record, ranks in list(foreign.read_authors(path, names, sizes, vocab_size=config.vocab_size)):
        take(record, partial(foreign.complete, record, ranks))


def _as_it_is(folder: Path, empty: Path) -> Path:
    return folder


class _Taking:
    """Delivers records to the store, and counts."""

    def __init__(self, connection: Connection) -> None:
        self._reader, self._writer, self.taken, self.there = Reader(connection), Writer(connection), 0, 0
        self._without_size: list[str] = []
        self._without_ranks = 0

    def __call__(self, record: Record, lay: Callable[[Path], Path]) -> None:
        if self._reader.find(record.fingerprint):
            self.there += 1
            return
        with tempfile.TemporaryDirectory() as name:
            folder = lay(Path(name))
            self._without_ranks += not (folder / "ranks.parquet").exists()
            self._writer.deliver(record, folder)
        self.taken += 1
        if "non_embedding_params" not in record.metrics:
            self._without_size.append(record.params.get("model.repo", record.tags["rbptrack.model"]))

    def tell(self, path: Path) -> None:
        say(
            f"{self.taken} imported from {path}"
            + (f", {self.there} skipped: in the store already" if self.there else "")
        )
        if self._without_size:
            listed = ", ".join(dict.fromkeys(self._without_size))
            say(f"without S (non_embedding_params), so that no law in size takes them: {listed}")
        if self._without_ranks:
            say(f"{self._without_ranks} without ranks: analyzers that need them leave these out")
