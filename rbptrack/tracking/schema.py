"""What a store's runs hold: the name of every tag, param and metric that is written and read again.

Writers, readers, imports, the Python API, the UI's view and the synthetic store take the names from here, so that what
one of them writes every other one finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rbptrack.base import __version__
from rbptrack.base.names import metric_part
from rbptrack.ranks import HEADLINE_KS, is_rbp_column, metric_label, rbp_name

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
    SWEPT = "rbptrack.swept"  # swept besides model and dataset: `seed=3`
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
    PROCESS = "mlflow.rbptrack.process"  # which process works on the run; MLflow shows no tag that begins with mlflow.
    HEARTBEAT = "mlflow.rbptrack.heartbeat"  # when that process last said that it lives
    CLAIM = "rbptrack.claim"  # of runs of earlier versions
    RESUMED = "mlflow.rbptrack.resumed"
    STORE = "rbptrack.store"  # of a record in the outbox: where it belongs
    EXPERIMENT = "rbptrack.experiment"  # of such a record
    ARTIFACTS = "rbptrack.artifacts"  # of such a record
    LATER = "rbptrack.later/"  # prefix of a param whose value changed after it was first logged
    DAMAGED = "rbptrack.damaged"  # what `verify` found wrong with a measurement that it marked
    DUPLICATE = "rbptrack.duplicate"  # the run that is read instead: two processes finished the same measurement
    WEIGHTS = "rbptrack.weights"  # of a LoggedModel: what tells its weights from others
    NOTE = "mlflow.note.content"


WITHOUT = "none"
"""The value of the tag `rbptrack.ranks` where an imported measurement came without a rank table."""

OF_THE_PROCESS = (Tag.PROCESS, Tag.HEARTBEAT, Tag.CLAIM, Tag.RESUMED, Tag.DAMAGED, Tag.DUPLICATE)
"""Tags that say how a measurement was made rather than what it is: a copy of it does not take them along."""

_HIDDEN = (Tag.PROCESS, Tag.HEARTBEAT, Tag.RESUMED)
_SHOWN_BEFORE = {tag.removeprefix("mlflow."): tag for tag in _HIDDEN}  # as release 0.1 named them


def tags_now(tags: Mapping[str, str]) -> dict[str, str]:
    """Return a run's tags by their names of today: `mlflow.rbptrack.process` for `rbptrack.process`.

    A run of before that was continued has both; the later one counts.
    """
    renamed = {_SHOWN_BEFORE.get(name, name): value for name, value in tags.items()}
    return renamed | {name: tags[name] for name in _HIDDEN if name in tags}


FILTERED = {"family": Tag.FAMILY, "size": Tag.SIZE, "dataset": Tag.DATASET}
"""The filters that are about a measurement's tag."""


@dataclass(frozen=True)
class MeasurementTags:
    """What identifies a measurement in the store."""

    fingerprint: str  # hash of everything that determines its numbers
    family: str
    size: str  # as published
    model: str  # family and size joined
    dataset: str
    sweep: str  # the sweep that measured it; empty if none did
    swept: str = ""  # what distinguishes it there: `seed=3`

    @property
    def title(self) -> str:
        """The run's name: `pythia-70m / wiki`, `pythia-70m / wiki, seed=3`."""
        return f"{self.model} / {self.dataset}" + (f", {self.swept}" if self.swept else "")

    def tags(self) -> dict[str, str]:
        """Return the tags of the measurement's run."""
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
    """Return the tags of a sweep's own run; the command line is its description in the UI."""
    return {Tag.KIND: Kind.SWEEP, Tag.SWEEP: sweep, Tag.NOTE: f"`{command}`"}


def analysis_tags(analyzer: str, sweep: str, run_ids: Sequence[str] = (), *, headline: str = "") -> dict[str, str]:
    """Return the tags of an analysis's run; run_ids are the measurements that it read, the headline describes it."""
    tags = {Tag.KIND: Kind.ANALYSIS, Tag.ANALYZER: analyzer, Tag.SWEEP: sweep, Tag.NOTE: headline}
    return tags | ({Tag.SOURCES: ",".join(run_ids)[:_LONGEST_TAG]} if run_ids else {})


def report_tags(sweep: str) -> dict[str, str]:
    """Return the tags of a report's run; sweep is empty where it covers more than one."""
    return {Tag.KIND: Kind.REPORT, Tag.SWEEP: sweep}


def scores_tags(content: str) -> dict[str, str]:
    """Return the tags of a run that keeps scores of tasks; content is their hash."""
    return {Tag.KIND: Kind.SCORES, Tag.RECORD: content}


def training_tags(family: str, dataset: str) -> dict[str, str]:
    """Return the tags of a run that follows a model while it is trained."""
    return {Tag.KIND: Kind.TRAINING, Tag.DATASET: dataset, Tag.FAMILY: family}


class Metric:
    """Names of metrics; those of RBP_k are made by `rbptrack.ranks.rbp_name`."""

    CE = "ce"
    CE_RANK = "ce_rank"  # mean of ln R: the part of CE that ranks fix
    CE_REST = "ce_rest"  # mean of -ln(p R): the rest
    BITS_PER_BYTE = "bits_per_byte"
    NUM_TOKENS = "num_tokens"
    TIE_RATE = "tie_rate"
    NON_EMBEDDING_PARAMS = "non_embedding_params"
    LOG10_NON_EMBEDDING_PARAMS = "log10_non_embedding_params"  # the UI's scatter charts have no log axis
    LAW = "law/"  # prefix: the law's coordinates, as the UI's charts have no log axis for points
    LAW_SIZE = "law/log10 S"
    LAW_TOKENS = "law/log10 training tokens"
    RESULTS = "Results/"  # prefix: MLflow's page of a run shows metrics with a prefix first, in the order of prefixes
    TOKENS_PER_SECOND = "engine/tokens_per_second"
    PEAK_MEMORY_BYTES = "engine/peak_memory_bytes"
    BATCH_TOKENS = "engine/batch_tokens"
    CHUNK_TOKENS = "engine/chunk_tokens"
    KL = "kl"  # with a reference: KL(reference || model), nats
    ACCEPTANCE = "acceptance"  # mean of sum over v of min(p, q)
    SAME_TOP = "same_top"  # share of tokens at which both rank the same first
    OUT_OF_MEMORY_RECOVERIES = "engine/out_of_memory_recoveries"
    RBP_CURVE = "rbp_curve"  # its step is k
    NEG_LOG_RBP_CURVE = "neg_log_rbp_curve"
    PROGRESS = "progress/"  # prefix: while a cell is measured
    SYSTEM = "system/"  # prefix: of the machine meanwhile


_ENGINE = "engine/"
_BEFORE_GROUPS: dict[str, str] = {
    name.removeprefix(_ENGINE): name for name in vars(Metric).values() if str(name).startswith(_ENGINE)
}  # as release 0.1 named them


def metric_now(name: str) -> str:
    """Return the name of a metric today: `engine/batch_tokens` for the `batch_tokens` of a run of before."""
    return _BEFORE_GROUPS.get(name, name)


def page_label(metric: str) -> str:
    """Return a metric's name on MLflow's pages: `CE`, `RBP_10`, `bits per byte`."""
    return "bits per byte" if metric == Metric.BITS_PER_BYTE else metric_label(metric)


def law_label(metric: str) -> str:
    """Return the name of a law's coordinate: `log10 CE`, `log10 -ln RBP_10`."""
    return f"log10 {'-ln ' if is_rbp_column(metric) else ''}{page_label(metric)}"


def law_name(dataset: str, metric: str) -> str:
    """Return the metric of `law_label` of the runs on one dataset: a chart of it shows that dataset only."""
    return f"{Metric.LAW}{metric_part(dataset)}/{law_label(metric)}"


SEQUENCE_SUCCESS = "sequence_success_"
"""Beginning of metrics that imports have: shares of sequences that succeed."""


CURVES = (Metric.RBP_CURVE, Metric.NEG_LOG_RBP_CURVE)
"""Metrics whose steps are k."""

NOT_OF_THE_RECORD = (Metric.PROGRESS, Metric.SYSTEM, Metric.LAW, Metric.RESULTS)
"""Prefixes of metrics that only MLflow's pages show: a copy of the measurement does not take them along."""

LAW_METRICS = (Metric.CE, *map(rbp_name, HEADLINE_KS), Metric.BITS_PER_BYTE)
"""The metrics whose laws the UI shows."""
