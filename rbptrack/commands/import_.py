"""`python -m rbptrack import`: bundles, the authors' folders and plain tables into the store; no model, no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rbptrack.commands.runner import OptionsCommand
from rbptrack.commands.usage import STORE_OPTIONS, Help
from rbptrack.config.paths import conf_folder
from rbptrack.config.schema import TrackingConfig
from rbptrack.console import program, say
from rbptrack.errors import BadInput
from rbptrack.exchange import authors, bundle, tables
from rbptrack.exchange.imported import KnownModels
from rbptrack.tracking import Connection, Reader, Writer
from rbptrack.tracking.record import RANKS, Record
from rbptrack.tracking.schema import MeasurementParams, Metric, Tag

HELP = Help(
    "import PATH [sizes=sizes.csv] [vocab_size=N]",
    """Reads measurements of others into the store. What the store holds already is skipped; what a source lacks stays
    missing, and analyzers leave it out.

    PATH is a bundle.zip that `rbptrack export` wrote: the same fingerprints, the same numbers.

    Or it is a results.csv or .parquet with a row per measurement: model, dataset, ce and rbp_<k>, and where known
    family, size, non_embedding_params, num_tokens, vocab_size, seq_len and <metric>_se.

    Or it is a folder that the paper's authors' code wrote: <dataset>/<org>/<model>/top<k>/metrics.json.""",
    {
        "sizes=FILE.csv": "for a folder: model,non_embedding_params, which its files lack",
        "vocab_size=N": "for a folder: |V|, with which ranks.json becomes a rank table",
        **STORE_OPTIONS,
    },
    {"import nano.zip": "read a bundle", "import results.csv": "read a table"},
)


@dataclass
class ImportConfig:
    """Options of the command."""

    path: str = ""
    sizes: str = ""
    vocab_size: int = 0
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


def _import(config: ImportConfig) -> int:
    if not config.path:
        raise BadInput(f"what to import? {program()} {HELP.synopsis}")
    path = Path(config.path).expanduser()
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    importer = _Importer(Connection(config.tracking))
    with tempfile.TemporaryDirectory() as empty:
        for record, folder in _measurements(path, config, Path(empty)):
            importer.add(record, folder)
    importer.summarise(path)
    return 0


def _measurements(path: Path, config: ImportConfig, empty: Path) -> Iterable[tuple[Record, Path]]:
    """The measurements of a source, each with the folder of its artifacts."""
    if path.is_dir():
        sizes = authors.read_sizes(Path(config.sizes).expanduser()) if config.sizes else {}
        models = KnownModels.read(conf_folder())
        return authors.read(path, models, sizes, vocab_size=config.vocab_size, folder=empty)
    if path.suffix == ".zip":
        return bundle.read(path, empty)
    if path.suffix in (".csv", ".parquet"):
        return [(record, empty) for record in tables.read(path, KnownModels.read(conf_folder()))]
    raise BadInput(f"{path}: expected a .zip, .csv or .parquet file, or a folder")


class _Importer:
    """Delivers records to a store that lacks them, and counts."""

    def __init__(self, connection: Connection) -> None:
        self._reader, self._writer = Reader(connection), Writer(connection)
        self._imported, self._skipped, self._without_ranks = 0, 0, 0
        self._without_size: list[str] = []

    def add(self, record: Record, folder: Path) -> None:
        """Deliver a record and the artifacts in its folder, unless it is in the store already."""
        if self._reader.find(record.fingerprint):
            self._skipped += 1
            return
        self._writer.deliver(record, folder)
        self._imported += 1
        self._without_ranks += not (folder / RANKS).exists()
        if Metric.NON_EMBEDDING_PARAMS not in record.metrics:
            self._without_size.append(MeasurementParams.read(record.params).repo or record.tags[Tag.MODEL])

    def summarise(self, path: Path) -> None:
        """Print what was imported, and what the imported measurements lack."""
        skipped = f", {self._skipped} skipped: in the store already" if self._skipped else ""
        say(f"{self._imported} imported from {path}{skipped}")
        if self._without_size:
            listed = ", ".join(dict.fromkeys(self._without_size))
            say(f"without S (non_embedding_params), so that no law in size takes them: {listed}")
        if self._without_ranks:
            say(f"{self._without_ranks} without ranks: analyzers that need them leave these out")


main = OptionsCommand("import", ImportConfig, HELP, _import, bare_word="path")
