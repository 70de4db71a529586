"""The commands to start with: demo, measure, report, ui."""

from __future__ import annotations

from dataclasses import dataclass, field

from rbptrack.base.options import option
from rbptrack.commands.declaration import Command, NoOptions
from rbptrack.commands.usage import FILTERS_IN_WORDS
from rbptrack.config.schema import Config, FilterConfig, ReportConfig, TrackingConfig

DEMO = Command(
    "demo",
    "seven embedded models on two embedded corpora, and their law",
    "demo [KEY=VALUE ...]",
    """Measures the seven embedded models on the two embedded corpora, fits their laws and writes a report. It needs
    no network, and takes two to three minutes on two cores. It is short for: model=nano/* dataset=stdlib,pydocs

    It takes every option of measure.""",
    NoOptions,
    Config,
    examples={"demo": "seven models, two corpora, one law", "demo dataset=pydocs": "on one corpus"},
)

MEASURE = Command(
    "measure",
    "measure models on datasets and fit their laws",
    "[measure] [-m] model=NAME,... dataset=NAME,... [k=1,10,100] [KEY=VALUE ...]",
    """Measures every model on every dataset, logs each measurement to the tracking store, and fits the laws.

    Models and datasets take lists, patterns (* stays inside a folder, ** crosses folders) and, after !, names to leave
    out: 'model=pythia/*,!pythia/12b'. bash takes patterns without quotes; zsh needs them, and ! does in both. Cells
    measured before are skipped, and a new k is computed from its stored ranks.""",
    NoOptions,
    Config,
    more={
        "model=NAME,...": "one or more models, or a pattern (listed below)",
        "dataset=NAME,...": "one or more datasets, or a pattern (listed below)",
        "k=1,10,100": "the k of RBP_k, or a list by its name: default, paper",
        "protocol=paper": "the procedure of the paper's authors, for every dataset",
        "launch=NAME": "measure on this machine's GPUs, or on a cluster: an executor (rbptrack plugins lists them)",
        "launch.OPTION=VALUE": "an option of the executor, such as launch.cpus=4",
        "launch.gpus=auto": "give each job the GPUs that its model needs",
        "shards=8|auto": "cut each cell into so many tasks, or by what it costs",
        "model.device_map=auto": "spread a model's layers over the GPUs of its job",
        "reference=MODEL": "compare to a second model in the same pass: KL, acceptance, its first token's rank",
        "analyzers=NAME,...": "what analyses a sweep at its end; all by default, [] for none",
        "figures=svg,png,pdf": "how the analyses' figures are drawn; svg alone by default",
        "force=true": "measure again, though results exist",
        "again=columns": "measure again only runs whose rank tables lack newer columns",
        "again=analyses": "recompute even if an identical analysis exists",
        "model.dtype=bfloat16": "and every other key of a config: --cfg job shows all, with their values",
        "--config-dir FOLDER": "more configs, beside conf/ of the working folder",
    },
    examples={
        "": "one small embedded model on an embedded corpus",
        "'model=nano/*' dataset=stdlib,pydocs": "a family on two corpora, and its law",
        "'model=pythia/*' dataset=wiki,humaneval k=1,5,50": "models and datasets of the hub; the k to show",
        "model=hf model.repo=org/name dataset=wiki": "any model of the hub",
    },
)

REPORT = Command(
    "report",
    "all analyses of the measurements, as one page",
    "report [FILTERS] [analyzers=NAME,...] [out=FILE.html|FILE.pdf] [--open]",
    f"""Runs every analyzer over the measurements in the tracking store and writes one page, report.html, into the
    store. Nothing is measured. {FILTERS_IN_WORDS}""",
    NoOptions,
    ReportConfig,
    examples={
        "report": "everything that was measured",
        "report family=nano,pythia dataset=wiki": "two families on one dataset",
        "report out=laws.html": "into a file of yours",
        "report out=laws.pdf": "the same, printed by Chromium where it is installed",
    },
)


@dataclass
class UiConfig:
    """Options of `ui`."""

    port: int = option(
        "port=5000", "where the server listens; where the port is taken, the next free one is used", 5000
    )
    host: str = option("host=127.0.0.1", "the address it listens on", "127.0.0.1")
    browser: bool = option(
        "browser=no",
        "open no browser; over SSH, in CI and without a display none is opened anyway",
        True,
        values=("yes", "no"),
    )
    filter: FilterConfig = field(default_factory=FilterConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


UI = Command(
    "ui",
    "compare measurements in MLflow, in the browser",
    "ui [FILTERS] [port=5000] [host=127.0.0.1] [browser=no]",
    """Starts MLflow's server on the tracking store, waits until it answers, and prints a link to the measurements'
    charts. Ctrl-C stops the server.""",
    UiConfig,
    examples={"ui": "every measurement", "ui 'family=pythia*' dataset=wiki": "some of them"},
)
