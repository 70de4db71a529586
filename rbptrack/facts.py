"""The table of facts that describe a measurement.

A fact is one column of `Runs.frame`. The table `FACTS` gives for each fact:

- its place in MLflow, its type and its meaning,
- the keys of the measurement's identity from which its value comes,
- whether all runs of one law, or of one point of a law, must have equal values,
- whether two measurements of the same tokens have equal values.

The table determines the columns of the frame, the tags and params of a run, which runs are comparable, the names of
measurements, which columns can be imported, and the documentation of columns.

To add a fact, add a row here, and set its value in `rbptrack.tracking.facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pandas as pd

from rbptrack.base.formatting import compact, short_hash


class Subject(Enum):
    """What a fact describes. The value is a heading in the documentation."""

    MODEL = "The model"
    TEXTS = "The texts"
    METHOD = "How it was measured"
    RESULT = "Results"
    RUN = "The run"


class Place(Enum):
    """Where MLflow keeps a fact."""

    RUN = "attribute"  # an attribute of the run itself
    TAG = "tag"
    PARAM = "param"
    METRIC = "metric"


class Scope(Enum):
    """The runs that must have equal values of a fact."""

    NONE = ""
    LAW = "law"  # all runs of one law
    POINT = "point"  # all runs of one size in a law; they are summed into one point of the fit


@dataclass(frozen=True)
class Fact:
    """One column of `Runs.frame`.

    Attributes:
        name: the name of the column, and of the param or metric. A tag is named `rbptrack.<name>`.
        subject: what the fact describes.
        place: where MLflow keeps the fact.
        dtype: the column's type in pandas.
        meaning: a phrase for the documentation. It names the unit.
        identity: the keys of the measurement's identity from which the value comes.
        equal_within: the runs that must have equal values.
        determined_by: columns that usually cause a difference in this column. If runs differ in one of them too, a
            message about these runs does not name this column.
        same_tokens: whether measurements that scored the same tokens in the same way have equal values.
        importable: whether an imported table of results may contain the fact.
        label: text before the value in the name of a part of a family. The label `seq_len ` gives the name
            `pythia seq_len 512`.
        missing: the word for a missing value.
        is_hash: whether the value is a hash. Only its first 8 characters are shown.
        in_logged_model: whether the fact is also kept in MLflow's LoggedModel, as a tag or param.

    """

    name: str
    subject: Subject
    place: Place
    dtype: str
    meaning: str
    identity: tuple[str, ...] = ()
    equal_within: Scope = Scope.NONE
    determined_by: tuple[str, ...] = ()
    same_tokens: bool = False
    importable: bool = False
    label: str = ""
    missing: str = "unknown"
    is_hash: bool = False
    in_logged_model: bool = False

    @property
    def distinguishes(self) -> bool:
        """Whether measurements that differ in this fact are different measurements."""
        return bool(self.identity) or self.equal_within is not Scope.NONE

    def format_value(self, value: Any) -> str:
        """Format a value for names and notes: 8 characters of a hash, `2.1B` for a large number."""
        if pd.isna(value) or value == "":
            return self.missing
        if self.is_hash:
            return short_hash(str(value))
        return compact(float(value)) if self.dtype == "Float64" else str(value)


MODEL, TEXTS, METHOD, RESULT, RUN = Subject
ATTRIBUTE, TAG, PARAM, METRIC = Place
LAW = Scope.LAW
POINT = Scope.POINT

FACTS: tuple[Fact, ...] = (
    Fact("run_id", RUN, ATTRIBUTE, "string", "MLflow's ID of the run", is_hash=True),
    # The model
    Fact("family", MODEL, TAG, "string", "name of a set of models that differ only in size",
         identity=("family",), importable=True, in_logged_model=True),
    Fact("size", MODEL, TAG, "string", "the size as published, such as `70m`",
         identity=("size",), importable=True, in_logged_model=True),
    Fact("model", MODEL, TAG, "string", "name from family, size, seed and checkpoint, such as `pythia-70m@step1000`",
         identity=("family", "size", "seed"), importable=True, in_logged_model=True),
    Fact("repo", MODEL, PARAM, "string", "the model's repository on the Hugging Face Hub",
         identity=("model",), in_logged_model=True),
    Fact("seed", MODEL, PARAM, "Int64", "training seed, if a family has several models of one size",
         identity=("seed",), importable=True),
    Fact("revision", MODEL, PARAM, "string", "the requested branch, tag or commit",
         identity=("model",), equal_within=POINT, importable=True, in_logged_model=True),
    Fact("commit", MODEL, TAG, "string", "`repository@commit` of the weights, or a hash of their files",
         identity=("model",), is_hash=True, in_logged_model=True),
    Fact("gguf", MODEL, PARAM, "string", "the GGUF file that holds the weights"),
    Fact("weights", MODEL, PARAM, "string",
         "quantisation of the stored weights, such as `Q4_K_M` or `int8 torchao`; missing if not quantised",
         identity=("model",), equal_within=LAW, importable=True, missing="as published", in_logged_model=True),
    Fact("dtype", MODEL, PARAM, "string",
         "precision of the forward pass; `tf32` if float32 products are computed in TF32",
         identity=("dtype", "matmul"), equal_within=LAW, importable=True, in_logged_model=True),
    Fact("tokenizer", MODEL, PARAM, "string", "the requested tokenizer, if it is not the model's own",
         identity=("tokenizer",), in_logged_model=True),
    Fact("tokenizer_commit", MODEL, PARAM, "string",
         "`repository@commit` of the requested tokenizer, or a hash of its files",
         identity=("tokenizer",), is_hash=True, in_logged_model=True),
    Fact("tokenizer_rules", MODEL, PARAM, "string", "hash of the rules by which the tokenizer splits texts",
         identity=("tokenizer_rules",), equal_within=POINT, label="tokenizer ", is_hash=True),
    Fact("chat_template", MODEL, PARAM, "string", "hash of the chat template that rendered the documents",
         identity=("chat",), equal_within=LAW, same_tokens=True, importable=True, label="chat ", missing="no chat",
         is_hash=True),
    Fact("vocab_size", MODEL, PARAM, "Int64", "|V|: number of entries among which a target is ranked",
         same_tokens=True, importable=True, in_logged_model=True),
    Fact("non_embedding_params", MODEL, METRIC, "Int64", "S: number of parameters without embeddings and output head",
         importable=True),
    Fact("total_params", MODEL, PARAM, "Int64", "number of all parameters; tied parameters count once",
         importable=True, in_logged_model=True),
    Fact("training_tokens", MODEL, PARAM, "Float64", "D: number of tokens that the weights were trained on",
         equal_within=POINT, importable=True, label="at D=", in_logged_model=True),
    # The texts
    Fact("dataset", TEXTS, TAG, "string", "name of the texts",
         identity=("dataset",), same_tokens=True, importable=True),
    Fact("dataset_repo", TEXTS, PARAM, "string", "the dataset's repository on the Hugging Face Hub"),
    Fact("dataset_commit", TEXTS, PARAM, "string", "`repository@commit` of the dataset, or a hash of its files"),
    Fact("dataset_config", TEXTS, PARAM, "string", "the configuration (subset) of the dataset's repository"),
    Fact("split", TEXTS, PARAM, "string", "the split of the dataset"),
    Fact("fields", TEXTS, PARAM, "string", "the fields that make a document, if not `text`"),
    Fact("selection", TEXTS, PARAM, "string", "how documents were selected, such as `100 by shuffle, seed 42`"),
    Fact("documents_hash", TEXTS, PARAM, "string", "hash of the selected texts",
         identity=("texts",), equal_within=LAW, same_tokens=True, importable=True, label="texts ", is_hash=True),
    Fact("documents", TEXTS, PARAM, "Int64", "number of documents", importable=True),
    Fact("groups", TEXTS, TAG, "Int64", "number of groups of documents (books, sites), if a field names them",
         identity=("group",)),
    # How it was measured
    Fact("sequence", METHOD, PARAM, "string", "rule for cutting documents into sequences: `slide`, `truncate`, `pack`",
         identity=("sequence",), equal_within=LAW, same_tokens=True, importable=True),
    Fact("seq_len", METHOD, PARAM, "Int64", "largest number of tokens of a sequence",
         identity=("seq_len",), equal_within=LAW, same_tokens=True, importable=True, label="seq_len "),
    Fact("context", METHOD, PARAM, "Int64", "with `slide`, tokens that a sequence repeats from the previous one",
         identity=("context",), equal_within=LAW, determined_by=("sequence",), same_tokens=True, importable=True,
         label="context "),
    Fact("candidates", METHOD, PARAM, "string", "entries among which a target is ranked: `vocabulary` or `tokenizer`",
         identity=("candidates",), equal_within=LAW, same_tokens=True, importable=True, label="candidates "),
    Fact("rank", METHOD, PARAM, "string", "definition of rank in the metrics: `paper` or `strict`",
         identity=("rank",), equal_within=LAW, same_tokens=True, importable=True, label="rank "),
    Fact("scoring", METHOD, PARAM, "Int64", "version of the scoring code",
         identity=("scoring",), equal_within=LAW, importable=True, label="scoring "),
    Fact("reference", METHOD, PARAM, "string",
         "the reference model, whose predictions were compared with those of the model",
         identity=("reference",)),
    Fact("reference_commit", METHOD, PARAM, "string", "`repository@commit` of the reference, or a hash of its files",
         identity=("reference",), is_hash=True),
    Fact("reference_params", METHOD, PARAM, "Int64", "number of all parameters of the reference"),
    Fact("device", METHOD, PARAM, "string", "the device on which the model ran"),
    # Results; rbp_<k> and rbp_<k>_se of each logged k come after them
    Fact("num_tokens", RESULT, METRIC, "Int64", "number of scored tokens",
         equal_within=LAW, determined_by=("documents_hash", "sequence", "seq_len", "context", "chat_template"),
         same_tokens=True, importable=True, label="tokens "),
    Fact("ce", RESULT, METRIC, "Float64", "cross-entropy, nats per token", importable=True),
    Fact("ce_se", RESULT, METRIC, "Float64", "standard error of `ce`, over documents or groups"),
    Fact("ce_rank", RESULT, METRIC, "Float64", "mean of ln R, the part of CE that ranks determine, in nats",
         importable=True),
    Fact("ce_rest", RESULT, METRIC, "Float64", "mean of -ln(p R), the rest of CE, in nats", importable=True),
    Fact("bits_per_byte", RESULT, METRIC, "Float64", "cross-entropy in bits per byte of text", importable=True),
    Fact("tie_rate", RESULT, METRIC, "Float64",
         "share of tokens at which another entry has exactly the target's probability",
         importable=True),
    Fact("kl", RESULT, METRIC, "Float64", "mean of KL(reference || model), nats per token"),
    Fact("acceptance", RESULT, METRIC, "Float64",
         "share of tokens sampled from the model that speculative sampling with the reference accepts"),
    Fact("same_top", RESULT, METRIC, "Float64",
         "share of tokens at which the model and the reference rank the same entry first"),
    Fact("padding_mass", RESULT, METRIC, "Float64", "largest total probability of the padding entries at any token"),
    Fact("seconds", RESULT, METRIC, "Float64", "time of forward passes and scoring, in seconds"),
    Fact("tokens_per_second", RESULT, METRIC, "Float64", "scored tokens per second"),
    Fact("peak_memory_bytes", RESULT, METRIC, "Float64",
         "largest memory of the process, or of torch on a GPU, in bytes"),
    Fact("batch_tokens", RESULT, METRIC, "Float64", "largest number of tokens in one forward pass"),
    Fact("chunk_tokens", RESULT, METRIC, "Float64", "number of tokens whose logits were in memory at once"),
    # The run
    Fact("started", RUN, ATTRIBUTE, "datetime64[us, UTC]", "time at which the measurement began"),
    Fact("fingerprint", RUN, TAG, "string", "hash of the identity: everything that determines the numbers"),
    Fact("sweep", RUN, TAG, "string", "name of the sweep that made the measurement"),
    Fact("software", RUN, TAG, "string", "versions of rbptrack, the scoring code, torch and transformers"),
    Fact("notes", RUN, TAG, "string", "remarks on how the model was measured or imported"),
    Fact("forced", RUN, TAG, "boolean", "whether `force=true` repeated the measurement"),
    Fact("imported", RUN, TAG, "string", "the importer, or `bundle`; missing if the measurement was made here"),
    Fact("imported_from", RUN, TAG, "string", "name of the imported file or folder"),
    Fact("without_ranks", RUN, TAG, "boolean", "whether only metrics were imported"),
)  # fmt: skip

FACT_BY_NAME: Mapping[str, Fact] = {fact.name: fact for fact in FACTS}
DTYPE_BY_COLUMN: Mapping[str, str] = {fact.name: fact.dtype for fact in FACTS}
"""The columns of `Runs.frame` and their types. `Runs` adds `name` in front, and rbp_<k> and rbp_<k>_se at the end."""

LAW_COLUMNS = tuple(fact.name for fact in FACTS if fact.equal_within is Scope.LAW)
"""Columns in which all runs of one law must have equal values."""

POINT_COLUMNS = tuple(fact.name for fact in FACTS if fact.equal_within is Scope.POINT)
"""Columns in which all runs of one size of a law must have equal values."""

SAME_TOKENS_COLUMNS = tuple(fact.name for fact in FACTS if fact.same_tokens)
"""Columns in which measurements of the same tokens have equal values."""

IMPORTABLE_COLUMNS = tuple(fact.name for fact in FACTS if fact.importable)
"""Columns that an imported table of results may contain, in addition to rbp_<k> and standard errors."""

ALLOWED_DIFFERENCES: Mapping[str, str] = {
    "family": "laws are fitted for each family separately",
    "size": "a law describes how results change with size",
    "seed": "the runs of several seeds are summed into one point",
    "dataset": "laws are fitted for each dataset separately",
    "tokenizer": "the origin of a tokenizer does not matter; `tokenizer_rules` is the hash of its rules",
    "group": "groups change standard errors, but not ranks",
    "reference": "a reference does not change the ranks of the measured model",
}
"""Keys of the identity in which the runs of one law may differ, and the reason for each key."""

SAME_RANKS_COLUMNS = tuple(
    fact.name
    for fact in FACTS
    if (fact.distinguishes or fact.same_tokens) and fact.identity not in (("group",), ("reference",))
)
"""Columns in which measurements with the same ranks have equal values. Group and reference do not change ranks."""

DISTINGUISHING_COLUMNS = tuple(
    fact.name
    for fact in sorted(FACTS, key=lambda fact: fact.is_hash)  # hashes last, because a reader prefers other values
    if fact.distinguishes and fact.place is not Place.METRIC
)
"""Columns that distinguish measurements of one model on one dataset, in their order in names of measurements."""


def stored_texts(place: Place, values: Mapping[str, object]) -> dict[str, str]:
    """Select the facts that MLflow keeps in one place, and convert them to texts.

    Empty, zero and missing values are left out. Raises KeyError if a name is not in the table of facts.
    """
    stored = {}
    for name, value in values.items():
        if FACT_BY_NAME[name].place is place and value:
            stored[name] = "true" if value is True else str(value)
    return stored


def convert_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert the columns of a frame from MLflow's texts to the types that the table of facts gives.

    A text that is not a number becomes a missing value in a column of numbers.
    """
    columns = {}
    for fact in FACTS:
        values = frame[fact.name]
        if fact.dtype in ("Int64", "Float64"):
            values = pd.to_numeric(values, errors="coerce")
        elif fact.dtype == "boolean":
            values = values.map({"true": True})
        columns[fact.name] = values
    return frame.assign(**columns).astype(dict(DTYPE_BY_COLUMN))
