"""The commands that extend and exchange: plugins, export, import."""

from __future__ import annotations

from dataclasses import dataclass, field

from rbptrack.base.options import option
from rbptrack.commands.declaration import Command
from rbptrack.commands.usage import AS_JSON
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.console.tables import Format


@dataclass
class PluginsConfig:
    """Options of `plugins`."""

    plugins: dict[str, list[str]] = option(
        "plugins.path=FOLDER,...", "more folders of plugins", lambda: {"path": []}, values="files"
    )
    format: Format = option("format=json", AS_JSON, Format.table)


PLUGINS = Command(
    "plugins",
    "list plugins, their options, and load errors",
    "plugins [plugins.path=FOLDER,...]",
    """Lists every plugin with its source, version, options and what it answers, and says what failed to load and why.

    Plugins come from rbptrack itself, from plugins/ of the folder you work in, from plugins.path, and from installed
    packages (entry point group rbptrack.analyzers). Packages can bring model families and datasets, too (entry point
    group rbptrack.configs).""",
    PluginsConfig,
)


@dataclass
class ExportConfig:
    """Options of `export`."""

    out: str = option("out=FILE", "the file to write, .zip, .csv or .parquet; it must not exist yet", values="files")
    ranks: str = option(
        "ranks=csv", "or parquet: ranks as a table, to join with your own by dataset and id", values=("csv", "parquet")
    )
    to: str = option("to=EXPORTER", "an exporter, with its options; out=FOLDER is where it writes files")
    plugins: dict[str, list[str]] = option(
        "plugins.path=FOLDER,...", "more folders of plugins", lambda: {"path": []}, values="files"
    )
    documents: bool = option("documents=true", "a row per document instead of a row per token", False)
    tokens: bool = option(
        "tokens=true", "keep the ids of the tokens, from which the text can be read; they are left out otherwise", False
    )
    filter: FilterConfig = field(default_factory=FilterConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


EXPORT = Command(
    "export",
    "measurements as one file for others",
    "export out=bundle.zip | ranks=csv|parquet out=FILE | to=EXPORTER [FILTERS]",
    """Writes measurements into one file that `rbptrack import` reads into any other store, with the same fingerprints
    and numbers: its reader can analyse them without a model. Damaged measurements are named and left out; the command
    then ends with 1. With ranks= it writes one table instead, a row per scored token (rank, ln p, entropy, document and
    its id and group) or, with documents=true, per document (tokens, bytes, CE, bits per byte, RBP_k).

    to=EXPORTER hands measurements to another tool, or makes a folder for it; `rbptrack plugins` lists exporters and
    their options.""",
    ExportConfig,
    more={"OPTION=...": "an option of the exporter, such as project=NAME or offline=true"},
    examples={
        "export out=nano.zip family=nano": "all measurements of one family",
        "export ranks=csv documents=true out=documents.csv dataset=stdlib": "CE and RBP_k of every document",
    },
)


@dataclass
class ImportConfig:
    """Options of `import`; those of the importer that takes the file are added to them."""

    path: str = option(values="files")
    use: str = option("use=IMPORTER", "the importer to use, where several take the file")
    without_s: bool = option("without_s=true", "take measurements without S too, which no law in size takes", False)
    plugins: dict[str, list[str]] = option(
        "plugins.path=FOLDER,...", "more folders of plugins", lambda: {"path": []}, values="files"
    )
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


IMPORT = Command(
    "import",
    "measurements of others, and scores of tasks",
    "import PATH [use=IMPORTER] [OPTION=...]",
    """Reads measurements of others, and scores of tasks, into the store. Everything is checked before anything is
    written: all of it is imported, or nothing. What the store holds already is skipped.

    PATH is a bundle.zip that `rbptrack export` wrote: the same fingerprints, the same numbers. Or it is a file or
    folder that an importer takes, such as a table of results; `rbptrack plugins` lists importers and their options.""",
    ImportConfig,
    bare_word="path",
    more={"OPTION=...": "an option of the importer, such as dataset=NAME, sizes=FILE.csv, vocab_size=N or metric=NAME"},
    examples={
        "import nano.zip": "read a bundle",
        "import results.csv": "read a table",
        "import vllm.jsonl dataset=wiki vocab_size=128256 sizes=s.csv": "read what vLLM answered",
        "import results/": "read scores of tasks",
    },
)
