"""The commands that look closer: plan, list, show, analyze."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from rbptrack.base.options import option
from rbptrack.commands.declaration import Command
from rbptrack.commands.usage import AS_JSON, FILTERS_IN_WORDS
from rbptrack.config.schema import AnalyzeConfig, Config, FilterConfig, TrackingConfig
from rbptrack.console.tables import Format


class PlanFormat(Enum):
    """How `plan` answers."""

    table = "table"
    csv = "csv"
    json = "json"


@dataclass
class PlanOptions:
    """The options of `plan` that no config has."""

    on: str = option("on=h100", "time and memory for a GPU that is not here; on=? lists those known")
    format: PlanFormat = option("format=csv", "all figures in full, as CSV; or json", PlanFormat.table)


PLAN = Command(
    "plan",
    "what a sweep would cost, before it costs anything",
    "plan [on=GPU] [format=table|csv|json] and the words of measure",
    """Says what a sweep would cost, before anything is measured and without weights.

    S and total parameters are counted from the architecture. Documents and tokens are exact where the texts were
    tokenised before, else estimated (~). FLOPs: (2 S + 2 d |V|) per token that the model reads. Memory: weights, one
    sequence's activations and scoring, against what the device has free now. Download: weights that are not cached yet.

    Time: FLOPs over the rate of a matrix product, which is measured now on this machine's device or, with on=, taken
    from a GPU's data sheet. The assumed share stands below the table, with the number of GPUs for each model.
    Loading weights and reading texts is not in it.

    The exit code is 1 if a cell cannot be measured.""",
    PlanOptions,
    Config,
    examples={
        "plan 'model=pythia/*' dataset=wiki,humaneval": "a family on two datasets",
        "plan 'model=qwen2.5/*' dataset=wiki model.dtype=bfloat16 on=h100": "in half precision, on another GPU",
        "plan 'model=nano/*' dataset=stdlib format=csv > plan.csv": "into a file",
    },
)


class ListFormat(Enum):
    """How `list` writes its table."""

    table = "table"
    csv = "csv"
    markdown = "markdown"
    latex = "latex"
    json = "json"


@dataclass
class ListConfig:
    """Options of `list`."""

    filter: FilterConfig = field(default_factory=FilterConfig)
    sort: list[str] = option(
        "sort=COLUMN,...", "sort by these columns; -COLUMN sorts from large to small", list, values="sort"
    )
    columns: list[str] = option(
        "columns=A,B,...",
        "which columns, such as model,dataset,ce,ce_se,rbp_5; all: every one, a block each",
        list,
        values="columns",
    )
    k: list[int] = option("k=1,5,50", "the k of RBP_k to show, instead of 1, 10, 100", list)
    limit: int = option("limit=20", "at most so many measurements; 0: all", 0)
    format: ListFormat = option("format=FORMAT", "table, csv, markdown, latex or json", ListFormat.table)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


LIST = Command(
    "list",
    "measurements as a table, also as CSV, Markdown, LaTeX, JSON",
    "list [FAMILY] [FILTERS] [sort=COLUMN] [columns=A,B,...] [limit=N] [format=FORMAT]",
    f"""Lists the measurements in the tracking store, a row each. {FILTERS_IN_WORDS}

    CSV and JSON hold numbers in full under the columns' own names; the other formats round for reading. A column rbp_K
    that was not logged is computed from the stored ranks. With -q, only the runs' ids are printed.""",
    ListConfig,
    bare_word="family",
    examples={
        "list pythia sort=ce limit=10": "one family, the ten best first",
        "list columns=model,dataset,rbp_1,rbp_1_se format=latex": "a table for a paper",
        "list -q dataset=wiki": "run ids, for a script",
    },
)


@dataclass
class ShowConfig:
    """Options of `show`."""

    run: str = option(values="measurements")
    k: list[int] = option("k=1,5,50", "the k of RBP_k to show; all that were logged, if none is given", list)
    format: Format = option("format=json", AS_JSON, Format.table)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


SHOW = Command(
    "show",
    "one measurement: its numbers, its ranks, its files",
    "show RUN | MODEL/DATASET",
    """Shows one measurement: its numbers with their standard errors (documents resampled), how its tokens' ranks are
    distributed, how it was measured, and where its files are.

    RUN is a run's id or any unique prefix of it; MODEL/DATASET are as `rbptrack list` prints them.""",
    ShowConfig,
    bare_word="run",
    examples={"show nano-6k/stdlib": "by its name", "show 3f2a": "by the beginning of its run's id"},
)


@dataclass
class CompareConfig:
    """Options of `compare`."""

    runs: list[str] = option(values="measurements", default=list)
    k: list[int] = option("k=1,10,100", "the k of RBP_k to compare", list)
    level: float = option("level=0.95", "coverage of the intervals; tests have size 1 - level, corrected", 0.95)
    fail: bool = option("fail=true", "exit with 1 if a corrected difference is significant, for CI", False)
    out: str = option("out=FILE.html", "write a page", values="files")
    format: Format = option("format=json", AS_JSON, Format.table)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


COMPARE = Command(
    "compare",
    "two measurements of the same tokens: did the ranks move?",
    "compare A B [k=1,10,100] [fail=true] [out=FILE.html] [--json]",
    """Compares two measurements of the same tokens, token by token: CE, its rank part and its rest, entropy and RBP_k
    of B minus A with intervals over documents, how many ranks differ, and how often both models rank the same token
    first. Tests are corrected (Holm) over all metrics. Where no difference is significant, it prints the smallest one
    that these texts could have shown.

    A and B are run IDs or MODEL/DATASET, as `rbptrack list` prints them, or bundles of `rbptrack export`, which are
    read in place: BASE.zip alone stands for its measurement of the same model and tokens,
    BASE.zip:MODEL/DATASET for the one that it names.""",
    CompareConfig,
    bare_word="runs",
    examples={
        "compare nano-6k/pydocs nano-15k/pydocs": "two models on the same texts",
        "compare base.zip nano-6k/pydocs fail=true": "in CI: did this checkpoint's ranks move?",
    },
)


@dataclass
class AnalyzeOptions:
    """The options of `analyze` that no config has."""

    format: Format = option("format=json", AS_JSON, Format.table)


ANALYZE = Command(
    "analyze",
    "one analysis, with its options",
    "analyze NAME [analyzer.OPTION=VALUE ...] [FILTERS]",
    f"""Runs an analyzer over the measurements in the tracking store, prints its table and sentences, and logs its
    figures and tables. Nothing is measured. {FILTERS_IN_WORDS}""",
    AnalyzeOptions,
    AnalyzeConfig,
    more={
        "analyzer=NAME,...": "one or more analyzers (listed below)",
        "analyzer.OPTION=VALUE": "an option of the analyzer; rbptrack plugins lists them",
    },
    examples={
        "analyze": "the law in size, of everything that was measured",
        "analyze analyzer.ks=1,10 family=nano": "of one family, with an option",
    },
)
