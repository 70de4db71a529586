"""The schema of what Hydra composes: YAML becomes these dataclasses once, in the command (see `config/check.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from omegaconf import MISSING

from rbptrack.base.options import option


class Dtype(Enum):
    """Precision of the weights; logits are compared in float32 whatever it is."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class SequenceRule(Enum):
    """How a document becomes the sequences that forward passes see.

    truncate: its first `seq_len` tokens. slide: sequences of `seq_len` tokens; each repeats the last `context`
    tokens of the one before; every token is scored once. pack: documents joined by the end-of-text token and cut.
    """

    truncate = "truncate"
    slide = "slide"
    pack = "pack"


class Sampling(Enum):
    """How `documents` texts are drawn from a dataset that holds more; both draw the same on every machine.

    stream: a seeded shuffle through a buffer of 10,000 documents; a large dataset is never downloaded whole.
    shuffle: a seeded permutation of all rows, as in the authors' code; downloads the whole dataset.
    """

    stream = "stream"
    shuffle = "shuffle"


class Candidates(Enum):
    """Against which entries a target is ranked: every row of the head, as in the paper; or those of the tokenizer.

    Families whose vocabulary is padded differently (Pythia, Qwen2.5) are then ranked among the same entries.
    """

    vocabulary = "vocabulary"
    tokenizer = "tokenizer"


class Rank(Enum):
    """Which rank the metrics count: the paper's (ties count against the target), or strict (the authors' code)."""

    paper = "paper"
    strict = "strict"


@dataclass
class ModelConfig:
    """One causal language model: a repository of the hub (`repo`) or a local folder (`path`)."""

    family: str = MISSING
    size: str = MISSING
    repo: str = ""
    path: str = ""
    gguf: str = ""  # the file of `repo` or `path` that holds the model, where that is GGUF; its weights are dequantised
    revision: str = "main"
    seed: int = 0  # of training, where a family has several of one size; a name, nothing that rbptrack sets
    training_tokens: float = 0  # D that the weights were trained on; 0: not known
    tokenizer: str = ""  # a repository or folder, where the model's own has none
    pickles: bool = False  # read pickled weights (with torch's weights-only loader) without safetensors
    dtype: Dtype = Dtype.float32
    tf32: bool = False  # round the factors of float32 products to TF32, on CUDA; part of a measurement's identity
    device: str = "auto"
    device_map: str = ""  # auto: spread over several GPUs, memory and disk by accelerate; empty: one device
    max_memory: dict[str, str] = field(default_factory=dict)  # with device_map, such as {0: 20GiB, cpu: 60GiB}
    chat_template: str = ""  # a file, used with dataset.chat; empty: the tokenizer's own
    attention: str = "auto"  # of transformers: eager, sdpa, flash_attention_2, ...; auto: its own choice

    @property
    def name(self) -> str:
        """Family, size, seed and a training checkpoint's revision as one word: `pythia-70m`, `pythia-70m@step1000`."""
        seed = f"seed{self.seed}" if self.seed else ""
        revision = f"@{self.revision}" if self.revision != "main" else ""
        return "-".join(filter(None, (self.family, self.size, seed))) + revision


@dataclass
class DatasetConfig:
    """Documents of one split of a dataset, and how they become sequences.

    A repository of the hub (`repo`), a folder that `datasets` can load (`path`), or local files (`files`); with `repo`,
    `files` are files of the repository.
    """

    name: str = MISSING
    repo: str = ""
    path: str = ""
    files: list[str] = field(default_factory=list)  # names or patterns
    config: str = ""
    split: str = ""  # empty: the only one
    revision: str = "main"
    fields: list[str] = field(default_factory=lambda: ["text"])
    separator: str = "\n"
    chat: bool = False  # send the fields but the last through the model's chat template; score the last, its answer
    id_field: str = ""
    group: str = ""  # field that names a document's source (a site, a book), which bootstraps resample
    head: int = 0  # read only the first rows; 0: all
    where: dict[str, str] = field(default_factory=dict)  # only rows with these values; `meta.name` for a nested field
    longer_than: int = 0  # only documents of more characters
    documents: int = 0  # how many of these to select; 0: all
    sampling: Sampling = Sampling.stream  # how they are drawn
    seed: int = 42  # of the draw
    sequence: SequenceRule = SequenceRule.slide
    seq_len: int = MISSING
    context: int = 1


@dataclass
class KConfig:
    """The k of the metrics rbp_<k>. Not part of a measurement's identity: the ranks hold every k."""

    values: list[int] = MISSING


class Kernel(Enum):
    """How a GPU scores: products and a kernel that reads their logits, one kernel without logits, or plain torch."""

    auto = "auto"  # `fused` where torch cannot multiply half-precision factors into float32, else `reduce`
    reduce = "reduce"
    fused = "fused"
    none = "none"


@dataclass
class EngineConfig:
    """How fast, not what: nothing here may change a number beyond float32 rounding."""

    batch_tokens: int = 0  # tokens of a forward pass; 0: chosen from the device and its free memory
    chunk_tokens: int = 0  # rows of logits that exist at a time, per thread; 0: chosen for the machine, too
    part_tokens: int = 131072  # tokens that are sorted by length and batched together, and saved at the latest
    part_seconds: float = 20.0  # seconds after which the batches that are finished are saved
    threads: int = 0  # 0: torch's own choice
    kernel: Kernel = Kernel.auto  # on CUDA; `bench` says which is faster there
    columns: bool = True  # entropy, top and top_logprob of each token, beside its rank and log-probability


@dataclass
class TrackingConfig:
    """Where runs are kept. An empty uri: MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db."""

    uri: str = option("tracking.uri=URI", "the tracking store; otherwise MLFLOW_TRACKING_URI, else ./mlruns")
    experiment: str = option("tracking.experiment=NAME", "the MLflow experiment; otherwise rbptrack", "rbptrack")
    artifacts: str = ""  # of a new experiment in a database without a server: a folder or bucket that all users reach
    every: float = 10.0  # seconds between two reports of a cell that is being measured


@dataclass
class CellConfig:
    """One cell: one model on one dataset."""

    model: ModelConfig = MISSING
    dataset: DatasetConfig = MISSING
    k: KConfig = MISSING
    reference: ModelConfig | None = None  # whose distribution each token's is compared to, in the same pass
    candidates: Candidates = Candidates.vocabulary
    rank: Rank = Rank.paper
    engine: EngineConfig = field(default_factory=EngineConfig)
    swept: str = ""  # in names of runs and rows: options swept besides model and dataset; a sweep fills it in

    @property
    def title(self) -> str:
        """What people call the cell: `pythia-70m / wiki`, `pythia-70m / wiki, seed=3`."""
        return f"{self.model.name} / {self.dataset.name}" + (f", {self.swept}" if self.swept else "")


class Again(Enum):
    """Finished work to repeat: none, measurements that lack today's columns of ranks, or the analyses."""

    none = "none"
    columns = "columns"
    analyses = "analyses"


class Format(Enum):
    """How figures are drawn beside SVG."""

    svg = "svg"
    png = "png"
    pdf = "pdf"


@dataclass
class SweepConfig:
    """What holds for every cell of a sweep."""

    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    sweep: str = ""  # the sweep's name; empty: made of date and time
    analyzers: list[str] = field(default_factory=lambda: ["*"])
    figures: list[Format] = field(default_factory=lambda: [Format.svg])
    force: bool = False
    again: Again = Again.none
    shards: int | str = "auto"  # tasks that a cell is cut into, auto: by what it costs; changes no number
    plugins: dict[str, list[str]] = field(default_factory=lambda: {"path": []})
    launch: Any = None  # the executor that runs the jobs (`rbptrack.analysis.executors`); None: this process


@dataclass
class Config(SweepConfig, CellConfig):
    """What Hydra composes for each job: a cell, and the settings of its sweep."""


@dataclass
class FilterConfig:
    """Which measurements an analysis reads; every empty list means all.

    Values may be patterns (`pythia*`), and exclusions (`!pythia-12b`).
    """

    family: list[str] = option("family=NAME,...", "only these model families", list, values="family")
    size: list[str] = option("size=SIZE,...", "only these sizes, as they are published: 70m, 1.4b", list, values="size")
    model: list[str] = option("model=NAME,...", "only these models: nano-6k, or nano/6k", list, values="model")
    dataset: list[str] = option("dataset=NAME,...", "only these datasets", list, values="dataset")
    sweep: list[str] = option("sweep=ID,...", "only runs that these sweeps measured or reused", list, values="sweep")


FILTERS = {f.name: f"filter.{f.name}" for f in fields(FilterConfig)}  # as the command line has them: `family=pythia`


@dataclass
class ReadingConfig:
    """What `analyze` and `report` share."""

    filter: FilterConfig = field(default_factory=FilterConfig)
    figures: list[Format] = option(
        "figures=svg,png,pdf",
        "how figures are drawn (default: svg)",
        lambda: [Format.svg],
        values=("svg", "png", "pdf"),
    )
    again: bool = option("again=yes", "recompute even if an identical analysis exists", False)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    plugins: dict[str, list[str]] = option(
        "plugins.path=FOLDER,...", "more folders of plugins", lambda: {"path": []}, values="files"
    )


@dataclass
class AnalyzeConfig(ReadingConfig):
    """One analysis over the tracking store."""

    analyzer: Any = MISSING


@dataclass
class ReportConfig(ReadingConfig):
    """Every analyzer over the tracking store, as one page."""

    analyzers: list[str] = option(
        "analyzers=NAME,...", "only these analyzers (rbptrack plugins lists them)", lambda: ["*"], values="analyzers"
    )
    out: str = option(
        "out=FILE.html", "also write the page to this file, and its tables to the folder FILE-tables", values="files"
    )
    open: bool = option("--open", "show the page in the browser", False)
