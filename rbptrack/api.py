"""Functions for Python: measure a model in memory, read, compare and analyse measurements, and fit laws.

They need no config file. A measurement is logged only if its method `log` is called. In notebooks, charts need no
network: unless another renderer of Altair is enabled, one is enabled that puts Vega into each chart.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from html import escape
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
import pandas as pd

from rbptrack.analysis.family import read_families
from rbptrack.analysis.plugin import make_plugin
from rbptrack.analysis.rank_store import RankStore
from rbptrack.analysis.report import Report
from rbptrack.analysis.runs import Filters, Runs
from rbptrack.base.errors import BadInput, StoreAway, StoreRefuses, nearest, suggestion
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import compact
from rbptrack.config.check import check_name, check_server_address
from rbptrack.config.compose import config_from_values
from rbptrack.config.schema import Config, EngineConfig, ModelConfig, SequenceRule
from rbptrack.console.output import print_problem
from rbptrack.discovery import ANALYZERS, find_plugins, run_analyzer
from rbptrack.figures.charts import rank_distribution, themed
from rbptrack.measurement.describe import describe
from rbptrack.measurement.document import Measurement
from rbptrack.measurement.files import DOCUMENTS_FILE, RANKS_FILE, TOKENS_FILE, UNSCORED_FILE
from rbptrack.measurement.record import MeasurementRecord, read_measurement
from rbptrack.ranks import DocumentCounts, RankHistogram, RankTable
from rbptrack.ranks.names import HEADLINE_KS, metric_label, rbp_name, se_name
from rbptrack.ranks.words import word_surprisal
from rbptrack.reporting import comparison_report, render, run_analyzers
from rbptrack.reporting.vega import show_without_network
from rbptrack.sources.pin import pin_model
from rbptrack.sources.server import ServedModel, find_served_model
from rbptrack.stats.laws import laws_by_metric
from rbptrack.sweep.loaded import measure_loaded
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.training import active_run_id, link_training_run

if TYPE_CHECKING:
    import altair
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.engine import Ranked

DEFAULT_KS = (1, 3, 10, 30, 100)
DEFAULT_SEQ_LEN = 512

P = ParamSpec("P")
T = TypeVar("T")

_IN_MEMORY = "(in memory)"  # the path of weights and texts in the configuration, because they have none
_MODEL_IN_USE = threading.Lock()  # held during a measurement, which puts the user's model into evaluation mode
_SURROGATE = re.compile("[\ud800-\udfff]")

_OTHER_KEYWORDS = {
    "device": "The model stays on its device. Move it before, with model.to(device)",
    "dtype": "The model keeps the precision of its weights. Choose it with from_pretrained(..., dtype=...)",
    "batch_size": "Use batch_tokens, the number of tokens in one forward pass",
    "max_length": "Use seq_len, the number of tokens in one sequence",
    "block_size": "Use seq_len, the number of tokens in one sequence",
    "stride": "Use context, the number of tokens that each sequence repeats from the one before",
    "overlap": "Use context, the number of tokens that each sequence repeats from the one before",
    "every": "The Trainer decides when to measure: set eval_strategy and eval_steps in TrainingArguments",
    "name": "Use dataset for the name of the texts, family and size for those of the model",
}
"""What to do in place of a keyword that functions of other libraries have."""


def check_keywords(function: str, given: Iterable[str], allowed: Sequence[str]) -> None:
    """Raise BadInput if a keyword is not an argument of a function. The message names the right keyword."""
    for name in given:
        if name in allowed:
            continue
        near = suggestion(nearest(name, allowed)[:1]).strip()
        remedy = _OTHER_KEYWORDS.get(name) or near or f"Its arguments: {', '.join(allowed)}"
        raise BadInput(f"{function} has no argument {name}. {remedy}")


def _names_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that it refuses an unknown keyword in one line, which names the right one."""
    allowed = list(signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        check_keywords(function.__name__, kwargs, allowed)
        return function(*args, **kwargs)

    return call


@dataclass(frozen=True, kw_only=True, repr=False)
class LoggableMeasurement:
    """A measurement that `measure` returns. It can be printed, plotted and logged to MLflow.

    Attributes:
        measurement: the names, settings and results of the measurement, such as `measurement.num_tokens`.
        counts: tokens, nats and hits of each document, at the k of `measure`.
        histogram: the number of tokens with each rank.
        folder: the folder of the files that become the artifacts of a run. It is removed with this object.

    """

    measurement: Measurement
    counts: DocumentCounts
    histogram: RankHistogram
    folder: Path

    @property
    def name(self) -> str:
        """The names of model and dataset, such as `pythia-70m@step1000 / wiki`."""
        return self.measurement.title

    @property
    def ce(self) -> float:
        """Cross-entropy: the mean of -ln p(target), nats."""
        return self.histogram.ce

    @property
    def ce_se(self) -> float:
        """The standard error of `ce` over documents, nats. NaN with fewer than 5 documents."""
        return math.nan if self.measurement.ce_se is None else self.measurement.ce_se

    @property
    def perplexity(self) -> float:
        """exp(ce)."""
        return math.exp(self.ce)

    def rbp(self, k: int) -> float:
        """Return RBP_k, the share of tokens with rank at most k.

        Raises BadInput if k is not a whole number from 1 to |V|.
        """
        return self.histogram.rbp(k)

    @property
    def ranks(self) -> RankTable:
        """The rank table, read from disk."""
        return RankTable.read(self.folder / RANKS_FILE)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rank table as a DataFrame with a row for each scored token."""
        return self.ranks.to_pandas()

    def metrics(self) -> dict[str, float]:
        """Return `ce` (in nats per token) and `rbp_<k>` by name.

        With at least 5 documents, the result also has their standard errors over documents, `ce_se` and `rbp_<k>_se`.
        """
        known = self.measurement.metrics()
        names = [name for metric in ("ce", *map(rbp_name, self.counts.ks)) for name in (metric, se_name(metric))]
        return {name: known[name] for name in names if name in known}

    def words(self) -> pd.DataFrame:
        """Return the words of all texts with their surprisal in nats. A word is a text between blanks.

        Returns:
            One row for each word, in the order of the texts: `document`, `word`, `surprisal` (the sum of -ln p over the
            tokens of the word; NaN if one of them is not scored, such as the first token of a text), `worst_rank` and
            `tokens` (the number of tokens).

        """
        return word_surprisal(self.ranks, pd.read_parquet(self.folder / UNSCORED_FILE), self.token_texts)

    @property
    def token_texts(self) -> dict[int, str]:
        """The texts of the tokens, by token ID."""
        return {int(number): text for number, text in json.loads((self.folder / TOKENS_FILE).read_text()).items()}

    def plot(self) -> altair.TopLevelMixin:
        """Draw the distribution of ranks as an Altair chart."""
        chart: altair.TopLevelMixin = themed(rank_distribution(self.histogram, self.name))
        show_without_network()
        return chart

    def log(self, *, tracking_uri: str = "", experiment: str = "", sweep: str = "", training_run_id: str = "") -> str:
        """Log the measurement as a run in a tracking store. Returns the run ID.

        If the store already has a measurement of this model on this dataset with equal ranks, no second run is made.
        While an MLflow run is active, tags link this run and the measurement with each other.

        Args:
            tracking_uri: the address of the tracking store; default: MLFLOW_TRACKING_URI, or else MLflow's own store
                in the working folder.
            experiment: the name of the MLflow experiment; default: MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.
            sweep: the name of a sweep, by which `runs(sweep=...)` selects measurements.
            training_run_id: the ID of the MLflow run that trains the model, to which tags link the measurement;
                default: the active run, if there is one. It is a run of the store that `mlflow.get_tracking_uri` names.

        Raises:
            BadInput: the store cannot be written.
            StoreAway: the store does not answer. The measurement waits in mlruns/cells for the next command.
            StoreRefuses: the store refuses the request. The measurement waits in mlruns/cells for the next command.

        """
        record = read_measurement(self.folder)
        if sweep != "":
            check_name("sweep", sweep)
            record.measurement = record.measurement.updated({"sweep": sweep})
        outbox = Outbox(Store(tracking_uri, experiment))
        with tempfile.TemporaryDirectory(prefix="rbptrack-") as name:
            folder = Path(name) / record.fingerprint
            folder.mkdir()
            for file in record.files:
                shutil.copy(self.folder / file, folder)
            record.write(folder)
            try:
                run_id = outbox.deliver(folder)
            except (StoreAway, StoreRefuses) as error:
                outbox.add_copy(folder)
                message = f"{error}; the measurement waits in mlruns/cells for the next command"
                raise type(error)(message) from error
        training_run_id = training_run_id or active_run_id()
        if training_run_id:
            link_training_run(outbox.store, run_id, training_run_id)
        return run_id

    @property
    def _title(self) -> str:
        size = compact(self.measurement.non_embedding_params or 0)
        return f"{self.name}: {self.histogram.num_tokens:,} scored tokens, S = {size}"

    @property
    def _table(self) -> pd.DataFrame:
        metrics = self.metrics()
        rows = []
        for name, value in metrics.items():
            if not name.endswith("_se"):
                error = metrics.get(se_name(name))
                rows.append((metric_label(name), f"{value:.4f}", "" if error is None else f"{error:.4f}"))
        return pd.DataFrame(rows, columns=["metric", "value", "± se"])

    def __repr__(self) -> str:
        return f"{self._title}\n{self._table.to_string(index=False)}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._title)}</p>{self._table.to_html(index=False, border=0)}"


@_names_keywords
def measure(
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    texts: Iterable[str] = (),
    *,
    server: str = "",
    server_name: str = "",
    dataset: str = "texts",
    family: str = "",
    size: str = "",
    seq_len: int | None = None,
    context: int = 32,
    sequence: str = "slide",
    checkpoint: str = "",
    training_tokens: float = 0,
    k: int | Sequence[int] = DEFAULT_KS,
    batch_tokens: int = 0,
    progress: bool = True,
) -> LoggableMeasurement:
    """Measure how a causal language model in memory, or on a vLLM server, ranks the tokens of some texts.

    A model in memory stays on its device and keeps the precision of its weights, even if autocast or TF32 is on. It is
    in evaluation mode during the measurement; afterwards every module has its former mode again. Several threads may
    call this function; they measure one after the other.

    Args:
        model: a causal language model of transformers. Leave it out if `server` is given.
        tokenizer: the model's fast tokenizer. If `server` is given, load the tokenizer from the repository or folder of
            the model, because the number of parameters is read from the config there.
        texts: the texts; each is one document.
        server: the address of a vLLM server that runs the model, such as `http://host:8000`. If the server demands a
            key, put it into the environment variable VLLM_API_KEY. The rank table then has no ties, entropies and first
            choices. `model` cannot be given in addition.
        server_name: the server's name for the model, if the server does not say that it is the tokenizer's model.
        dataset: a name for the texts.
        family: the name of the model's family; default: the model type of transformers, such as `gpt_neox`.
        size: the name of the model's size; default: the number of non-embedding parameters, such as `38.2k`.
        seq_len: the number of tokens in one sequence; default: 512, or the model's maximum if that is smaller.
        context: the number of tokens that each sequence repeats from the previous sequence, if `sequence` is `slide`.
        sequence: how documents become sequences: `slide` (every token is scored once), `truncate` (only the first
            `seq_len` tokens of each text) or `pack` (texts are joined).
        checkpoint: the name of the checkpoint, such as `step1000`, if you measure several checkpoints of one size.
        training_tokens: the number D of tokens that the weights were trained on; 0 if it is unknown.
        k: one or several k of RBP_k to show and log. Values above the size of the vocabulary are left out. RBP_k for
            any other k can be computed from the rank table.
        batch_tokens: the number of tokens in one forward pass; by default it is chosen for the device.
        progress: whether to show a progress bar in notebooks and on terminals.

    Raises:
        BadInput: an argument has a value that is not allowed, nothing can be scored, `seq_len` is larger than the
            model's maximum, the tokenizer does not belong to the model, the model's logits are not the product of its
            hidden states and its output head, or the server does not serve the model.
        MeasurementError: a logit is NaN or infinite, memory does not suffice for a single sequence, or the server does
            not answer any more.

    """
    from rbptrack.corpus.documents import Document
    from rbptrack.corpus.sequences import build_corpus
    from rbptrack.corpus.tokens import tokenise
    from rbptrack.models.architecture import check_compatible, check_token_ids, max_sequence_length

    tokenizer = _check_model_and_tokenizer(model, tokenizer, server)
    in_memory: Any = model
    served = _find_served(tokenizer, server, server_name) if server else None
    architecture: Any = served.architecture if served else in_memory.config
    if seq_len is None:
        limits = [max_sequence_length(architecture), served.found.max_length if served else None]
        seq_len = min(DEFAULT_SEQ_LEN, *filter(None, limits))
    documents = [Document(str(number), (text,)) for number, text in enumerate(list_texts(texts))]
    name = server or type(model).__name__
    config = make_config(
        family=family or str(architecture.model_type),
        size=size,
        checkpoint=checkpoint,
        training_tokens=training_tokens,
        dtype="float32" if served else str(in_memory.dtype).removeprefix("torch."),
        dataset=dataset,
        sequence=sequence,
        seq_len=seq_len,
        context=context,
        k=k,
        batch_tokens=batch_tokens,
        origin=served.origin if served else None,
    )
    check_compatible(name, architecture, tokenizer, seq_len)
    corpus = build_corpus(tokenise(documents, tokenizer, separator=""), tokenizer, config.dataset)
    check_token_ids(name, architecture, tokenizer, int(corpus.token.max(initial=0)))
    folder = Path(tempfile.mkdtemp(prefix="rbptrack-"))
    try:
        if served:
            result = _measure_served(folder, served, tokenizer, corpus, config, show_bar=progress)
        else:
            result = _measure_in_folder(folder, in_memory, tokenizer, corpus, config, show_bar=progress)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)  # the ranks are read from this folder
    return result


def make_config(
    *,
    family: str,
    size: str = "",
    checkpoint: str = "",
    training_tokens: float = 0,
    dtype: str = "float32",
    dataset: str = "texts",
    sequence: str = "slide",
    seq_len: int = DEFAULT_SEQ_LEN,
    context: int = 32,
    k: int | Sequence[int] = DEFAULT_KS,
    batch_tokens: int = 0,
    origin: Mapping[str, str] | None = None,
) -> Config:
    """Make the config for texts in memory. Raises BadInput if a value is not allowed.

    `origin` are the options that name a model on a server. Without them, the weights are in memory.
    """
    model = {"family": family, "size": size, "checkpoint": checkpoint, "training_tokens": training_tokens}
    texts = {"name": dataset, "sequence": sequence, "seq_len": seq_len, "context": context}
    config = config_from_values(
        {
            "model": {**model, "dtype": dtype, **(origin or {"path": _IN_MEMORY})},
            "dataset": {**texts, "files": [_IN_MEMORY], "split": "all"},
            "k": {"values": _list_ks(k)},
            "engine": {"batch_tokens": batch_tokens},
        }
    )
    if config.dataset.sequence is not SequenceRule.slide:
        config.dataset.context = 1  # only `slide` uses it; 1 is the default of the command line
    return config


def _measure_in_folder(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    config: Config,
    *,
    show_bar: bool,
) -> LoggableMeasurement:
    """Measure a corpus with a model, one thread at a time. Writes the ranks and the record into a folder."""
    from rbptrack.engine import Transformers
    from rbptrack.models.causal import evaluation_mode, split_model
    from rbptrack.models.describe import describe_model
    from rbptrack.models.tokenizer import rules_hash

    began = time.time()
    with _MODEL_IN_USE, evaluation_mode(model):
        causal = split_model(model, type(model).__name__)
        config.model.size = config.model.size or compact(causal.non_embedding_params)

        def describe_ranked(ranked: Ranked) -> dict[str, Any]:
            # Weights in memory have no commit, so a hash of the ranks identifies them.
            description = describe(
                config,
                commit=f"ranks:{_hash_ranks(ranked.ranks)}",
                tokenizer_rules=rules_hash(tokenizer),
                texts=corpus.texts_hash,
            )
            return {**description, **describe_model(causal), "folder": "", "split": ""}

        ranked, record = measure_loaded(
            folder,
            config,
            Transformers(causal, corpus, config.engine),
            corpus,
            tokenizer,
            describe_ranked,
            began=began,
            show_bar=show_bar,
        )
    return _loggable(folder, ranked, record)


@dataclass(frozen=True)
class _ServedOrigin:
    """A model on a server, and the repository or folder that its config was read from.

    Attributes:
        origin: the options of the model that name it and its server.
        identity: the commit of the repository, or the hash of the folder's files.
        architecture: the transformers config of the model.
        found: what the server said.

    """

    origin: dict[str, str]
    identity: str
    architecture: Any
    found: ServedModel


def _find_served(tokenizer: Any, server: str, server_name: str) -> _ServedOrigin:
    """Find the model of a tokenizer on a server. Raises BadInput if this is not possible."""
    from rbptrack.models.architecture import load_config, vocab_size

    source = str(tokenizer.name_or_path)
    if not source:
        raise BadInput("tokenizer has no name: load it from the repository or folder of the model on the server")
    check_server_address(server, EngineConfig.key_variable)
    model = ModelConfig(server=server, server_name=server_name)
    key = "path" if Path(source).is_dir() else "repo"
    setattr(model, key, source)
    pinned = pin_model(model)
    architecture = load_config(pinned)
    found = find_served_model(model, EngineConfig(), vocab_size(architecture))
    origin = {key: source, "server": server, "server_name": server_name}
    return _ServedOrigin(origin, pinned.identity, architecture, found)


def _measure_served(
    folder: Path,
    served: _ServedOrigin,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    config: Config,
    *,
    show_bar: bool,
) -> LoggableMeasurement:
    """Measure a corpus with a model on a server. Writes the ranks and the record into a folder."""
    from rbptrack.engine import Served
    from rbptrack.models.architecture import count_parameters, vocab_size
    from rbptrack.models.describe import describe_architecture
    from rbptrack.models.tokenizer import rules_hash

    began = time.time()
    parameters = count_parameters(served.architecture)
    config.model.size = config.model.size or compact(parameters.non_embedding)
    description = describe(
        config, commit=served.identity, tokenizer_rules=rules_hash(tokenizer), texts=corpus.texts_hash
    )
    fields = {**describe_architecture(served.architecture, parameters), **served.found.facts(), "split": ""}
    engine = Served(config.model, served.found, corpus, vocab_size(served.architecture), config.engine)
    ranked, record = measure_loaded(
        folder, config, engine, corpus, tokenizer, lambda _: {**description, **fields}, began=began, show_bar=show_bar
    )
    return _loggable(folder, ranked, record)


def _loggable(folder: Path, ranked: Ranked, record: MeasurementRecord) -> LoggableMeasurement:
    return LoggableMeasurement(
        measurement=record.measurement,
        counts=ranked.sums.counts,
        histogram=ranked.sums.histogram,
        folder=folder,
    )


def _hash_ranks(ranks: RankTable) -> str:
    digest = hashlib.sha256()
    for column in (ranks.above, ranks.column("logprob")):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _list_ks(k: Any) -> list[Any]:
    """Return one or several k as a list. Integers of numpy become those of Python; the config refuses wrong values."""
    values = list(k) if isinstance(k, Iterable) and not isinstance(k, str | bytes) else [k]
    return [int(value) if isinstance(value, np.integer) else value for value in values]


def list_texts(texts: Iterable[str]) -> list[str]:
    """Return texts as a list. Raises BadInput if one of them is not a text, or if all are empty."""
    # Tables and mappings are refused, because iterating over them would yield their column names, not their texts.
    if isinstance(texts, str | bytes | Mapping | pd.DataFrame) or not isinstance(texts, Iterable):
        raise BadInput(f"texts must be a list of texts, one document each; got {type(texts).__name__}")
    listed = list(texts)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise BadInput(f"texts[{number}] must be a text; got {text!r:.60}")
        if _SURROGATE.search(text):
            raise BadInput(
                f"texts[{number}] is not valid Unicode: it has a lone surrogate. Decode its bytes with "
                f"errors='replace'; got {text!r:.60}"
            )
    if not any(listed):
        raise BadInput(f"nothing to score: all {len(listed)} texts are empty")
    return listed


def _check_model_and_tokenizer(model: Any, tokenizer: Any, server: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer. Raises BadInput if it or the model cannot be used, or if there are two models."""
    from rbptrack.models.tokenizer import check_tokenizer

    if tokenizer is None:
        raise BadInput("tokenizer= is missing: give the model's fast tokenizer")
    check_tokenizer(tokenizer)
    checked: PreTrainedTokenizerBase = tokenizer
    if server:
        if model is not None:
            raise BadInput("give either a model in memory or server=, the address of a server, but not both")
        return checked
    if not hasattr(model, "base_model"):
        raise BadInput(f"model must be a causal language model of transformers; got {type(model).__name__}")
    peft_config = getattr(model, "active_peft_config", None)
    if getattr(peft_config, "is_prompt_learning", False):
        raise BadInput(
            f"model is a {type(model).__name__} with virtual tokens (prompt learning), which cannot be measured. "
            "Measure its base model"
        )
    return checked


@_names_keywords
def runs(
    where: str = "",
    *,
    family: str | Sequence[str] = (),
    size: str | Sequence[str] = (),
    model: str | Sequence[str] = (),
    dataset: str | Sequence[str] = (),
    sweep: str | Sequence[str] = (),
    tracking_uri: str = "",
    experiment: str = "",
) -> StoredRuns:
    """Select measurements from a tracking store.

    The attribute `frame` of the result has one row for each measurement. The method `ranks("nano-6k/stdlib")` of the
    result reads a rank table. Each filter takes one or several patterns, such as `pythia*`. A pattern that begins with
    `!`, such as `!pythia-old`, excludes.

    Args:
        where: a condition on the columns of `frame`, such as `seq_len == 256 and ce < 4`.
        family: patterns of families.
        size: patterns of sizes.
        model: patterns of models; `nano-6k` and `nano/6k` name the same model.
        dataset: patterns of datasets.
        sweep: patterns of sweeps. A sweep includes the measurements that it reused.
        tracking_uri: the address of the tracking store; default: MLFLOW_TRACKING_URI, or else MLflow's own store in
            the working folder.
        experiment: the name of the MLflow experiment; default: MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.

    Raises:
        BadInput: the store cannot be read, or no measurement passes the filters.
        StoreAway: the store does not answer.

    """
    if not isinstance(where, str):
        raise BadInput(f"where must be a text with a condition, such as 'ce < 4'; got {where!r:.60}")
    filters = Filters(
        where,
        _list_patterns("family", family),
        _list_patterns("size", size),
        _list_patterns("model", model),
        _list_patterns("dataset", dataset),
        _list_patterns("sweep", sweep),
    )
    selected = Store(tracking_uri, experiment).runs(filters)
    return StoredRuns(selected.frame, selected.store)


def _list_patterns(name: str, value: str | Sequence[str]) -> list[str]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list | tuple) or not all(isinstance(pattern, str) for pattern in patterns):
        raise BadInput(f"{name} must be a pattern or a list of patterns; got {value!r:.60}")
    return list(patterns)


@_names_keywords
def laws(runs: Runs, k: int | Sequence[int] = HEADLINE_KS) -> pd.DataFrame:
    """Fit the law y = A S^-alpha over the sizes S of each family, for y = CE and y = -ln RBP_k.

    Args:
        runs: measurements that `rbptrack.runs` selected.
        k: one or several k of RBP_k.

    Returns:
        One row for each family, dataset and metric. `low` and `high` are the ends of the 95% interval of alpha, and
        `sizes` is the number of sizes. Families with a single size are left out.

    Raises:
        BadInput: `runs` is not a result of `rbptrack.runs`, or a k is not a positive integer.

    """
    _check_runs(runs)
    rows = []
    for family, counts in read_families(runs, _list_ks(k), min_sizes=2):
        for metric, law in laws_by_metric(family.s, counts).items():
            low, high = law.alpha.interval()
            exponent = {"alpha": law.alpha.value, "low": low, "high": high}
            rows.append({**family.keys, "metric": metric, **exponent, "A": law.a, "R2": law.r2, "sizes": law.sizes})
    return pd.DataFrame(rows, columns=["family", "dataset", "metric", "alpha", "low", "high", "A", "R2", "sizes"])


@_names_keywords
def compare(
    a: str | LoggableMeasurement,
    b: str | LoggableMeasurement,
    *,
    k: int | Sequence[int] = HEADLINE_KS,
    tracking_uri: str = "",
    experiment: str = "",
) -> Report:
    """Compare two measurements of the same tokens, token by token.

    Args:
        a: the first measurement: the result of `measure`, or the name of a measurement in the tracking store, such as
            `nano-6k/stdlib`.
        b: the second measurement. Changes are those from the first to the second.
        k: one or several k of RBP_k.
        tracking_uri: the address of the tracking store; default: MLFLOW_TRACKING_URI, or else MLflow's own store in
            the working folder.
        experiment: the name of the MLflow experiment; default: MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.

    Returns:
        A report. `results` has the change of each metric with its interval, `tables` the tokens and documents that
        change most, and `figures` the change of each document and RBP_k of both against k.

    Raises:
        BadInput: the measurements do not exist, did not score the same tokens, or are the same.

    """
    if a is b:
        raise BadInput("compare needs two measurements; a and b are the same one")
    if isinstance(a, LoggableMeasurement) and isinstance(b, LoggableMeasurement):
        pair: Runs = _runs_in_memory([a, b])
        first, second = pair
    elif isinstance(a, str) and isinstance(b, str):
        pair = Store(tracking_uri, experiment).runs()
        first, second = pair.row(a), pair.row(b)
    else:
        raise BadInput("compare takes two results of measure, or two names of measurements in the store")
    report, _ = comparison_report(pair, first, second, _list_ks(k))
    return _with_themed_figures(report)


class _InMemory(RankStore):
    """Reads the ranks of measurements that are not logged. The ID of a run is its place in the list."""

    def __init__(self, measurements: Sequence[LoggableMeasurement]) -> None:
        self._measurements = measurements

    def ranks(self, run_id: str, columns: Sequence[str] | None = None) -> RankTable:
        return self._measurements[int(run_id)].ranks

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        return self._measurements[int(run_id)].token_texts

    def documents(self, run_id: str) -> pd.DataFrame:
        return pd.read_parquet(self._measurements[int(run_id)].folder / DOCUMENTS_FILE)

    def groups(self, run_id: str) -> Sequence[str]:
        return [str(group) for group in self.documents(run_id)["group"]]


def _runs_in_memory(measurements: Sequence[LoggableMeasurement]) -> Runs:
    rows = [each.measurement.columns() | {"run_id": str(number)} for number, each in enumerate(measurements)]
    return Runs(pd.DataFrame(rows), _InMemory(measurements))


@_names_keywords
def report(runs: Runs, path: str | Path = "", *, analyzers: str | Sequence[str] = ()) -> dict[str, Report]:
    """Run the analyzers on measurements, and write the page with their results. The reports are not logged.

    Args:
        runs: measurements that `rbptrack.runs` selected.
        path: the file of the page, such as `report.html`; empty for no page.
        analyzers: the analyzers to run, one or several patterns of names; by default all.

    Returns:
        The reports with results, by the name of the analyzer. A report has `results` and `tables` (DataFrames) and
        `figures` (charts).

    Raises:
        BadInput: no analyzer has such a name, or the name of the page does not end in .html.

    """
    _check_runs(runs)
    if path and Path(path).suffix != ".html":
        raise BadInput(f"the name of a page must end in .html; got {str(path)!r:.60}")
    classes = find_plugins(ANALYZERS).load_matching(_list_patterns("analyzers", analyzers))
    analyses = run_analyzers(runs, [analyzer() for analyzer in classes], processes=1)
    for analysis in analyses:
        if analysis.problem:
            print_problem(analysis.problem)
    if path:
        write_whole(Path(path), render(runs, analyses))
    return {each.name: _with_themed_figures(each.report) for each in analyses if each.report and each.has_results}


def _check_runs(runs: object) -> None:
    if not isinstance(runs, Runs):
        raise BadInput(f"runs must be the result of rbptrack.runs(); got {type(runs).__name__}")


def _with_themed_figures(report: Report) -> Report:
    show_without_network()
    report.figures = {name: themed(figure) for name, figure in report.figures.items()}
    return report


class StoredRuns(Runs):
    """Measurements that `runs` read from a tracking store.

    A selection, such as `runs[runs["ce"] < 4]`, has the same methods.
    """

    def analyze(self, analyzer: str, **options: object) -> Report:
        """Run an analyzer and return its report. The report is not logged.

        Args:
            analyzer: the name of the analyzer, as `rbptrack plugins` lists it.
            **options: values for the analyzer's options, such as `k=[1, 10]`.

        Raises:
            BadInput: the analyzer or an option does not exist, or an option has a value that is not allowed.
            RbptrackError: the analyzer cannot use these measurements, or it failed.

        """
        plugin = make_plugin(find_plugins(ANALYZERS).load(str(analyzer)), options)
        return _with_themed_figures(run_analyzer(plugin, self))
