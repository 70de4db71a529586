"""What a store's runs hold: the name of every tag, param and metric that is written and read again.

Writers, readers, imports, the Python API, the UI's view and the synthetic store take the names from here, so that what
one of them writes every other one finds.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from typing import Annotated, Any, Self, get_args, get_type_hints

from rbptrack.analysis.display import HEADLINE_KS
from rbptrack.base import __version__
from rbptrack.base.errors import BadInput
from rbptrack.base.names import metric_part
from rbptrack.ranks import is_rbp_column, metric_label, rbp_name, se_name
from rbptrack.sources.fingerprint import SCORING_VERSION

_LONGEST_TAG = 8000  # characters that MLflow takes


class Kind:
    """Values of the tag `rbptrack.kind`."""

    MEASUREMENT = "measurement"
    SWEEP = "sweep"
    REPORT = "report"
    ANALYSIS = "analysis"
    TRAINING = "training"
    SCORES = "scores"


class Tag:
    """Names of tags."""

    PREFIX = "rbptrack."
    KIND = "rbptrack.kind"
    VERSION = "rbptrack.version"
    FINGERPRINT = "rbptrack.fingerprint"
    FAMILY = "rbptrack.family"
    SIZE = "rbptrack.size"
    MODEL = "rbptrack.model"
    DATASET = "rbptrack.dataset"
    SWEEP = "rbptrack.sweep"
    SWEPT = "rbptrack.swept"  # what was swept besides model and dataset: `seed=3`
    NOTES = "rbptrack.notes"  # what the engine changed on the way
    RECORD = "rbptrack.record"  # the id of a record, by which it is delivered once
    FORCED = "rbptrack.forced"  # measured again although it had been measured
    IMPORTED = "rbptrack.imported"  # where an imported measurement came from
    RANKS = "rbptrack.ranks"  # "none" where an imported measurement came without a rank table
    TOKENS = "rbptrack.tokens"  # "left out" where a bundle's rank table lacks the ids of the target tokens
    GROUPS = "rbptrack.groups"  # by which field documents are grouped; what bootstraps resample
    CHANGED = "rbptrack.changed"  # whether rbptrack's files differ from its commit
    ANALYZER = "rbptrack.analyzer"
    SOURCES = "rbptrack.sources"  # run ids that an analysis read
    PROCESS = "rbptrack.process"  # which process works on the run
    HEARTBEAT = "rbptrack.heartbeat"  # when that process last said that it lives
    CLAIM = "rbptrack.claim"
    RESUMED = "rbptrack.resumed"
    STORE = "rbptrack.store"  # of a record in the outbox: where it belongs
    EXPERIMENT = "rbptrack.experiment"  # likewise
    LATER = "rbptrack.later/"  # prefix of a param whose value changed after it was first logged
    DAMAGED = "rbptrack.damaged"  # what `verify` found wrong with a measurement that it marked
    NOTE = "mlflow.note.content"


WITHOUT = "none"
"""The value of the tag `rbptrack.ranks` where an imported measurement came without a rank table."""

OF_THE_PROCESS = (Tag.PROCESS, Tag.HEARTBEAT, Tag.CLAIM, Tag.RESUMED, Tag.DAMAGED)
"""Tags that say how a measurement was made rather than what it is: a copy of it does not take them along."""


FILTERED = {"family": Tag.FAMILY, "size": Tag.SIZE, "dataset": Tag.DATASET}
"""The filters that are about a measurement's tag."""


@dataclass(frozen=True)
class MeasurementTags:
    """What identifies a measurement in the store.

    Attributes:
        fingerprint: hash of everything that determines its numbers.
        family: the model's family.
        size: the size label as published.
        model: family and size joined.
        dataset: the dataset's name.
        sweep: the sweep that measured it; empty if none did.
        swept: what distinguishes it there, besides model and dataset: `seed=3`.

    """

    fingerprint: str
    family: str
    size: str
    model: str
    dataset: str
    sweep: str
    swept: str = ""

    @property
    def title(self) -> str:
        """The run's name: `pythia-70m / wiki`, `pythia-70m / wiki, seed=3`."""
        return f"{self.model} / {self.dataset}" + (f", {self.swept}" if self.swept else "")

    def tags(self) -> dict[str, str]:
        """The tags of the measurement's run."""
        return {
            Tag.KIND: Kind.MEASUREMENT,
            Tag.VERSION: __version__,
            Tag.FINGERPRINT: self.fingerprint,
            Tag.FAMILY: self.family,
            Tag.SIZE: self.size,
            Tag.MODEL: self.model,
            Tag.DATASET: self.dataset,
            Tag.SWEEP: self.sweep,
        } | ({Tag.SWEPT: self.swept} if self.swept else {})


def sweep_tags(sweep: str, command: str) -> dict[str, str]:
    """The tags of a sweep's own run; the command line is its description in the UI."""
    return {Tag.KIND: Kind.SWEEP, Tag.SWEEP: sweep, Tag.NOTE: f"`{command}`"}


def analysis_tags(analyzer: str, sweep: str, run_ids: Sequence[str] = ()) -> dict[str, str]:
    """The tags of an analysis's run; run_ids are the measurements that it read."""
    tags = {Tag.KIND: Kind.ANALYSIS, Tag.ANALYZER: analyzer, Tag.SWEEP: sweep}
    return tags | ({Tag.SOURCES: ",".join(run_ids)[:_LONGEST_TAG]} if run_ids else {})


def report_tags(sweep: str) -> dict[str, str]:
    """The tags of a report's run; sweep is empty where it covers more than one."""
    return {Tag.KIND: Kind.REPORT, Tag.SWEEP: sweep}


def scores_tags(content: str) -> dict[str, str]:
    """The tags of a run that keeps scores of tasks; content is their hash."""
    return {Tag.KIND: Kind.SCORES, Tag.RECORD: content}


def training_tags(family: str, dataset: str) -> dict[str, str]:
    """The tags of a run that follows a model while it is trained."""
    return {Tag.KIND: Kind.TRAINING, Tag.DATASET: dataset, Tag.FAMILY: family}


@dataclass(frozen=True, kw_only=True)
class ResolvedParams:
    """Params that are known once model and texts have been read. None: not known, as of an imported measurement.

    Attributes:
        commit: of the model: `id@commit`, or a hash of its files.
        non_embedding_params: S.
        total_params: every parameter, tied ones once.
        vocab_size: |V|.
        device: where the model was.
        split_difference: how far logits of a model that several GPUs share are from those of the whole model.
        dataset_commit: of the dataset: `id@commit`, or a hash of its files.
        texts_hash: SHA-256 over the texts.
        num_documents: how many texts were read.
        prefix: ids that stand before every window, where they are several.

    """

    commit: Annotated[str | None, "model.commit"]
    non_embedding_params: Annotated[int | None, "model.non_embedding_params"]
    total_params: Annotated[int | None, "model.total_params"]
    vocab_size: Annotated[int | None, "model.vocab_size"]
    device: Annotated[str | None, "model.device_used"]
    split_difference: Annotated[str | None, "model.split_difference"]
    dataset_commit: Annotated[str | None, "dataset.commit"]
    texts_hash: Annotated[str | None, "dataset.texts_hash"]
    num_documents: Annotated[int | None, "dataset.num_documents"]
    prefix: Annotated[str | None, "dataset.prefix"]

    def params(self) -> dict[str, str]:
        """What is known, by the names of params."""
        values = {name: getattr(self, attribute) for attribute, name in param_names(type(self)).items()}
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def unknown(cls) -> Self:
        """Params of which nothing is known."""
        return cls.read({})

    @classmethod
    def read(cls, params: Mapping[str, str]) -> Self:
        """Read what `params` wrote; None where a param is missing or empty.

        Raises:
            BadInput: a param is not what its name says; names it.

        """
        return cls(**{a: _read(name, params.get(name, ""), kind) for a, (name, kind) in _DECLARED[cls].items()})


@dataclass(frozen=True, kw_only=True)
class MeasurementParams(ResolvedParams):
    """All params that say which measurements may be compared; those beside `ResolvedParams` stand in a cell's config.

    Attributes:
        repo: the model's repository on the hub.
        revision: the model's revision as it was asked for; sets a training's checkpoints apart.
        training_tokens: tokens that the weights were trained on; 0 where it is not known.
        dtype: precision of the weights.
        tf32: whether float32 products round their factors to TF32.
        dataset_repo: the dataset's repository on the hub.
        sequence: the rule by which documents become sequences.
        seq_len: tokens that the model sees together.
        context: with `slide`, the tokens that each window repeats of the one before.
        candidates: against which entries a target is ranked.
        rank: which rank the metrics count.

    """

    repo: Annotated[str | None, "model.repo"]
    revision: Annotated[str | None, "model.revision"]
    training_tokens: Annotated[float | None, "model.training_tokens"]
    dtype: Annotated[str | None, "model.dtype"]
    tf32: Annotated[bool | None, "model.tf32"]
    dataset_repo: Annotated[str | None, "dataset.repo"]
    sequence: Annotated[str | None, "dataset.sequence"]
    seq_len: Annotated[int | None, "dataset.seq_len"]
    context: Annotated[int | None, "dataset.context"]
    candidates: Annotated[str | None, "candidates"]
    rank: Annotated[str | None, "rank"]


def _text(text: str) -> str | None:
    return text or None


def _integer(text: str) -> int | None:
    """A whole number; earlier imports of a table with an empty cell wrote 512.0."""
    if not text or text.isdecimal():
        return int(text) if text else None
    if not float(text).is_integer():
        raise ValueError(text)
    return int(float(text))


def _number(text: str) -> float | None:
    return float(text) if text else None


def _read(name: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except (ValueError, TypeError, OverflowError) as error:
        what = "a whole number" if kind is _integer else "a number"
        raise BadInput(f"the param {name} must be {what}; got {str(text)[:60]!r}") from error


def _flag(text: str) -> bool | None:
    return text == "True" if text else None


_READERS = {str: _text, int: _integer, float: _number, bool: _flag}


def _declared(cls: type[ResolvedParams]) -> dict[str, tuple[str, Any]]:
    """Attribute -> the param's name, and what reads its text."""
    hints = get_type_hints(cls, include_extras=True)
    found = {}
    for field in fields(cls):
        annotated, name = get_args(hints[field.name])
        found[field.name] = name, _READERS[get_args(annotated)[0]]
    return found


_DECLARED = {cls: _declared(cls) for cls in (ResolvedParams, MeasurementParams)}


def param_names(cls: type[ResolvedParams] = MeasurementParams) -> dict[str, str]:
    """Attribute -> the param's name: `non_embedding_params` -> `model.non_embedding_params`."""
    return {attribute: name for attribute, (name, _) in _DECLARED[cls].items()}


VERSIONS = "versions."
"""The prefix of the params that name the software; `versions.scoring` is raised when a change moves any number."""


def software_versions() -> dict[str, str]:
    """Params that name the software that measures now."""
    packages = {name: version(name) for name in ("torch", "transformers")}
    found = {"rbptrack": __version__, "python": platform.python_version(), **packages, "scoring": SCORING_VERSION}
    return {f"{VERSIONS}{name}": str(value) for name, value in found.items()}


PRIVATE_PARAMS = ("tracking.", "plugins.", "model.path", "dataset.path")
"""Beginnings of params that say where things lie on one machine; a bundle for others leaves them out."""


class Metric:
    """Names of metrics; those of RBP_k are made by `rbptrack.ranks.rbp_name`."""

    CE = "ce"
    BITS_PER_BYTE = "bits_per_byte"
    NUM_TOKENS = "num_tokens"
    TIE_RATE = "tie_rate"
    NON_EMBEDDING_PARAMS = "non_embedding_params"
    LOG10_NON_EMBEDDING_PARAMS = "log10_non_embedding_params"  # the UI's scatter charts have no log axis
    LAW = "law/"  # prefix: the law's coordinates, as the UI's charts have no log axis for points
    LAW_SIZE = "law/log10 S"
    TOKENS_PER_SECOND = "tokens_per_second"
    PEAK_MEMORY_BYTES = "peak_memory_bytes"
    BATCH_TOKENS = "batch_tokens"
    CHUNK_TOKENS = "chunk_tokens"
    OUT_OF_MEMORY_RECOVERIES = "out_of_memory_recoveries"
    RBP_CURVE = "rbp_curve"  # its step is k
    NEG_LOG_RBP_CURVE = "neg_log_rbp_curve"
    PROGRESS = "progress/"  # prefix: while a cell is measured
    SYSTEM = "system/"  # prefix: of the machine meanwhile


def law_name(dataset: str, metric: str) -> str:
    """The metric of log10 of CE, or of -ln RBP_k, of the runs on one dataset: a chart of it shows that dataset only."""
    return f"{Metric.LAW}{metric_part(dataset)}/log10 {'CE' if metric == Metric.CE else f'-ln {metric_label(metric)}'}"


SEQUENCE_SUCCESS = "sequence_success_"
"""Beginning of metrics that imports have: shares of sequences that succeed."""


def sequence_success_name(k: int, n: int) -> str:
    """The metric of the share of runs of n scored tokens that all have rank <= k."""
    return f"{SEQUENCE_SUCCESS}k{k}_n{n}"


CURVES = (Metric.RBP_CURVE, Metric.NEG_LOG_RBP_CURVE)
"""Metrics whose steps are k."""

WHILE_MEASURED = (Metric.PROGRESS, Metric.SYSTEM)
"""Beginnings of metrics that a run shows while it lasts: a copy of the measurement does not take them along."""

LAW_METRICS = (*map(rbp_name, HEADLINE_KS), Metric.CE)
"""The metrics whose laws the UI shows."""


def is_result(metric: str) -> bool:
    """Whether a metric is a number that others may have computed: CE, RBP_k and the like, or a standard error."""
    results = (Metric.CE, Metric.BITS_PER_BYTE, Metric.TIE_RATE, Metric.NUM_TOKENS)
    return is_rbp_column(metric) or metric in results or metric in map(se_name, results)
