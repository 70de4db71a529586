"""The schema of what Hydra composes: YAML becomes these dataclasses once, in the command, and stays typed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from rbptrack.errors import BadInput

EMBEDDED = Path(__file__).parent / "embedded"


class Dtype(Enum):
    """Precision of the weights; logits are compared in float32 whatever it is."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class SequenceRule(Enum):
    """How a document becomes the sequences that forward passes see.

    truncate: its first `seq_len` tokens. slide: windows that overlap by `context` tokens, so that every token is
    scored once, with at least `context` tokens before it (fewer only at the document's start). pack: documents
    joined by the end-of-text token and cut every `seq_len` tokens.
    """

    truncate = "truncate"
    slide = "slide"
    pack = "pack"


@dataclass
class ModelConfig:
    """One causal language model: a repository of the hub (`repo`) or a local folder (`path`)."""

    family: str = MISSING
    size: str = MISSING
    repo: str = ""
    path: str = ""
    revision: str = "main"
    dtype: Dtype = Dtype.float32
    tf32: bool = False  # round the factors of float32 products to TF32, on CUDA; part of a measurement's identity
    device: str = "auto"
    device_map: str = ""  # auto: spread over several GPUs, memory and disk by accelerate; empty: one device
    max_memory: dict[str, str] = field(default_factory=dict)  # with device_map, such as {0: 20GiB, cpu: 60GiB}
    attention: str = "sdpa"

    @property
    def name(self) -> str:
        """Family and size as one word: `pythia-70m`."""
        return f"{self.family}-{self.size}"


@dataclass
class DatasetConfig:
    """Documents of one split of a dataset, and how they become sequences."""

    name: str = MISSING
    repo: str = ""
    path: str = ""
    config: str = ""
    split: str = MISSING
    revision: str = "main"
    fields: list[str] = field(default_factory=lambda: ["text"])
    separator: str = "\n"
    id_field: str = ""
    documents: int = 0  # how many to select; 0: all
    seed: int = 42  # of the selection
    sequence: SequenceRule = SequenceRule.slide
    seq_len: int = MISSING
    context: int = 1


@dataclass
class KConfig:
    """The k of the metrics rbp_<k>. Not part of a measurement's identity: the ranks hold every k."""

    values: list[int] = MISSING


@dataclass
class EngineConfig:
    """How fast, not what: nothing here may change a number beyond float32 rounding."""

    batch_tokens: int = 0  # tokens of a forward pass; 0: chosen from the device and its free memory
    chunk_tokens: int = 0  # rows of logits that exist at a time, per thread; 0: chosen likewise
    part_tokens: int = 131072  # what is saved at a time
    threads: int = 0  # 0: torch's own choice


@dataclass
class TrackingConfig:
    """Where runs are kept. An empty uri: MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db."""

    uri: str = ""
    experiment: str = "rbptrack"
    artifacts: str = ""  # of a new experiment in a database without a server: a folder or bucket that all users reach
    every: float = 10.0  # seconds between two reports of a cell that is being measured


@dataclass
class Config:
    """One cell: one model on one dataset."""

    model: ModelConfig = MISSING
    dataset: DatasetConfig = MISSING
    k: KConfig = MISSING
    engine: EngineConfig = field(default_factory=EngineConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    sweep: str = ""
    analyzers: list[str] = field(default_factory=lambda: ["*"])
    force: bool = False
    plugins: dict[str, list[str]] = field(default_factory=lambda: {"path": []})


@dataclass
class FilterConfig:
    """Which measurements an analysis reads; every empty list means all. Values may be patterns (`pythia*`)."""

    family: list[str] = field(default_factory=list)
    size: list[str] = field(default_factory=list)
    dataset: list[str] = field(default_factory=list)
    sweep: list[str] = field(default_factory=list)


FILTERS = {key: f"filter.{key}" for key in ("family", "size", "dataset", "sweep")}
"""What the command line may write for each filter: `family=pythia`."""


@dataclass
class AnalyzeConfig:
    """One analysis over the tracking store."""

    analyzer: Any = MISSING
    filter: FilterConfig = field(default_factory=FilterConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    plugins: dict[str, list[str]] = field(default_factory=lambda: {"path": []})


@dataclass
class ReportConfig:
    """Every analyzer over the tracking store, as one page."""

    analyzers: list[str] = field(default_factory=lambda: ["*"])
    out: str = ""  # also write the page to this file
    filter: FilterConfig = field(default_factory=FilterConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    plugins: dict[str, list[str]] = field(default_factory=lambda: {"path": []})


def register() -> None:
    """Make the schema and the resolvers known to Hydra; harmless when called again."""
    store = ConfigStore.instance()
    store.store(name="base_config", node=Config)
    store.store(name="base_analyze", node=AnalyzeConfig)
    store.store(name="base_report", node=ReportConfig)
    OmegaConf.register_new_resolver("embedded", lambda name: str(EMBEDDED / name), replace=True)


def typed(composed: DictConfig) -> Any:
    """The composed config as its dataclass, with the values checked that a type cannot check."""
    try:
        config = OmegaConf.to_object(composed)
    except MissingMandatoryValue as error:
        raise BadInput(f"a value is missing: {error.full_key}; give it as {error.full_key}=...") from error
    except OmegaConfBaseException as error:
        raise BadInput(str(error).strip().splitlines()[0]) from error
    if isinstance(config, Config):
        _check(config)
    return config


def _check(config: Config) -> None:
    model, dataset = config.model, config.dataset
    for what, source in (("model", model), ("dataset", dataset)):
        if bool(source.repo) == bool(source.path):
            raise BadInput(
                f"{what}: give either {what}.repo (a hub id) or {what}.path (a folder); "
                f"got repo={source.repo!r} path={source.path!r}"
            )
    if not config.k.values or min(config.k.values) < 1:
        raise BadInput(f"k must be between 1 and the vocabulary's size; got {config.k.values}")
    if dataset.seq_len < 2:
        raise BadInput(f"dataset.seq_len must be at least 2 (a token and its target); got {dataset.seq_len}")
    if dataset.sequence is SequenceRule.slide and not 1 <= dataset.context < dataset.seq_len:
        raise BadInput(
            f"dataset.context must be between 1 and seq_len - 1 = {dataset.seq_len - 1}; got {dataset.context}"
        )
    if dataset.documents < 0:
        raise BadInput(f"dataset.documents must be 0 (all) or more; got {dataset.documents}")
    if not dataset.fields:
        raise BadInput("dataset.fields names no field to read")
    if model.tf32 and model.dtype is not Dtype.float32:
        raise BadInput(f"model.tf32 rounds float32 products; it does nothing with model.dtype={model.dtype.value}")
    for name, least in (("batch_tokens", 0), ("chunk_tokens", 0), ("part_tokens", 1), ("threads", 0)):
        if getattr(config.engine, name) < least:
            raise BadInput(f"engine.{name} must be at least {least}; got {getattr(config.engine, name)}")


def flat(config: Config) -> dict[str, str]:
    """The config as flat `a.b.c: text` pairs: what a run logs as params."""
    plain = OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)

    def walk(prefix: str, value: Any) -> dict[str, str]:
        if isinstance(value, dict) and value:
            return {k: v for key, inner in value.items() for k, v in walk(f"{prefix}{key}.", inner).items()}
        return {prefix[:-1]: str(value)}

    return walk("", plain)
