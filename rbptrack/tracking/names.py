"""The names of tags, metrics, artifacts and experiments in a store. `rbptrack.facts` explains those that are facts."""

from __future__ import annotations


class Kind:
    """Values of the tag `rbptrack.kind`."""

    MEASUREMENT = "measurement"
    SWEEP = "sweep"
    ANALYSIS = "analysis"
    SCORES = "scores"


class Tag:
    """Names of tags. A fact that is kept as a tag is PREFIX and its name."""

    PREFIX = "rbptrack."
    KIND = PREFIX + "kind"
    FINGERPRINT = PREFIX + "fingerprint"
    SEAL = PREFIX + "seal"  # SHA-256 of record.json
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
    FORCED = PREFIX + "forced"  # "true": measured again, so delivered in addition to an earlier one
    FAILURE = PREFIX + "failure"  # why a measurement failed
    DAMAGED = PREFIX + "damaged"  # what `verify` found wrong with a measurement that it marked
    LOGGED_MODEL = PREFIX + "logged_model"  # of a LoggedModel: what tells it from others
    COVERS = PREFIX + "covers"  # of a sweep or analysis: how many measurements it is about
    WRITER = PREFIX + "writer"  # under whose lock a run was begun
    NOTE = "mlflow.note.content"  # the description on MLflow's page


class Metric:
    """Names of metrics; those of RBP_k are made by `rbptrack.ranks.rbp_name`, of standard errors by `se_name`."""

    CE = "ce"
    CE_RANK = "ce_rank"  # mean of ln R: the part of CE that ranks fix
    CE_REST = "ce_rest"  # mean of -ln(p R): the rest
    BITS_PER_BYTE = "bits_per_byte"
    NUM_TOKENS = "num_tokens"
    TIE_RATE = "tie_rate"
    NON_EMBEDDING_PARAMS = "non_embedding_params"
    LOG10_NON_EMBEDDING_PARAMS = "log10_non_embedding_params"  # MLflow's charts of points have no log axis
    SECONDS = "seconds"  # of forward passes and scoring
    TOKENS_PER_SECOND = "tokens_per_second"
    PEAK_MEMORY_BYTES = "peak_memory_bytes"
    BATCH_TOKENS = "batch_tokens"
    CHUNK_TOKENS = "chunk_tokens"
    RBP_CURVE = "rbp_curve"  # its step is k


RECORD_FILE = "record.json"
RANKS_FILE = "ranks.parquet"
HISTOGRAM_FILE = "histogram.parquet"
DOCUMENTS_FILE = "documents.parquet"
CONFIG_FILE = "config.yaml"
TOKENS_FILE = "tokens.json"
UNSCORED_FILE = "unscored.parquet"  # the tokens that a model read and that have no rank
PICTURE_FILE = "rank_distribution.png"
SEAL_FILE = ".seal"  # of a folder: the seal of its record, which a tag of the run has later
STORE_FILE = "store.json"  # of a folder, not of a run: to which store it goes
SCORES_FILE = "scores.csv"
COVERS_FILE = "covers.json"
READING_FILE = "read.html"  # of a sweep, an analysis or a bundle: the texts with their ranks

EXPERIMENT = "rbptrack"
"""The experiment of measurements if nobody names another one."""

REPORTS = "-reports"
"""The ending of the experiment that holds sweeps, analyses and scores; the other one holds measurements only."""
