"""The functions for Python: `measure` a model in memory, read `runs` from a store, fit `laws`, and `analyze` runs.

These functions need no config file. A measurement is logged only if its method `log` is called.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rbptrack.analysis.family import read_families
from rbptrack.analysis.plugin import make_plugin
from rbptrack.analysis.report import Report
from rbptrack.analysis.runs import Filters, Runs
from rbptrack.base.errors import BadInput, StoreAway, StoreRefuses
from rbptrack.base.formatting import compact
from rbptrack.config.check import check_name
from rbptrack.config.compose import config_from_values
from rbptrack.config.schema import Config, SequenceRule
from rbptrack.discovery import ANALYZERS, find_plugins, run_analyzer
from rbptrack.figures.charts import rank_distribution, themed
from rbptrack.ranks import RankTable
from rbptrack.ranks.measurement import Measurement
from rbptrack.ranks.names import HEADLINE_KS, metric_label, rbp_name, se_name
from rbptrack.stats.laws import laws_by_metric
from rbptrack.sweep.cells import cell_identity
from rbptrack.sweep.measuring import measure_loaded
from rbptrack.tracking import Facts, Outbox, Record, Store
from rbptrack.tracking.names import Metric, Tag

if TYPE_CHECKING:
    import altair
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rbptrack.corpus.sequences import Corpus

DEFAULT_KS = (1, 3, 10, 30, 100)
DEFAULT_SEQ_LEN = 512

_IN_MEMORY = "(in memory)"  # stands in the configuration in place of the paths of weights and texts
_MODEL_IN_USE = threading.Lock()  # held while a user's model is in evaluation mode
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True, repr=False)
class LoggedMeasurement(Measurement):
    """A measurement made by `measure`. It can be printed, plotted and logged to MLflow.

    Attributes:
        record: the tags, params and metrics that a tracking store keeps. `folder` holds the files that become the
            run's artifacts, such as the tables of documents and tokens.

    """

    record: Record

    @property
    def model(self) -> str:
        """The name of the model, such as `pythia-70m@step1000`."""
        return self.record.tags[Tag.MODEL]

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self.record.tags[Tag.DATASET]

    @property
    def non_embedding_params(self) -> int:
        """S: the number of parameters without embeddings and output head, counted from the module."""
        return int(self.record.metrics[Metric.NON_EMBEDDING_PARAMS])

    def metrics(self) -> dict[str, float]:
        """Return the values of `ce` (in nats per token) and `rbp_<k>` by name.

        With at least 20 documents, `<metric>_se` is the standard error over documents.
        """
        values = self.record.metrics
        names = [name for metric in ("ce", *map(rbp_name, self.counts.ks)) for name in (metric, se_name(metric))]
        return {name: values[name] for name in names if name in values}

    def plot(self) -> altair.TopLevelMixin:
        """Draw the distribution of ranks as an Altair chart."""
        chart: altair.TopLevelMixin = themed(rank_distribution(self.histogram, self.record.name))
        return chart

    def log(self, *, tracking_uri: str = "", experiment: str = "", sweep: str = "") -> str:
        """Log the measurement as a run, as the command line does, and return the run id.

        If the store already has a measurement with equal ranks of this model on this dataset, no second run is made.

        Args:
            tracking_uri: the address of the tracking store; default: MLFLOW_TRACKING_URI, or else MLflow's own store
                in the working folder.
            experiment: the name of the MLflow experiment; default: MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.
            sweep: the name of the sweep that the run belongs to; `runs(sweep=...)` selects by it.

        Raises:
            BadInput: the store cannot be written.
            StoreAway: the store does not answer. The measurement waits in mlruns/cells for the next command.
            StoreRefuses: the store refuses the request. The measurement waits in mlruns/cells for the next command.

        """
        if sweep != "":
            check_name("sweep", sweep)
        outbox = Outbox(Store(tracking_uri, experiment))
        record = replace(self.record, tags=self.record.tags | ({Tag.SWEEP: sweep} if sweep else {}))
        with tempfile.TemporaryDirectory(prefix="rbptrack-") as name:
            folder = Path(name) / record.fingerprint
            folder.mkdir()
            for file in record.files:
                shutil.copy(self.folder / file, folder)
            record.write(folder)
            try:
                return outbox.deliver(folder)
            except (StoreAway, StoreRefuses) as error:
                outbox.keep(folder)
                waits = f"{error}; the measurement waits in mlruns/cells for the next command"
                raise type(error)(waits) from error

    @property
    def _title(self) -> str:
        size = compact(self.non_embedding_params)
        return f"{self.record.name}: {self.num_tokens:,} scored tokens, S = {size}"

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


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    *,
    dataset: str = "texts",
    family: str = "",
    size: str = "",
    seq_len: int | None = None,
    context: int = 32,
    sequence: str = "slide",
    revision: str = "main",
    training_tokens: float = 0,
    k: int | Sequence[int] = DEFAULT_KS,
    batch_tokens: int = 0,
    progress: bool = True,
) -> LoggedMeasurement:
    """Rank every token of some texts with a causal language model that is in memory.

    The model stays on its device and keeps the precision of its weights, even if autocast or TF32 is on. It is in
    evaluation mode during the measurement; afterwards every module returns to its former mode. Several threads may call
    this function; they measure one after the other.

    Args:
        model: a causal language model of transformers.
        tokenizer: the model's fast tokenizer.
        texts: the texts; each is one document.
        dataset: a name for the texts.
        family: the name of the model's family; default: the model type of transformers, such as `gpt_neox`.
        size: the name of the model's size; default: the number of non-embedding parameters, such as `38.2k`.
        seq_len: the number of tokens in one sequence; default: 512, or the model's maximum if that is smaller.
        context: the number of tokens that each sequence repeats from the one before, if `sequence` is `slide`.
        sequence: how documents become sequences: `slide` (every token is scored once), `truncate` (only the first
            `seq_len` tokens of each text) or `pack` (texts are joined).
        revision: the name of the checkpoint, such as `step1000`, if you measure several checkpoints of one size.
        training_tokens: the number D of tokens that the weights were trained on; 0 if it is unknown.
        k: one or several k of RBP_k to show and log. Values above the size of the vocabulary are left out. The rank
            table holds what any other k needs.
        batch_tokens: the number of tokens in one forward pass; 0 lets rbptrack choose.
        progress: whether to show a progress bar in notebooks and on terminals.

    Raises:
        BadInput: an argument has a value that is not allowed, nothing can be scored, `seq_len` is larger than the
            model's maximum, the tokenizer does not belong to the model, or the model's logits are not the product of
            its hidden states and its output head.
        MeasurementError: a logit is NaN or infinite.

    """
    from rbptrack.corpus.documents import Document
    from rbptrack.corpus.sequences import build_corpus
    from rbptrack.corpus.tokens import tokenise
    from rbptrack.models.architecture import check_compatible, max_sequence_length

    _check_objects(model, tokenizer)
    if seq_len is None:
        seq_len = min(DEFAULT_SEQ_LEN, max_sequence_length(model.config) or DEFAULT_SEQ_LEN)
    documents = [Document(str(number), (text,)) for number, text in enumerate(check_texts(texts))]
    config = config_from_values(
        {
            "model": {
                "family": family or str(model.config.model_type),
                "size": size,
                "path": _IN_MEMORY,
                "revision": revision,
                "training_tokens": training_tokens,
                "dtype": str(model.dtype).removeprefix("torch."),
            },
            "dataset": {
                "name": dataset,
                "files": [_IN_MEMORY],
                "split": "all",
                "sequence": sequence,
                "seq_len": seq_len,
                "context": context,
            },
            "k": {"values": _ks(k)},
            "engine": {"batch_tokens": batch_tokens},
        }
    )
    if config.dataset.sequence is not SequenceRule.slide:
        config.dataset.context = 1
    check_compatible(type(model).__name__, model.config, tokenizer, seq_len)
    corpus = build_corpus(tokenise(documents, tokenizer, "", ""), tokenizer, config.dataset)
    folder = Path(tempfile.mkdtemp(prefix="rbptrack-"))
    try:
        result = _measure_in(folder, model, tokenizer, corpus, config, show_bar=progress)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)  # the ranks are read from this folder
    return result


def _measure_in(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    config: Config,
    *,
    show_bar: bool,
) -> LoggedMeasurement:
    """Measure a corpus with a model, and write the ranks to a folder. Only one thread at a time measures."""
    from rbptrack.models.causal import evaluation_mode, split_model
    from rbptrack.models.tokenizer import rules_hash

    began = time.time()
    with _MODEL_IN_USE, evaluation_mode(model):
        causal = split_model(model, type(model).__name__)
        config.model.size = config.model.size or compact(causal.non_embedding_params)

        def facts(measurement: Measurement) -> Facts:
            """Describe the measurement. A hash of the ranks identifies the weights, which have no commit in memory."""
            identity = cell_identity(
                config,
                weights=f"ranks:{_ranks_hash(measurement.ranks)}",
                tokenizer="",
                tokenizer_rules=rules_hash(tokenizer),
                texts=corpus.texts_hash,
            )
            return Facts.collect(config, identity, {}, model=causal, corpus=corpus)

        measured, record = measure_loaded(
            folder, config, causal, corpus, tokenizer, facts, began=began, show_bar=show_bar
        )
    return LoggedMeasurement(**{entry.name: getattr(measured, entry.name) for entry in fields(measured)}, record=record)


def _ranks_hash(ranks: RankTable) -> str:
    content = hashlib.sha256()
    for name in ("greater", "ties", "logprob"):
        content.update(np.ascontiguousarray(ranks.column(name)).tobytes())
    return content.hexdigest()


def _ks(k: Any) -> list[Any]:
    """Return one k or several as a list, with numpy integers as Python integers. Other values are left as they are."""
    ks = [k]
    if isinstance(k, Iterable) and not isinstance(k, str | bytes):
        ks = list(k)
    return [int(each) if isinstance(each, np.integer) else each for each in ks]


def check_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts as a list. Raises BadInput if one of them is not a text, or if all are empty."""
    # A table or a mapping yields the names of its columns, which are not the texts.
    if isinstance(texts, str | bytes | Mapping | pd.DataFrame) or not isinstance(texts, Iterable):
        raise BadInput(f"texts must be a list of texts, one document each; got {type(texts).__name__}")
    checked = list(texts)
    for number, text in enumerate(checked):
        if not isinstance(text, str) or _SURROGATE.search(text):
            raise BadInput(f"texts[{number}] must be a text without half characters; got {text!r:.60}")
    if not any(checked):
        raise BadInput(f"nothing to score: all {len(checked)} texts are empty")
    return checked


def _check_objects(model: Any, tokenizer: Any) -> None:
    """Raise BadInput if the model is not a model of transformers, or if the tokenizer is not usable."""
    from rbptrack.models.tokenizer import check_tokenizer

    if not hasattr(model, "base_model"):
        raise BadInput(f"model is a {type(model).__name__}: pass a causal language model of transformers")
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise BadInput(
            f"model is a {type(model).__name__} with virtual tokens (prompt learning), which cannot be measured: "
            "measure its base model"
        )
    check_tokenizer(tokenizer)


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
) -> Runs:
    """Select finished measurements from a tracking store.

    The attribute `frame` of the result has one row for each measurement. The method `ranks("nano-6k/stdlib")` of the
    result reads a rank table. Each filter takes one pattern or several, such as `pythia*` or `!pythia-old`; a pattern
    with `!` excludes.

    Args:
        where: a condition on the columns of `frame`, such as `seq_len == 256 and ce < 4`.
        family: patterns of families.
        size: patterns of sizes.
        model: patterns of models; `nano-6k` and `nano/6k` name the same model.
        dataset: patterns of datasets.
        sweep: patterns of sweeps. Measurements that a sweep reused belong to it, too.
        tracking_uri: the address of the tracking store; default: MLFLOW_TRACKING_URI, or else MLflow's own store in
            the working folder.
        experiment: the name of the MLflow experiment; default: MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.

    Raises:
        BadInput: the store cannot be read, or no measurement passes the filters. The message lists what the store has.
        StoreAway: the store does not answer.

    """
    if not isinstance(where, str):
        raise BadInput(f"where must be a condition as a text, such as 'ce < 4'; got {where!r:.60}")
    filters = Filters(
        where,
        _patterns("family", family),
        _patterns("size", size),
        _patterns("model", model),
        _patterns("dataset", dataset),
        _patterns("sweep", sweep),
    )
    return Store(tracking_uri, experiment).runs(filters)


def _patterns(name: str, value: str | Sequence[str]) -> list[str]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list | tuple) or not all(isinstance(pattern, str) for pattern in patterns):
        raise BadInput(f"{name} must be a pattern or a list of patterns; got {value!r:.60}")
    return list(patterns)


def laws(runs: Runs, ks: Sequence[int] = HEADLINE_KS) -> pd.DataFrame:
    """Fit the law y = A S^-alpha over the sizes S of each family, to CE and to y = -ln RBP_k.

    Args:
        runs: measurements that `rbptrack.runs` selected.
        ks: the k of RBP_k.

    Returns:
        One row for each family, dataset and metric. `low` and `high` are the ends of alpha's 95% interval, and `sizes`
        is the number of sizes. A family needs at least two sizes.

    """
    rows = []
    for family, counts in read_families(runs, ks, min_sizes=2):
        for metric, law in laws_by_metric(family.s, counts).items():
            low, high = law.alpha.interval()
            numbers = {"alpha": law.alpha.value, "low": low, "high": high}
            rows.append({**family.keys, "metric": metric, **numbers, "A": law.a, "R2": law.r2, "sizes": law.sizes})
    return pd.DataFrame(rows, columns=["family", "dataset", "metric", "alpha", "low", "high", "A", "R2", "sizes"])


def analyze(runs: Runs, analyzer: str, **options: object) -> Report:
    """Run an analyzer on measurements and return its report. Nothing is logged.

    Args:
        runs: measurements that `rbptrack.runs` selected.
        analyzer: the name of the analyzer, as `rbptrack plugins` lists it.
        **options: values for the analyzer's options, such as `ks=[1, 10]`.

    Raises:
        BadInput: the analyzer or an option does not exist, or an option has a value that is not allowed.
        RbptrackError: the analyzer cannot use these measurements, or it failed.

    """
    if not isinstance(runs, Runs):
        raise BadInput(f"runs must be the result of rbptrack.runs(); got {type(runs).__name__}")
    plugin = make_plugin(find_plugins(ANALYZERS).load(str(analyzer)), options)
    report = run_analyzer(plugin, runs)
    report.figures = {name: themed(figure) for name, figure in report.figures.items()}
    return report
