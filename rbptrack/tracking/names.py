"""The names of tags, metrics, artifacts and experiments, for whoever writes or reads a store.

A param, and a tag or metric without its prefix, is a column of `Runs.frame`.
"""

from __future__ import annotations


class Kind:
    """Values of the tag `rbptrack.kind`."""

    MEASUREMENT = "measurement"
    SWEEP = "sweep"
    ANALYSIS = "analysis"
    SCORES = "scores"


class Tag:
    """Names of tags."""

    PREFIX = "rbptrack."
    KIND = "rbptrack.kind"
    FINGERPRINT = "rbptrack.fingerprint"
    SEAL = "rbptrack.seal"  # SHA-256 of record.json
    FAMILY = "rbptrack.family"
    SIZE = "rbptrack.size"
    MODEL = "rbptrack.model"
    DATASET = "rbptrack.dataset"
    SWEEP = "rbptrack.sweep"
    COMMIT = "rbptrack.commit"
    DATASET_COMMIT = "rbptrack.dataset_commit"
    REFERENCE_COMMIT = "rbptrack.reference_commit"
    TOKENIZER_COMMIT = "rbptrack.tokenizer_commit"
    DOCUMENTS_HASH = "rbptrack.documents_hash"
    CHAT_TEMPLATE = "rbptrack.chat_template"
    SOURCES = "rbptrack.sources"  # how many sources the documents come from, where a field names them
    SOFTWARE = "rbptrack.software"
    NOTES = "rbptrack.notes"
    IMPORTED = "rbptrack.imported"  # the importer, or `bundle`
    IMPORTED_FROM = "rbptrack.imported_from"  # the name of the file or folder
    WITHOUT_RANKS = "rbptrack.without_ranks"  # "true" where it came as numbers only
    FORCED = "rbptrack.forced"  # "true": measured again, so delivered beside an earlier one
    FAILURE = "rbptrack.failure"  # why a measurement failed
    DAMAGED = "rbptrack.damaged"  # what `verify` found wrong with a measurement that it marked
    WEIGHTS = "rbptrack.weights"  # of a LoggedModel: what tells its weights from others
    COVERS = "rbptrack.covers"  # of a sweep or analysis: how many measurements it is about
    WRITER = "rbptrack.writer"  # under whose lock a run was begun
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

REPORTS = "-reports"
"""The ending of the experiment that holds sweeps, analyses and scores; the other one holds measurements only."""
