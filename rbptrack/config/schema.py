"""What Hydra composes becomes these dataclasses once; `rbptrack.config.check` tests what a type cannot say."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from omegaconf import MISSING


class Dtype(Enum):
    """Precision of the weights; logits are compared in float32 whatever it is."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class SequenceRule(Enum):
    """How a document becomes the sequences that forward passes see.

    truncate: its first `seq_len` tokens. slide: sequences of `seq_len` tokens; each repeats the last `context` of
    the one before, and every token is scored once. pack: documents joined by the end-of-text token and cut.
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
    """Against which entries a target is ranked: every row of the head, as in the paper, or those of the tokenizer.

    Families whose vocabulary is padded differently (Pythia, Qwen2.5) are then ranked among the same entries.
    """

    vocabulary = "vocabulary"
    tokenizer = "tokenizer"


class Rank(Enum):
    """Which rank the metrics count: the paper's (ties count against the target), or strict (the authors' code)."""

    paper = "paper"
    strict = "strict"


class Launch(Enum):
    """Where a sweep's cells are measured: in this process, on each GPU of this machine, or by SLURM."""

    local = "local"
    gpus = "gpus"
    slurm = "slurm"


@dataclass
class ModelConfig:
    """One causal language model: a repository of the hub (`repo`) or a local folder (`path`)."""

    family: str = MISSING  # models that differ in size only; part of names and of a measurement's identity
    size: str = MISSING  # as published: 70m
    repo: str = ""  # of the hub: EleutherAI/pythia-70m
    path: str = ""  # a local folder in its place
    gguf: str = ""  # the file of `repo` or `path` that holds the model, where that is GGUF; its weights are dequantised
    revision: str = "main"  # a branch, tag or commit of `repo`; step1000 of families with checkpoints
    seed: int = 0  # of training, where a family has several of one size; a name, nothing that rbptrack sets
    training_tokens: float = 0  # D that the weights were trained on; 0: not known
    steps: str = ""  # of training, kept as revisions step<n>: 0,1,2 and first:last:by; revision=step* chooses from them
    tokenizer: str = ""  # a repository or folder, where the model's own has none
    pickles: bool = False  # read pickled weights (with torch's weights-only loader) without safetensors
    dtype: Dtype = Dtype.float32
    tf32: bool = False  # round the factors of float32 products to TF32, on CUDA; part of a measurement's identity
    device: str = "auto"  # cuda, cuda:1, cpu; auto: a GPU if there is one
    device_map: str = ""  # auto: spread over several GPUs, memory and disk by accelerate; empty: one device
    max_memory: dict[str, str] = field(default_factory=dict)  # with device_map: max_memory.0=20GiB max_memory.cpu=60GiB
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

    name: str = MISSING  # part of names and of a measurement's identity
    repo: str = ""  # of the hub: wikimedia/wikipedia
    path: str = ""  # a folder that `datasets` can load
    files: list[str] = field(default_factory=list)  # names or patterns
    config: str = ""  # of the repository, where it has several
    split: str = ""  # empty: the only one
    revision: str = "main"  # a branch, tag or commit of `repo`
    fields: list[str] = field(default_factory=lambda: ["text"])  # joined to a document's text
    separator: str = "\n"  # between them
    chat: bool = False  # send the fields but the last through the model's chat template; score the last, its answer
    id_field: str = ""  # field that names a document
    group: str = ""  # field that names a document's source (a site, a book), the unit of every interval
    head: int = 0  # read only the first rows; 0: all
    where: dict[str, str] = field(default_factory=dict)  # only rows with these values; `meta.name` for a nested field
    longer_than: int = 0  # only documents of more characters
    documents: int = 0  # how many of these to select; 0: all
    sampling: Sampling = Sampling.stream  # how they are drawn
    seed: int = 42  # of the draw
    sequence: SequenceRule = SequenceRule.slide
    seq_len: int = MISSING  # tokens of a sequence
    shorten: bool = True  # shorter sequences for a model that reads fewer tokens; false, or seq_len= typed: refuse it
    context: int = 1  # tokens that a sequence repeats of the one before, with `slide`


@dataclass
class KConfig:
    """The k of the metrics rbp_<k>. Not part of a measurement's identity: the ranks hold every k."""

    values: list[int] = MISSING


@dataclass
class EngineConfig:
    """How fast, not what: nothing here may change a number beyond float32 rounding."""

    batch_tokens: int = 0  # tokens of a forward pass; 0: chosen from the device and its free memory
    chunk_tokens: int = 0  # rows of logits that exist at a time; 0: chosen for the machine, too
    threads: int = 0  # 0: torch's own choice


@dataclass
class TrackingConfig:
    """Where runs are kept. An empty uri: MLFLOW_TRACKING_URI, else MLflow's own default in the working folder."""

    uri: str = ""  # sqlite:///runs.db, http://host:5000, ...
    experiment: str = ""  # of measurements; empty: MLFLOW_EXPERIMENT_NAME, else rbptrack. Reports go to NAME-reports


@dataclass
class LaunchConfig:
    """Where the cells of a sweep are measured."""

    kind: Launch = Launch.local
    gpus: list[str] = field(default_factory=list)  # of CUDA_VISIBLE_DEVICES, with launch=gpus; empty: all of them
    options: dict[str, str] = field(default_factory=dict)  # sbatch's own, with launch=slurm: {partition: gpu}
    show: bool = False  # print the script of launch=slurm and submit nothing


@dataclass
class PluginsConfig:
    """Where plugins are found, beside those of the working folder's plugins/."""

    path: list[str] = field(default_factory=list)  # folders


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


@dataclass
class Config(CellConfig):
    """What Hydra composes: a cell, and the settings of its sweep, which every cell of it repeats."""

    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    sweep: str = ""  # the sweep's name; empty: made of date and time
    analyzers: list[str] = field(default_factory=lambda: ["*"])  # run at the sweep's end; patterns
    plugins: PluginsConfig = field(default_factory=PluginsConfig)
    force: bool = False  # measure again what is measured already
    deliver: bool = True  # log to the store; false: leave finished folders for the process that launched this one
