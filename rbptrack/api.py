"""The Python API: `rbptrack.measure`, `rbptrack.runs`, `rbptrack.analyze`; see docs/python.md.

Nothing here needs a config file. What is measured is logged only where `Measurement.log` is called.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rbptrack.analysis.contract import Report, Runs
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.console import compact
from rbptrack.errors import BadInput
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.reporting.discovery import discover
from rbptrack.sources.fingerprint import SCORING_VERSION, fingerprint
from rbptrack.tracking import Connection, MeasurementTags, Reader, Writer
from rbptrack.tracking.record import Record, add_artifacts, curves, k_metrics, size_metrics

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rbptrack.engine import measure as loop

KS = (1, 3, 10, 30, 100)


class _Folder:
    """A temporary folder that goes when nothing refers to it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="rbptrack-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class Measurement:
    """What a model says about texts: every token's rank, and all that derives from it.

    Attributes:
        model: its name; family and size joined.
        family: its family; by default the architecture's name.
        size: its size label; by default S, shortened.
        dataset: name of the texts.
        non_embedding_params: S, counted from the module.
        facts: what else determines the numbers or was found: sequence rule, precision, hash of the texts.

    """

    model: str
    family: str
    size: str
    dataset: str
    non_embedding_params: int
    facts: dict[str, object]
    _result: loop.Measurement = field(repr=False)
    _folder: _Folder = field(repr=False)  # holds the rank table while this object lives

    @property
    def ce(self) -> float:
        """Mean of -ln p(target) over scored tokens, nats."""
        return self._result.ce

    def rbp(self, k: int) -> float:
        """RBP_k, the share of scored tokens with rank <= k. BadInput unless 1 <= k <= |V|."""
        return self._result.rbp(k)

    @property
    def num_tokens(self) -> int:
        """How many tokens were scored."""
        return self._result.num_tokens

    @property
    def tie_rate(self) -> float:
        """Share of scored tokens whose logit another entry equals."""
        return self._result.tie_rate

    @property
    def bits_per_byte(self) -> float:
        """Bits that the model spends per UTF-8 byte of scored text."""
        return self._result.bits_per_byte

    @property
    def ranks(self) -> RankTable:
        """One row per scored token, in text order; read from disk at each call."""
        return self._result.ranks

    @property
    def histogram(self) -> RankHistogram:
        """Exact counts by rank."""
        return self._result.histogram

    def metrics(self, ks: Sequence[int] = KS) -> dict[str, float]:
        """Ce and rbp_<k> with their standard errors (`<metric>_se`) from resampling documents; k above |V| left out."""
        kept = [k for k in ks if k <= self.histogram.vocab_size]
        return k_metrics(self.histogram, self.ranks.document_counts(kept))

    def log(
        self,
        *,
        ks: Sequence[int] = KS,
        tracking_uri: str = "",
        experiment: str = "rbptrack",
        sweep: str = "",
        tags: dict[str, str] | None = None,
    ) -> str:
        """Log as a run that reads like one of the command line's; returns its run id.

        Logged twice, the same numbers of the same model and texts are one run: the second call returns the first id.

        Args:
            ks: the k of the metrics rbp_<k>.
            tracking_uri: where; by default MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db.
            experiment: MLflow's experiment.
            sweep: a name that ties runs together; `runs(sweep=...)` finds them by it.
            tags: of your own.

        Raises:
            BadInput: the store cannot be written.
            StoreAway: the store does not answer.

        """
        connection = Connection(TrackingConfig(uri=tracking_uri, experiment=experiment))
        about = MeasurementTags(self._fingerprint(), self.family, self.size, self.model, self.dataset, sweep)
        if known := Reader(connection).find(about.fingerprint):
            return known
        record = Record(about.title, about.tags() | (tags or {}), {k: str(v) for k, v in self.facts.items()})
        record.ended = record.started
        record.metrics = self.metrics(ks) | size_metrics(self.non_embedding_params)
        record.metrics |= {"num_tokens": self.num_tokens, "tie_rate": self.tie_rate}
        record.metrics |= {"bits_per_byte": self.bits_per_byte}
        record.curves = curves(self.histogram)
        digest = str(self.facts["dataset.texts_hash"])[:36]
        record.dataset = {"name": self.dataset, "digest": digest, "source": "texts in memory", "profile": "{}"}
        with tempfile.TemporaryDirectory() as name:
            add_artifacts(Path(name), ranks=self._result.path, histogram=self.histogram, title=about.title)
            return Writer(connection).deliver(record, Path(name))

    def _fingerprint(self) -> str:
        """The numbers themselves stand for the weights, which are in memory and may be trained on."""
        content = hashlib.sha256()
        ranks = self.ranks
        for name in ("greater", "ties", "logprob"):
            content.update(np.ascontiguousarray(ranks.column(name)).tobytes())
        return fingerprint({"model": self.model, "measured": content.hexdigest(), **self.facts})

    def __str__(self) -> str:
        shown = ", ".join(f"RBP_{k} {self.rbp(k):.4f}" for k in (1, 10, 100) if k <= self.histogram.vocab_size)
        return f"{self.model} / {self.dataset}: {self.num_tokens:,} tokens, CE {self.ce:.4f}, {shown}"


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    dataset: str = "texts",
    family: str = "",
    size: str = "",
    seq_len: int = 512,
    context: int = 32,
    sequence: str = "slide",
    batch_tokens: int | None = None,
) -> Measurement:
    """Rank every token of texts with a transformers causal language model that you have already.

    The model stays on its device and in its precision; its training mode is restored.

    Args:
        model: a causal language model of transformers.
        tokenizer: its fast tokenizer.
        texts: one document each.
        dataset: a name for them.
        family: by default the architecture's name.
        size: by default S, shortened (`38.2k`).
        seq_len: tokens that the model sees together; at most its maximum.
        context: with `slide`, the tokens that each sequence repeats of the one before.
        sequence: `slide` (every token scored once), `truncate` (the first seq_len tokens of each text) or `pack`.
        batch_tokens: tokens of one forward pass; by default the engine's own choice.

    Raises:
        BadInput: nothing to score, sequences longer than the model's maximum, a tokenizer that is not the model's, or
            an architecture whose logits are not its hidden states times its head.
        MeasurementError: the logits hold a NaN or an infinity.

    """
    from rbptrack.config.schema import DatasetConfig, EngineConfig, SequenceRule
    from rbptrack.corpus.documents import Document
    from rbptrack.corpus.sequences import build_corpus
    from rbptrack.engine import measure as loop
    from rbptrack.models.architecture import check_fit
    from rbptrack.models.loading import of_module

    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise BadInput(f"texts must be a list of strings, one document each; got {type(texts).__name__}")
    if not any(texts):
        raise BadInput(f"nothing to score: {len(texts)} texts, none with a character in it")
    if sequence not in SequenceRule.__members__:
        raise BadInput(f"sequence={sequence!r}: expected one of {', '.join(SequenceRule.__members__)}")
    rule = SequenceRule[sequence]
    if rule is not SequenceRule.slide:
        context = 1
    elif not 1 <= context < seq_len:
        raise BadInput(f"context must be between 1 and seq_len - 1 = {seq_len - 1}; got {context}")
    check_fit(type(model).__name__, model.config, tokenizer, seq_len)
    config = DatasetConfig(name=dataset, split="all", sequence=rule, seq_len=seq_len, context=context)
    corpus = build_corpus([Document(str(i), (text,)) for i, text in enumerate(texts)], tokenizer, config)
    training = model.training
    folder = _Folder()
    try:
        split = of_module(model, type(model).__name__)
        engine = EngineConfig() if batch_tokens is None else EngineConfig(batch_tokens=batch_tokens)
        ks = tuple(k for k in KS if k <= split.vocab_size)
        result = loop.measure(split, corpus, ks=ks, engine=engine, folder=folder.path)
    finally:
        model.train(training)
    architecture: Any = model.config
    family, size = family or str(architecture.model_type), size or compact(split.non_embedding_params)
    facts = {
        "model.dtype": str(model.dtype).removeprefix("torch."),
        "model.non_embedding_params": split.non_embedding_params,
        "model.total_params": split.total_params,
        "model.vocab_size": split.vocab_size,
        "dataset.sequence": sequence,
        "dataset.seq_len": seq_len,
        "dataset.context": context,
        "dataset.texts_hash": corpus.texts_hash,
        "dataset.num_documents": len(corpus.document_ids),
        "versions.scoring": SCORING_VERSION,
    }
    return Measurement(f"{family}-{size}", family, size, dataset, split.non_embedding_params, facts, result, folder)


def runs(
    *,
    family: str | Sequence[str] = (),
    size: str | Sequence[str] = (),
    dataset: str | Sequence[str] = (),
    sweep: str | Sequence[str] = (),
    tracking_uri: str = "",
    experiment: str = "rbptrack",
) -> Runs:
    """Finished measurements: `Runs.frame` has one row each, `Runs.ranks(run_id)` their ranks.

    Args:
        family: patterns that the family must match (`pythia*`), one or several; all, if none is given.
        size: likewise.
        dataset: likewise.
        sweep: likewise; a sweep covers what it found measured already, too.
        tracking_uri: where; by default MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db.
        experiment: MLflow's experiment.

    Raises:
        BadInput: the store cannot be read, or nothing passes; says what there is.
        StoreAway: the store does not answer.

    """
    given = {"family": family, "size": size, "dataset": dataset, "sweep": sweep}
    patterns = {key: [value] if isinstance(value, str) else list(value) for key, value in given.items()}
    connection = Connection(TrackingConfig(uri=tracking_uri, experiment=experiment))
    return Reader(connection).runs(FilterConfig(**patterns))


class ShownReport(Report):
    """A report that a notebook displays: its sentences, figures and tables."""

    title: str = ""

    def _repr_html_(self) -> str:
        from rbptrack.reporting.page import svg

        parts = [f"<h3>{escape(self.title)}</h3>", *(f"<p>{escape(note)}</p>" for note in self.notes)]
        for name, drawing in self.drawings.items():
            caption = escape(drawing.caption or name)
            parts.append(f"<figure>{svg(drawing.figure)}<figcaption>{caption}</figcaption></figure>")
        for name, table in self.tables.items():
            html = table.frame.to_html(index=False, border=0, na_rep="", float_format=lambda v: f"{v:.4g}")
            parts.append(f"<details><summary>{escape(name)} ({len(table.frame)} rows)</summary>{html}</details>")
        return "\n".join(parts)


def analyze(runs: Runs, analyzer: str, **options: object) -> ShownReport:
    """Run an analyzer on measurements; nothing is logged.

    Args:
        runs: of `rbptrack.runs`.
        analyzer: its name, as in `python -m rbptrack plugins`.
        **options: its fields.

    Raises:
        BadInput: there is no such analyzer or option.
        RbptrackError: what the analyzer says of its input.

    """
    cls = discover().select(analyzer)
    known = [f.name for f in fields(cls)]
    for name in options:
        if name not in known:
            raise BadInput(f"{analyzer} has no option {name}. Options: {', '.join(known) or 'none'}")
    found = cls(**options).analyze(runs)
    shown = ShownReport(**{f.name: getattr(found, f.name) for f in fields(found)})
    shown.title = f"{analyzer}: {(cls.__doc__ or '').strip().splitlines()[0]}"
    return shown
