"""The names of tags, metrics, artifacts and experiments in a store. `rbptrack.facts` says what the facts mean."""

from __future__ import annotations


class Kind:
    """Values of the tag `rbptrack.kind`."""

    MEASUREMENT = "measurement"
    SWEEP = "sweep"
    ANALYSIS = "analysis"
    SCORES = "scores"


class Tag:
    """Names of tags. The tag of a fact is PREFIX followed by the fact's name."""

    PREFIX = "rbptrack."
    KIND = PREFIX + "kind"
    FINGERPRINT = PREFIX + "fingerprint"
    SEAL = PREFIX + "seal"  # the SHA-256 of record.json
    FAMILY = PREFIX + "family"
    MODEL = PREFIX + "model"
    DATASET = PREFIX + "dataset"
    SWEEP = PREFIX + "sweep"
    COMMIT = PREFIX + "commit"
    GROUPS = PREFIX + "groups"
    NOTES = PREFIX + "notes"
    IMPORTED = PREFIX + "imported"
    IMPORTED_FROM = PREFIX + "imported_from"
    WITHOUT_RANKS = PREFIX + "without_ranks"
    FORCED = PREFIX + "forced"  # "true" if force=true repeated a measurement; both stay in the store
    FAILURE = PREFIX + "failure"  # why a measurement failed
    DAMAGED = PREFIX + "damaged"  # the faults of a measurement that `verify --repair` marked
    LOGGED_MODEL = PREFIX + "logged_model"  # tag of a LoggedModel: the hash of the facts that distinguish models
    COVERS = PREFIX + "covers"  # tag of a sweep or analysis: the number of measurements that it used
    WRITER = PREFIX + "writer"  # `Connection.lock_name` of the process that began the run
    NOTE = "mlflow.note.content"  # the description on MLflow's page


class Metric:
    """Names of metrics. `rbptrack.ranks` has functions for the names of RBP_k and of standard errors."""

    CE = "ce"
    CE_RANK = "ce_rank"  # mean of ln R, the part of CE that ranks determine
    CE_REST = "ce_rest"  # mean of -ln(p R), the rest of CE
    BITS_PER_BYTE = "bits_per_byte"
    NUM_TOKENS = "num_tokens"
    TIE_RATE = "tie_rate"
    NON_EMBEDDING_PARAMS = "non_embedding_params"
    LOG10_NON_EMBEDDING_PARAMS = "log10_non_embedding_params"  # for MLflow's scatter charts, which have no log axis
    SECONDS = "seconds"  # time of forward passes and scoring
    TOKENS_PER_SECOND = "tokens_per_second"
    PEAK_MEMORY_BYTES = "peak_memory_bytes"
    BATCH_TOKENS = "batch_tokens"
    CHUNK_TOKENS = "chunk_tokens"
    RBP_CURVE = "rbp_curve"  # the step of a value is k


RECORD_FILE = "record.json"
RANKS_FILE = "ranks.parquet"
HISTOGRAM_FILE = "histogram.parquet"
DOCUMENTS_FILE = "documents.parquet"
CONFIG_FILE = "config.yaml"
TOKENS_FILE = "tokens.json"
UNSCORED_FILE = "unscored.parquet"  # the tokens that the model read but that were not scored
PICTURE_FILE = "rank_distribution.png"
SEAL_FILE = ".seal"  # in a cell's folder: the seal of the record, which becomes a tag of the run
STORE_FILE = "store.json"  # in a cell's folder: the store that will get the measurement; not an artifact
SCORES_FILE = "scores.csv"
COVERS_FILE = "covers.json"  # the IDs of the runs that a sweep or analysis used
READING_FILE = "read.html"  # the reading page of a sweep, an analysis or a bundle

DEFAULT_EXPERIMENT = "rbptrack"
"""The default name of the experiment of measurements."""

REPORTS_SUFFIX = "-reports"
"""The end of the name of the experiment of sweeps, analyses and scores. It follows the name of the other experiment."""
