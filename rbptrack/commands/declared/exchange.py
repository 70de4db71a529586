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
    hub: str = option("hub=FOLDER", "a folder to upload; it must not exist yet", values="files")
    to: str = option(
        "to=wandb", "runs of Weights & Biases: project=NAME, offline=true (files only), out=FOLDER (of the files)"
    )
    project: str = "rbptrack"
    offline: bool = False
    documents: bool = option("documents=true", "a row per document instead of a row per token", False)
    tokens: bool = option(
        "tokens=true", "keep the ids of the tokens, from which the text can be read; they are left out otherwise", False
    )
    filter: FilterConfig = field(default_factory=FilterConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


EXPORT = Command(
    "export",
    "measurements as one file for others",
    "export out=bundle.zip | ranks=csv|parquet out=FILE | hub=FOLDER | to=wandb [FILTERS]",
    """Writes measurements into one file that `rbptrack import` reads into any other store, with the same fingerprints
    and numbers: whoever gets it can analyse them without a model. What is damaged is named and left out; the command
    then ends with 1. With ranks= it writes one table instead, a row per scored token (rank, ln p, entropy, document and
    its id and group) or, with documents=true, per document (tokens, bytes, CE, bits per byte, RBP_k).

    hub=FOLDER writes a folder for the Hugging Face hub: a dataset card (README.md), the measurements as a table, and
    .eval_results for the repositories of models. to=wandb makes a run of Weights & Biases of each measurement; other
    exporters are files in plugins/exporters/.""",
    ExportConfig,
    examples={
        "export out=nano.zip family=nano": "all measurements of one family",
        "export to=wandb project=ranks family=nano": "a run of Weights & Biases each",
        "export ranks=csv documents=true out=documents.csv dataset=stdlib": "CE and RBP_k of every document",
    },
)


@dataclass
class ImportConfig:
    """Options of `import`."""

    path: str = option(values="files")
    scores: str = option("scores=PATH", "scores of tasks in place of measurements", values="files")
    scores_map: str = option(
        "scores_map=FILE.csv", "name,model: which name in the scores is which model here", values="files"
    )
    scores_metric: str = option("scores_metric=NAME", "of a task with several: acc, exact_match, ...")
    sizes: str = option(
        "sizes=FILE.csv", "for a folder or .jsonl: model,non_embedding_params, which their files lack", values="files"
    )
    vocab_size: int = option("vocab_size=N", "for these: |V|, with which their ranks become a rank table", 0)
    dataset: str = option("dataset=NAME", "for a .jsonl: the name of the texts")
    model: str = option(
        "model=NAME", "for a .jsonl: the model's name or hub id, where not the one that its responses name"
    )
    without_s: bool = option("without_s=true", "take measurements without S too, which no law in size takes", False)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


IMPORT = Command(
    "import",
    "measurements of others: bundles, tables, the authors' results",
    "import PATH [dataset=NAME] [sizes=sizes.csv] [vocab_size=N] | scores=PATH",
    """Reads measurements of others into the store. Everything is checked before anything is written: all of it is
    imported, or nothing. What the store holds already is skipped.

    PATH is a bundle.zip that `rbptrack export` wrote: the same fingerprints, the same numbers.

    Or it is a results.csv or .parquet with a row per measurement: model, dataset, non_embedding_params, ce and rbp_<k>,
    and where known family, size, num_tokens, vocab_size, seq_len and <metric>_se.

    Or it is a folder that the paper's authors' code wrote: <dataset>/<org>/<model>/top<k>/metrics.json.

    Or it is a .jsonl of prompt log-probabilities, a response of vLLM (with ranks) or SGLang (CE alone) a line, one
    request a document: dataset=NAME says which texts were sent.

    scores=PATH brings in scores of tasks, for the analyzer proxies: a .csv or .parquet with model, task, score (0 to 1)
    and where known revision and n; results_*.json of lm-evaluation-harness; logs of inspect_ai (.eval, .json);
    .eval_results/*.yaml of a model's repository; or a folder of them.""",
    ImportConfig,
    bare_word="path",
    examples={
        "import nano.zip": "read a bundle",
        "import results.csv": "read a table",
        "import vllm.jsonl dataset=wiki vocab_size=128256 sizes=s.csv": "read what vLLM answered",
        "import scores=results/": "read scores of tasks",
    },
)
