"""The dataclasses of the configuration. The config that Hydra composes is converted to them once.

The rules that a type cannot express are in `rbptrack.config.check`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from omegaconf import MISSING


class Dtype(Enum):
    """The precision of the model's weights. Logits are always compared in float32."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class SequenceRule(Enum):
    """The rule by which documents are cut into sequences for the model.

    With `truncate`, the first `seq_len` tokens of each document are one sequence. With `slide`, each document is cut
    into sequences of `seq_len` tokens. A sequence begins with the last `context` tokens of the previous one, which are
    not scored again. With `pack`, the documents are joined with end-of-text tokens and cut into sequences.
    """

    truncate = "truncate"
    slide = "slide"
    pack = "pack"


class Sampling(Enum):
    """The way in which documents are drawn from a larger dataset. A seed draws the same documents on each machine.

    `stream` shuffles through a buffer of 10,000 documents, and does not download the whole dataset. `shuffle` permutes
    all rows, as the code of the paper's authors does, and downloads the whole dataset.
    """

    stream = "stream"
    shuffle = "shuffle"


class Candidates(Enum):
    """The vocabulary entries among which a target is ranked.

    `vocabulary` means all rows of the output head, as in the paper. `tokenizer` means the entries that the tokenizer
    has. The sizes of Pythia and Qwen2.5 pad their vocabularies differently. With `tokenizer`, all sizes of a family
    rank among the same entries.
    """

    vocabulary = "vocabulary"
    tokenizer = "tokenizer"


class Rank(Enum):
    """The definition of rank in the metrics.

    The definitions differ at ties. A tie is another entry with exactly the probability of the target. With `paper`,
    ties are ranked before the target, as in the paper. With `strict`, ties are ranked after the target, as in the code
    of the paper's authors.
    """

    paper = "paper"
    strict = "strict"


class Launch(Enum):
    """The place where a sweep's cells are measured: in this process, on each GPU of this machine, or by SLURM."""

    local = "local"
    gpus = "gpus"
    slurm = "slurm"


def model_name(family: str, size: str, seed: int, checkpoint: str) -> str:
    """Return the name of a model from its labels, such as `pythia-70m-seed2@step1000`."""
    name = "-".join(filter(None, (family, size, f"seed{seed}" if seed else "")))
    return f"{name}@{checkpoint}" if checkpoint else name


@dataclass
class ModelConfig:
    """One causal language model: a repository on the Hugging Face Hub (`repo`) or a local folder (`path`)."""

    family: str = MISSING  # name of a set of models that differ only in size
    size: str = MISSING  # size as published, such as 70m
    repo: str = ""  # repository on the Hub, such as EleutherAI/pythia-70m
    path: str = ""  # local folder, instead of `repo`
    gguf: str = ""  # GGUF file in `repo` or `path` that holds the model; its weights are dequantised
    revision: str = "main"  # branch, tag or commit of `repo`, such as step1000 in families with checkpoints
    seed: int = 0  # training seed, if a family has several models of one size
    checkpoint: str = ""  # name of the checkpoint; empty: `revision`, if that is not main
    training_tokens: float = 0  # D, the number of tokens that the weights were trained on; 0: unknown
    steps: str = ""  # all steps n with a revision step<n>: 0,1,2 or first:last:by; needed for model.revision=step*
    tokenizer: str = ""  # repository or folder of the tokenizer, if it is not the model's own
    pickles: bool = False  # if there are no safetensors, read pickled weights with torch's weights-only loader
    dtype: Dtype = Dtype.float32  # precision of the weights
    device: str = "auto"  # cuda, cuda:1 or cpu; auto: a GPU if there is one
    device_map: str = ""  # auto: accelerate spreads the model over GPUs, memory and disk; empty: one device
    max_memory: dict[str, str] = field(default_factory=dict)  # with device_map: max_memory.0=20GiB max_memory.cpu=60GiB
    chat_template: str = ""  # file with the template for dataset.chat; empty: the tokenizer's own
    server: str = ""  # address of a vLLM server that runs the model, such as http://host:8000; empty: it runs here
    server_name: str = ""  # the server's name for the model, if the server does not say that it is `repo` or `path`
    server_dtype: Dtype | None = None  # precision with which the server was started (--dtype), which it does not say
    attention: str = "auto"  # attention code of transformers, such as eager or sdpa; auto: its default

    @property
    def name(self) -> str:
        """The model's name from family, size, seed and checkpoint, such as `pythia-70m` or `pythia-70m@step1000`."""
        return model_name(self.family, self.size, self.seed, self.checkpoint_label)

    @property
    def checkpoint_label(self) -> str:
        """The name of the checkpoint. It is empty for the final weights."""
        if self.checkpoint:
            return self.checkpoint
        return self.revision if self.revision != "main" else ""


@dataclass
class DatasetConfig:
    """The documents of one split of a dataset, and the rules by which they are cut into sequences.

    The dataset is a repository on the Hub (`repo`), a folder that `datasets` can load (`path`), or local files
    (`files`). If both `repo` and `files` are given, the files are in the repository.
    """

    name: str = MISSING  # name of the dataset
    repo: str = ""  # repository on the Hub, such as wikimedia/wikipedia
    path: str = ""  # local folder that `datasets` can load
    files: list[str] = field(default_factory=list)  # names or patterns of files
    config: str = ""  # configuration of the repository, if it has several
    split: str = ""  # split to read; empty: the only one
    revision: str = "main"  # branch, tag or commit of `repo`
    fields: list[str] = field(default_factory=lambda: ["text"])  # fields that are joined to a document's text
    separator: str = "\n"  # text between two fields
    chat: bool = False  # render the fields with the model's chat template and score the last field, the answer
    id_field: str = ""  # field that holds a document's id
    group: str = ""  # field that holds a document's group (a site, a book); intervals are then computed over groups
    head: int = 0  # number of rows to read, from the beginning; 0: all
    where: dict[str, str] = field(default_factory=dict)  # keep rows with these values of fields, nested: `meta.name`
    longer_than: int = 0  # keep documents with more characters than this
    documents: int = 0  # number of documents to draw; 0: all
    sampling: Sampling = Sampling.stream  # way of drawing documents
    seed: int = 42  # seed for drawing documents
    sequence: SequenceRule = SequenceRule.slide  # rule for cutting documents into sequences
    seq_len: int = MISSING  # tokens of a sequence
    shorten: bool = True  # shorten sequences to a model's maximum; false, or seq_len= in a command: refuse the model
    context: int = 1  # with `slide`, the number of tokens that a sequence repeats from the previous one


@dataclass
class KConfig:
    """The k of the metrics rbp_<k>.

    k is not part of the identity of a measurement, because RBP_k for any k can be computed from the ranks.
    """

    values: list[int] = MISSING  # a list, k=1,5,50, or a name, k=NAME for conf/k/NAME.yaml; by default k=default


@dataclass
class EngineConfig:
    """Settings for speed, memory and servers. They change results by no more than float32 rounding."""

    batch_tokens: int = 0  # tokens of a forward pass; 0: chosen for the device and its free memory
    chunk_tokens: int = 0  # tokens whose logits are in memory at once; 0: chosen for the machine
    threads: int = 0  # threads on a CPU; 0: torch's own choice
    requests: int = 0  # with model.server, requests at once; 0: chosen from the answer times
    timeout: float = 300  # with model.server, seconds after which a request is sent again
    deadline: float = 1800  # with model.server, seconds without an answer after which the measurement ends
    key_variable: str = "VLLM_API_KEY"  # with model.server, environment variable that holds the server's key


@dataclass
class TrackingConfig:
    """The MLflow store that keeps the runs."""

    uri: str = ""  # address, such as http://host:5000; empty: MLFLOW_TRACKING_URI or MLflow's own default
    experiment: str = ""  # NAME for measurements, NAME-reports for reports; empty: MLFLOW_EXPERIMENT_NAME or rbptrack


@dataclass
class LaunchConfig:
    """The place where the cells of a sweep are measured, and its options."""

    kind: Launch = Launch.local  # where the cells are measured
    gpus: list[str] = field(default_factory=list)  # with launch=gpus, ids as in CUDA_VISIBLE_DEVICES; empty: all
    options: dict[str, str] = field(default_factory=dict)  # with launch=slurm, options of sbatch: {partition: gpu}
    show: bool = False  # with launch=slurm, print the script and do not submit it


@dataclass
class PluginsConfig:
    """Further folders of plugins. `plugins/` in the working folder is always searched."""

    path: list[str] = field(default_factory=list)  # folders of plugins


@dataclass
class CellConfig:
    """One cell: one model on one dataset."""

    model: ModelConfig = MISSING
    dataset: DatasetConfig = MISSING
    k: KConfig = MISSING
    reference: ModelConfig | None = None  # second model; its distribution is compared with the model's at each token
    candidates: Candidates = Candidates.vocabulary
    rank: Rank = Rank.paper
    engine: EngineConfig = field(default_factory=EngineConfig)


@dataclass
class Config(CellConfig):
    """The whole config that Hydra composes: one cell, and the settings that all cells of its sweep share."""

    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    sweep: str = ""  # name of the sweep; empty: date and time
    analyzers: list[str] = field(default_factory=lambda: ["*"])  # patterns of the analyzers to run at the sweep's end
    plugins: PluginsConfig = field(default_factory=PluginsConfig)
    force: bool = False  # measure a cell again even if it is measured already
    deliver: bool = True  # log measurements to the store; false: another process logs them
