"""A measurement as one typed document: one model on one dataset, with its names, its settings and its results.

Each field of `Measurement` has a type, a rule and a `Part`. The class of the part says what the field is:

- `Label`: a name that people give. Everybody who may edit the run may change it. It is a tag of the run in MLflow.
- `Key`: a setting that determines the numbers. The fingerprint is the hash of all keys. It is a param of the run.
- `Fact`: follows from the keys, or describes how the measurement was made. It is a param of the run.
- `Result`: a number that was measured. It is a metric of the run.

The tags, params and metrics of a run, the columns of `Runs.frame`, the columns that a table of results may have,
record.json, the fingerprint and the documentation of the columns are all derived from this class. To add a fact, add a
field here, and set its value where the measurement is described (`rbptrack.measurement.describe`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rbptrack.config.schema import model_name
from rbptrack.measurement.parts import (
    Count,
    CrossEntropy,
    Fact,
    Key,
    Label,
    Name,
    NonNegative,
    Part,
    Repository,
    Rest,
    Result,
    Share,
    SmallCount,
    Subject,
    Text,
    WholeNumber,
    Within,
)
from rbptrack.ranks import parse_rbp_name, rbp_name, se_name

ROUNDING = 2e-3
"""The largest difference that rounding to three digits may cause, in nats or as a share."""

TAG_PREFIX = "rbptrack."
"""The beginning of the name of a label's tag."""

LOG10_PARAMS = "log10_non_embedding_params"
"""The metric log10 S. MLflow's scatter charts have no logarithmic axis."""

CURVE = "rbp_curve"
"""The metric with RBP_k as a curve: the step of a value is k."""

_CE_FACTOR = 0.95  # CE may be lower by this factor, for example because log-probabilities were rounded to bfloat16
_MAX_K = 2**31 - 1
_UPPER_BOUNDS = {"non_embedding_params": "total_params", "context": "seq_len"}


MODEL, TEXTS, METHOD, RESULT, RUN = Subject
LAW = Within.LAW
POINT = Within.POINT


class Measurement(BaseModel):
    """One model on one dataset: names, settings, descriptions and numbers.

    An empty text and None stand for an unknown value. Raises pydantic's ValidationError if a value breaks a rule.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # The model
    family: Annotated[
        Name, Label(MODEL, "name of a set of models that differ only in size", importable=True, of_model=True)
    ]
    size: Annotated[Text, Label(MODEL, "the size as published, such as `70m`", importable=True, of_model=True)] = ""
    seed: Annotated[
        int,
        Field(ge=0, lt=2**63),
        Label(MODEL, "training seed, if a family has several models of one size", importable=True),
    ] = 0
    checkpoint: Annotated[
        Text,
        Label(
            MODEL,
            "the checkpoint, such as `step1000`; missing for the final weights",
            POINT,
            importable=True,
            missing="final",
            of_model=True,
        ),
    ] = ""
    training_tokens: Annotated[
        NonNegative | None,
        Label(
            MODEL,
            "D: number of tokens that the weights were trained on",
            POINT,
            importable=True,
            prefix="at D=",
            of_model=True,
        ),
    ] = None
    repo: Annotated[Repository, Fact(MODEL, "the model's repository on the Hugging Face Hub", of_model=True)] = ""
    folder: Annotated[Text, Fact(MODEL, "the model's folder, as it was given", of_model=True)] = ""
    gguf: Annotated[Text, Fact(MODEL, "the GGUF file that holds the weights")] = ""
    architecture: Annotated[
        Text, Fact(MODEL, "the model type of transformers, such as `gpt_neox`", LAW, importable=True, of_model=True)
    ] = ""
    commit: Annotated[
        Text, Key(MODEL, "`repository@commit` of the weights, or a hash of their files", is_hash=True, of_model=True)
    ] = ""
    weights: Annotated[
        Text,
        Fact(
            MODEL,
            "quantisation of the stored weights, such as `Q4_K_M` or `int8 torchao`; missing if not quantised",
            LAW,
            importable=True,
            missing="as published",
            of_model=True,
        ),
    ] = ""
    dtype: Annotated[
        Text,
        Key(
            MODEL,
            "precision of the forward pass",
            LAW,
            importable=True,
            of_model=True,
        ),
    ] = ""
    tokenizer: Annotated[Text, Fact(MODEL, "the requested tokenizer, if it is not the model's own", of_model=True)] = ""
    tokenizer_commit: Annotated[
        Text,
        Fact(
            MODEL, "`repository@commit` of the requested tokenizer, or a hash of its files", is_hash=True, of_model=True
        ),
    ] = ""
    tokenizer_rules: Annotated[
        Text,
        Key(MODEL, "hash of the rules by which the tokenizer splits texts", POINT, prefix="tokenizer ", is_hash=True),
    ] = ""
    chat_template: Annotated[
        Text,
        Key(
            MODEL,
            "hash of the chat template that rendered the documents",
            LAW,
            same_tokens=True,
            importable=True,
            prefix="chat ",
            missing="no chat",
            is_hash=True,
        ),
    ] = ""
    vocab_size: Annotated[
        SmallCount | None,
        Fact(
            MODEL,
            "|V|: number of entries among which a target is ranked",
            same_tokens=True,
            importable=True,
            of_model=True,
        ),
    ] = None
    non_embedding_params: Annotated[
        Count | None, Result(MODEL, "S: number of parameters without embeddings and output head", importable=True)
    ] = None
    total_params: Annotated[
        Count | None,
        Fact(MODEL, "number of all parameters; tied parameters count once", importable=True, of_model=True),
    ] = None
    # The texts
    dataset: Annotated[Name, Label(TEXTS, "name of the texts", same_tokens=True, importable=True)]
    dataset_repo: Annotated[Repository, Fact(TEXTS, "the dataset's repository on the Hugging Face Hub")] = ""
    dataset_commit: Annotated[
        Text, Fact(TEXTS, "`repository@commit` of the dataset, or a hash of its files", is_hash=True)
    ] = ""
    dataset_config: Annotated[Text, Fact(TEXTS, "the configuration (subset) of the dataset's repository")] = ""
    split: Annotated[Text, Fact(TEXTS, "the split of the dataset")] = ""
    fields: Annotated[Text, Fact(TEXTS, "the fields that make a document, if not `text`")] = ""
    selection: Annotated[Text, Fact(TEXTS, "how documents were selected, such as `100 by shuffle, seed 42`")] = ""
    texts: Annotated[
        Text, Key(TEXTS, "hash of the dataset's origin and of the rules that select documents", is_hash=True)
    ] = ""
    documents_hash: Annotated[
        Text,
        Fact(
            TEXTS, "hash of the selected texts", LAW, same_tokens=True, importable=True, prefix="texts ", is_hash=True
        ),
    ] = ""
    documents: Annotated[SmallCount | None, Fact(TEXTS, "number of documents", importable=True)] = None
    group: Annotated[Text, Key(TEXTS, "the field that names the group of a document, such as a book or site")] = ""
    groups: Annotated[
        SmallCount | None, Fact(TEXTS, "number of groups of documents: those of `group`, or near copies")
    ] = None
    # How it was measured
    sequence: Annotated[
        Text,
        Key(
            METHOD,
            "rule for cutting documents into sequences: `slide`, `truncate`, `pack`",
            LAW,
            same_tokens=True,
            importable=True,
        ),
    ] = ""
    seq_len: Annotated[
        SmallCount | None,
        Key(
            METHOD, "largest number of tokens of a sequence", LAW, same_tokens=True, importable=True, prefix="seq_len "
        ),
    ] = None
    context: Annotated[
        WholeNumber | None,
        Key(
            METHOD,
            "with `slide`, tokens that a sequence repeats from the previous one",
            LAW,
            same_tokens=True,
            importable=True,
            determined_by=("sequence",),
            prefix="context ",
        ),
    ] = None
    candidates: Annotated[
        Text,
        Key(
            METHOD,
            "entries among which a target is ranked: `vocabulary` or `tokenizer`",
            LAW,
            same_tokens=True,
            importable=True,
            prefix="candidates ",
        ),
    ] = ""
    rank: Annotated[
        Text,
        Key(
            METHOD,
            "definition of rank in the metrics: `paper` or `strict`",
            LAW,
            same_tokens=True,
            importable=True,
            prefix="rank ",
        ),
    ] = ""
    scoring: Annotated[
        SmallCount | None, Key(METHOD, "version of the scoring code", LAW, importable=True, prefix="scoring ")
    ] = None
    engine: Annotated[
        Text, Key(METHOD, "what computed the scores: `transformers`, or a server and its version", LAW, importable=True)
    ] = ""
    head_dtype: Annotated[
        Text,
        Key(
            METHOD,
            "precision of the logits of a server, as a probe found it: `float32`, `bfloat16`, `float16` or `unknown`",
            LAW,
            determined_by=("engine",),
            prefix="head ",
        ),
    ] = ""
    server_name: Annotated[
        Text,
        Key(
            METHOD,
            "the server's name for the model, if only the user says that it is the model's repository or folder",
            POINT,
            prefix="served as ",
        ),
    ] = ""
    server: Annotated[
        Text,
        Fact(
            METHOD, "what the server said: its name for the model, its root, `max_model_len` and `system_fingerprint`"
        ),
    ] = ""
    reference: Annotated[
        Text, Fact(METHOD, "the reference model, whose predictions were compared with those of the model")
    ] = ""
    reference_commit: Annotated[
        Text, Key(METHOD, "`repository@commit` of the reference, or a hash of its files", is_hash=True)
    ] = ""
    reference_dtype: Annotated[Text, Key(METHOD, "precision of the forward pass of the reference")] = ""
    reference_params: Annotated[Count | None, Fact(METHOD, "number of all parameters of the reference")] = None
    device: Annotated[Text, Fact(METHOD, "the device on which the model ran")] = ""
    # Results
    num_tokens: Annotated[
        Count | None,
        Result(
            RESULT,
            "number of scored tokens",
            LAW,
            same_tokens=True,
            importable=True,
            determined_by=("documents_hash", "sequence", "seq_len", "context", "chat_template"),
            prefix="tokens ",
        ),
    ] = None
    ce: Annotated[CrossEntropy | None, Result(RESULT, "cross-entropy, nats per token", importable=True)] = None
    ce_se: Annotated[
        NonNegative | None, Result(RESULT, "standard error of `ce`, over documents or groups", importable=True)
    ] = None
    ce_rank: Annotated[
        NonNegative | None,
        Result(RESULT, "mean of ln R, the part of CE that ranks determine, in nats", importable=True),
    ] = None
    ce_rest: Annotated[Rest | None, Result(RESULT, "mean of -ln(p R), the rest of CE, in nats", importable=True)] = None
    bits_per_byte: Annotated[
        NonNegative | None, Result(RESULT, "cross-entropy in bits per byte of text", importable=True)
    ] = None
    tie_rate: Annotated[
        Share | None,
        Result(RESULT, "share of tokens at which another entry has exactly the target's probability", importable=True),
    ] = None
    kl: Annotated[float | None, Result(RESULT, "mean of KL(reference || model), nats per token")] = None
    acceptance: Annotated[
        NonNegative | None,
        Result(RESULT, "share of tokens sampled from the model that speculative sampling with the reference accepts"),
    ] = None
    same_top: Annotated[
        Share | None, Result(RESULT, "share of tokens at which the model and the reference rank the same entry first")
    ] = None
    padding_mass: Annotated[
        NonNegative | None, Result(RESULT, "largest total probability of the padding entries at any token")
    ] = None
    rbp: Annotated[dict[SmallCount, Share], Result(RESULT, "share of tokens with rank at most k, by k")] = {}
    rbp_se: Annotated[
        dict[SmallCount, NonNegative], Result(RESULT, "standard error of RBP_k, over documents or groups, by k")
    ] = {}
    rbp_curve: Annotated[dict[SmallCount, Share], Result(RESULT, "RBP_k on a grid of k up to |V|")] = {}
    seconds: Annotated[NonNegative | None, Result(RESULT, "time of forward passes and scoring, in seconds")] = None
    tokens_per_second: Annotated[NonNegative | None, Result(RESULT, "scored tokens per second")] = None
    peak_memory_bytes: Annotated[
        NonNegative | None, Result(RESULT, "largest memory of the process, or of torch on a GPU, in bytes")
    ] = None
    batch_tokens: Annotated[NonNegative | None, Result(RESULT, "largest number of tokens in one forward pass")] = None
    chunk_tokens: Annotated[
        NonNegative | None, Result(RESULT, "number of tokens whose logits were in memory at once")
    ] = None
    # The run
    sweep: Annotated[Text, Fact(RUN, "name of the sweep that made the measurement")] = ""
    software: Annotated[Text, Fact(RUN, "versions of rbptrack, torch and transformers")] = ""
    notes: Annotated[Text, Fact(RUN, "remarks on how the model was measured or imported")] = ""
    forced: Annotated[bool, Fact(RUN, "whether `force=true` repeated the measurement")] = False
    imported: Annotated[Text, Fact(RUN, "the importer, or `bundle`; missing if the measurement was made here")] = ""
    imported_from: Annotated[Text, Fact(RUN, "name of the imported file or folder")] = ""
    imported_as: Annotated[
        Text, Key(RUN, "hash of the names and settings that the imported file gives", is_hash=True)
    ] = ""
    without_ranks: Annotated[bool, Fact(RUN, "whether only metrics were imported")] = False

    @property
    def fingerprint(self) -> str:
        """The SHA-256 (hex) of all keys: everything that determines the numbers."""
        return fingerprint(dict(self))

    @property
    def model(self) -> str:
        """The model's name from family, size, seed and checkpoint, such as `pythia-70m@step1000`."""
        return model_name(self.family, self.size, self.seed, self.checkpoint)

    @property
    def title(self) -> str:
        """The names of model and dataset, such as `pythia-70m / wiki`."""
        return measurement_title(self.model, self.dataset)

    @property
    def note_list(self) -> list[str]:
        """The remarks, one by one."""
        return [note for note in self.notes.split("; ") if note]

    def updated(self, values: Mapping[str, object]) -> Self:
        """Return the measurement with other values of some fields. Raises ValidationError if a value breaks a rule."""
        return type(self).model_validate(self.model_dump() | dict(values))

    def tags(self) -> dict[str, str]:
        """Return the tags of the run: its labels and its fingerprint."""
        return tags_of(dict(self))

    def params(self) -> dict[str, str]:
        """Return the params of the run: its keys and facts. Unknown values are left out."""
        return params_of(dict(self))

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the run: CE, RBP_k by k, then all other results. The curve is not a metric."""
        values = {name: getattr(self, name) for name in ("ce", "ce_se")}
        for k, share in sorted(self.rbp.items()):
            values[rbp_name(k)] = share
            values[se_name(rbp_name(k))] = self.rbp_se.get(k)
        values |= {name: getattr(self, name) for name in names_of(Result) if name not in RESULTS_BY_K}
        if self.non_embedding_params is not None:
            values[LOG10_PARAMS] = math.log10(self.non_embedding_params)
        return {name: float(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_run(cls, tags: Mapping[str, str], params: Mapping[str, str], metrics: Mapping[str, float]) -> Self:
        """Parse the tags, params and metrics of a run. Names that are not fields are ignored.

        The curve is not read, because it is not among the metrics. Raises ValidationError, which names the field.
        """
        values: dict[str, Any] = {}
        for name in names_of(Label):
            if TAG_PREFIX + name in tags:
                values[name] = tags[TAG_PREFIX + name]
        values |= {name: params[name] for name in (*names_of(Key), *names_of(Fact)) if name in params}
        values |= {name: metrics[name] for name in names_of(Result) if name in metrics and name not in RESULTS_BY_K}
        fields = values | by_k(metrics)
        if params.get("without_ranks"):
            fields["rbp_curve"] = fields["rbp"]
        return cls.model_validate(fields)

    def columns(self) -> dict[str, Any]:
        """Return the values by their column in `Runs.frame`. Unknown values and defaults, such as seed 0, are None."""
        row: dict[str, Any] = {}
        for name in SCALAR_FIELDS:
            value = getattr(self, name)
            row[name] = None if value == Measurement.model_fields[name].default else value
        row["model"] = self.model
        row["fingerprint"] = self.fingerprint
        for k, share in self.rbp.items():
            row[rbp_name(k)] = share
            if k in self.rbp_se:
                row[se_name(rbp_name(k))] = self.rbp_se[k]
        return row

    @model_validator(mode="after")
    def _check_parts_of_ce(self) -> Self:
        parts = [part for part in (self.ce_rank, self.ce_rest) if part is not None]
        if self.ce is not None and parts:
            remainder = self.ce - sum(parts)
            if remainder < -ROUNDING or (len(parts) == 2 and remainder > ROUNDING):
                raise ValueError(f"ce must be ce_rank + ce_rest: {self.ce:g} is not {sum(parts):g}")
        if self.ce and self.bits_per_byte == 0:
            raise ValueError("bits_per_byte is 0, but ce is not")
        return self

    @model_validator(mode="after")
    def _check_rbp(self) -> Self:
        """Raise ValueError if an RBP_k contradicts |V|, another RBP_k or CE, or if a standard error has no RBP_k."""
        largest_k = self.vocab_size or _MAX_K
        for name, shares in (("RBP_k", self.rbp), ("its curve of RBP_k", self.rbp_curve)):
            if any(k > largest_k for k in shares):
                raise ValueError(f"{name}: k must be at most vocab_size = {largest_k:,}")
            for low, high in pairwise(sorted(shares)):
                if shares[high] < shares[low] - 1e-9:
                    raise ValueError(
                        f"RBP_k must not fall with k: rbp_{low} is {shares[low]:g} and rbp_{high} {shares[high]:g}"
                    )
        for k, share in self.rbp.items():
            # A target with a rank above k has a probability of at most 1 / (k + 1).
            min_ce = _CE_FACTOR * (1 - share - ROUNDING) * math.log(k + 1)
            if self.ce is not None and self.ce < min_ce:
                raise ValueError(f"ce must be at least {min_ce:.3g} nats if {rbp_name(k)} is {share:g}: {self.ce:g}")
        if extra := sorted(self.rbp_se.keys() - self.rbp.keys()):
            raise ValueError(f"rbp_{extra[0]}_se is a standard error, but rbp_{extra[0]} is missing")
        if self.ce is None and self.ce_se is not None:
            raise ValueError("ce_se is a standard error, but ce is missing")
        return self

    @model_validator(mode="after")
    def _check_completeness(self) -> Self:
        """Raise ValueError if there is no result, if a number exceeds its bound, or if nothing names the weights."""
        if self.ce is None and not self.rbp:
            raise ValueError("it has neither ce nor rbp_<k>")
        bounds = dict(_UPPER_BOUNDS)
        if self.without_ranks:  # documents without scored tokens count in a measurement with ranks
            bounds["documents"] = "num_tokens"
        for name, bound_name in bounds.items():
            value = getattr(self, name)
            bound = getattr(self, bound_name)
            if value is not None and bound is not None and value > bound:
                raise ValueError(f"{name} must be at most {bound_name}: {value:,} and {bound:,}")
        if not self.commit and not self.imported_as:
            raise ValueError("commit is missing, although the measurement was not imported")
        if self.without_ranks:
            self._check_without_ranks()
        return self

    def _check_without_ranks(self) -> None:
        """Raise ValueError if a measurement without ranks says what only ranks can tell."""
        if not self.imported_as:
            raise ValueError("it has no ranks, although it was not imported")
        if self.rbp_curve != self.rbp:
            raise ValueError("its curve of RBP_k differs from rbp_<k>")
        for name in names_of(Result):
            if name not in RESULTS_BY_K and not PARTS[name].importable and getattr(self, name) is not None:
                raise ValueError(f"{name} cannot be known without ranks")


FINGERPRINT_TAG = TAG_PREFIX + "fingerprint"
RESULTS_BY_K = ("rbp", "rbp_se", "rbp_curve")
SCALAR_FIELDS = tuple(name for name in Measurement.model_fields if name not in RESULTS_BY_K)
"""The fields that hold one value."""


PARTS: Mapping[str, Part] = {
    name: item for name, field in Measurement.model_fields.items() for item in field.metadata if isinstance(item, Part)
}
"""The part of each field."""

_NAMES_BY_KIND: Mapping[str, tuple[str, ...]] = {
    kind.__name__: tuple(name for name, part in PARTS.items() if type(part) is kind)
    for kind in (Label, Key, Fact, Result)
}


def names_of(kind: type[Part]) -> tuple[str, ...]:
    """Return the names of the fields of one kind: Label, Key, Fact or Result."""
    return _NAMES_BY_KIND[kind.__name__]


def fingerprint(values: Mapping[str, object]) -> str:
    """Return the SHA-256 (hex) of the keys among some fields of a measurement. Unknown values are left out."""
    keys = {name: values[name] for name in names_of(Key) if values.get(name) not in (None, "")}
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()


def measurement_title(model: str, dataset: str) -> str:
    """Return the name of a measurement, such as `pythia-70m / wiki`."""
    return f"{model} / {dataset}"


def tags_of(values: Mapping[str, object]) -> dict[str, str]:
    """Return the tags of a run for some fields of its measurement: the labels and the fingerprint."""
    tags = {TAG_PREFIX + name: text for name, text in _texts(values, Label).items()}
    return tags | {FINGERPRINT_TAG: fingerprint(values)}


def params_of(values: Mapping[str, object]) -> dict[str, str]:
    """Return the params of a run for some fields of its measurement: the keys and the facts."""
    return _texts(values, Key) | _texts(values, Fact)


def by_k(metrics: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """Return the fields `rbp` and `rbp_se` for metrics named `rbp_<k>` and `rbp_<k>_se`."""
    fields: dict[str, dict[int, Any]] = {"rbp": {}, "rbp_se": {}}
    for name, value in metrics.items():
        k = parse_rbp_name(name.removesuffix("_se"))
        if k is not None:
            fields["rbp_se" if name.endswith("_se") else "rbp"][k] = value
    return fields


def _texts(values: Mapping[str, object], kind: type[Part]) -> dict[str, str]:
    """Return the fields of one kind as the texts that MLflow keeps. Fields with their default value are left out."""
    texts = {}
    for name in names_of(kind):
        value = values.get(name)
        if value is not None and value != Measurement.model_fields[name].default:
            texts[name] = "true" if value is True else str(value)
    return texts
