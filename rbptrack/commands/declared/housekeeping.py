"""The commands that keep store and machine in order: verify, rm, sync, cache, bench, completion, help."""

from __future__ import annotations

from dataclasses import dataclass, field

from rbptrack.base.options import option
from rbptrack.commands.declaration import Command
from rbptrack.commands.usage import AS_JSON, FILTERS_IN_WORDS
from rbptrack.config.schema import Dtype, EngineConfig, FilterConfig, TrackingConfig
from rbptrack.console.tables import Format


@dataclass
class VerifyConfig:
    """Options of `verify`."""

    read_data: bool = option(
        "read_data=true", "also read every file: checksums, and whether the ranks give CE, RBP_k and histogram", False
    )
    repair: bool = option(
        "repair=true", "mark damaged measurements, so that the next sweep measures them again; nothing else", False
    )
    format: Format = option("format=json", AS_JSON, Format.table)
    filter: FilterConfig = field(default_factory=FilterConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


VERIFY = Command(
    "verify",
    "check the store: files, checksums, numbers, database",
    "verify [FILTERS] [read_data=true] [repair=true]",
    f"""Checks the tracking store: its database, and of every finished measurement that its files are there, that its
    numbers are, and that its fingerprint is the one that its params give. {FILTERS_IN_WORDS}

    Prints a line for everything that is wrong, and ends with 1 if anything is.""",
    VerifyConfig,
    examples={"verify": "after a crash", "verify read_data=true": "a backup, before you rely on it"},
)


@dataclass
class RmConfig:
    """Options of `rm`."""

    runs: list[str] = option(default=list, values="measurements")
    filter: FilterConfig = field(default_factory=FilterConfig)
    yes: bool = option("yes=true", "do not ask; needed without a terminal", False)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


RM = Command(
    "rm",
    "remove measurements from the store",
    "rm RUN|MODEL/DATASET ... | FILTERS [yes=true]",
    f"""Removes measurements: MLflow marks their runs as deleted, and every command here passes them over. Until
    `mlflow gc` erases them, `mlflow runs restore --run-id ID` brings one back. {FILTERS_IN_WORDS}""",
    RmConfig,
    bare_word="runs",
    examples={"rm nano-6k/stdlib": "one measurement", "rm family=nano dataset=stdlib yes=true": "several, in a script"},
)


@dataclass
class SyncConfig:
    """Options of `sync`."""

    moved: bool = option(
        "moved=true", "repair a local store whose folder was moved or renamed: its runs find their artifacts", False
    )
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


SYNC = Command(
    "sync",
    "deliver what waits for a store; repair one that was moved",
    "sync [moved=true]",
    """Delivers the measurements that wait in mlruns/spool because their tracking store was away, each once, and closes
    the runs that a killed process left RUNNING. Every sweep does the same when it starts.""",
    SyncConfig,
)


@dataclass
class CacheConfig:
    """Options of `cache`."""

    action: str = option(values=("clear",))


CACHE = Command(
    "cache",
    "show or clear the text and token cache",
    "cache [clear]",
    """Shows where the cache is and how large; clear removes what rbptrack has put there, and nothing else.

    It holds selected texts of hub datasets (documents), tokenised corpora (tokens), the commits that revisions stood
    for, and files from tracking servers (artifacts; at most RBPTRACK_CACHE_BYTES, or else 5 GB), in the folder
    RBPTRACK_CACHE, or else in the system's place for caches. Everything in it is made again when it is needed. Weights
    are in the hub's own cache: hf cache ls, hf cache rm.""",
    CacheConfig,
    bare_word="action",
    examples={"cache": "where it is, and how large", "cache clear": "remove it"},
)


@dataclass
class BenchConfig:
    """Options of `bench`."""

    model: str = option("model=NAME,...", "pythia-14m,pythia-70m", "pythia-14m,pythia-70m", values="model configs")
    dataset: str = option("dataset=NAME", "what a configured model reads", values="dataset configs")
    tokens: int = option("tokens=16384", "how many tokens", 16384)
    seq_len: int = option("seq_len=512", "tokens that the model sees together", 512)
    vocabulary: int = option("vocabulary=N", "another vocabulary than the shape's", 0)
    rounds: int = option("rounds=4", "how often each is timed", 4)
    dtype: Dtype = option("dtype=float32", "or bfloat16, float16", Dtype.float32)
    tf32: bool = option("tf32=false", "round the factors of products, on CUDA", False)
    device: str = option("device=auto", "or cpu, cuda:1", "auto")
    engine: EngineConfig = field(default_factory=EngineConfig)
    out: str = option("out=FILE.json", "write the figures, too", values="files")


BENCH = Command(
    "bench",
    "how fast measuring is here",
    "bench [model=...] [OPTIONS]",
    """Times, in one process and in turn, the bare forward pass (model(x).logits), a measurement of the same batches,
    and a large matrix product, which gives the arithmetic limit: medians over rounds, by the wall clock and in seconds
    of the processor. On a busy machine trust the latter.

    A model with a slash is a configured one and needs a dataset. Any other is a published shape with random weights, on
    random documents of 16 to seq_len tokens, without a network; model=? lists the shapes.""",
    BenchConfig,
    more={"engine.threads=1": "threads of both; and the other options of engine"},
    examples={
        "bench": "two published shapes",
        "bench model=nano/2m dataset=stdlib": "a configured model on a dataset",
    },
)


@dataclass
class CompletionConfig:
    """Options of `completion`."""

    shell: str = option(values=("bash", "zsh"))


COMPLETION = Command(
    "completion",
    "Tab completion for bash and zsh",
    "completion bash|zsh",
    """Prints the script with which bash or zsh completes commands, models, datasets, options and their values when Tab
    is pressed. The shell's start-up file loads it, by the line that the examples show. It completes the command
    rbptrack, not python -m rbptrack.""",
    CompletionConfig,
    bare_word="shell",
    examples={
        "completion bash": 'in ~/.bashrc: eval "$(rbptrack completion bash)"',
        "completion zsh": 'in ~/.zshrc: eval "$(rbptrack completion zsh)"',
    },
)


@dataclass
class HelpConfig:
    """Options of `help`."""

    command: str = option(values="commands")


HELP = Command(
    "help",
    "this page, or what a command does",
    "help [COMMAND]",
    "Shows every command in a line each, or what a command does, its options and examples.",
    HelpConfig,
    bare_word="command",
)
