"""The Python API: `rbptrack.measure`, `rbptrack.runs`, `rbptrack.analyze`; see docs/python.md.

Nothing here needs a config file. What is measured is logged only where `log` of a measurement is called.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rbptrack.analysis.contract import Report, Runs
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.console import compact
from rbptrack.errors import BadInput
from rbptrack.measurement import Measurement
from rbptrack.ranks import DocumentCounts
from rbptrack.reporting.discovery import discover
from rbptrack.sources.fingerprint import SCORING_VERSION, fingerprint
from rbptrack.tracking import Connection, MeasurementTags, Reader, Writer
from rbptrack.tracking.record import Record, add_artifacts, k_metrics
from rbptrack.tracking.schema import HEADLINE_KS, MeasurementParams, software_versions

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

KS = (1, 3, 10, 30, 100)


class _Folder:
    """A temporary folder that goes when nothing refers to it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="rbptrack-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class LoggableMeasurement(Measurement):
    """A measurement that knows which model and texts it is of, so that it can be logged.

    Attributes:
        family: the model's family; by default the architecture's name.
        size: its size label; by default S, shortened.
        dataset: name of the texts.
        params: what else determines the numbers, as a run's params.

    """

    family: str
    size: str
    dataset: str
    params: MeasurementParams
    _folder: _Folder = field(repr=False)  # holds the rank table while this object lives

    @property
    def model(self) -> str:
        """The model's name: family and size joined, and the revision of a checkpoint: `pythia-70m@step1000`."""
        return f"{self.family}-{self.size}" + (f"@{self.params.revision}" if self.params.revision != "main" else "")

    @property
    def non_embedding_params(self) -> int:
        """S, counted from the module."""
        return self.params.non_embedding_params or 0

    def metrics(self, ks: Sequence[int] = KS) -> dict[str, float]:
        """CE and rbp_<k> with their standard errors (`<metric>_se`) from resampling documents; k above |V| left out."""
        return k_metrics(self.histogram, self._document_counts(ks))

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
        record = Record(about.title, about.tags() | (tags or {}), self.params.params() | software_versions())
        counts = self._document_counts(ks)
        record.add_results(self, non_embedding_params=self.non_embedding_params, counts=counts)
        digest = str(self.params.texts_hash)[:36]  # as much as MLflow takes
        record.dataset = {"name": self.dataset, "digest": digest, "source": "texts in memory", "profile": "{}"}
        with tempfile.TemporaryDirectory() as name:
            add_artifacts(Path(name), ranks=self.path, histogram=self.histogram, title=about.title)
            return Writer(connection).deliver(record, Path(name))

    def _document_counts(self, ks: Sequence[int]) -> DocumentCounts:
        return self.ranks.document_counts([k for k in ks if k <= self.histogram.vocab_size])

    def _fingerprint(self) -> str:
        """The numbers themselves stand for the weights, which are in memory and may be trained on."""
        content = hashlib.sha256()
        ranks = self.ranks
        for name in ("greater", "ties", "logprob"):
            content.update(np.ascontiguousarray(ranks.column(name)).tobytes())
        settings = replace(self.params, device=None).params()
        return fingerprint(
            {"model": self.model, "measured": content.hexdigest(), "scoring": SCORING_VERSION, **settings}
        )

    def __str__(self) -> str:
        shown = ", ".join(f"RBP_{k} {self.rbp(k):.4f}" for k in HEADLINE_KS if k <= self.histogram.vocab_size)
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
    revision: str = "main",
    batch_tokens: int | None = None,
) -> LoggableMeasurement:
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
        revision: names a checkpoint (`step1000`), where several of one size are measured.
        batch_tokens: tokens of one forward pass; by default the engine's own choice.

    Raises:
        BadInput: nothing to score, sequences longer than the model's maximum, a tokenizer that is not the model's, or
            an architecture whose logits are not its hidden states times its head.
        MeasurementError: the logits hold a NaN or an infinity.

    """
    import torch

    from rbptrack.config.schema import Candidates, DatasetConfig, EngineConfig, Rank, SequenceRule
    from rbptrack.corpus.documents import Document
    from rbptrack.corpus.sequences import build_corpus
    from rbptrack.engine.measure import measure as measure_corpus
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
        result = measure_corpus(split, corpus, ks=ks, engine=engine, folder=folder.path)
    finally:
        model.train(training)
    architecture: Any = model.config
    family, size = family or str(architecture.model_type), size or compact(split.non_embedding_params)
    params = MeasurementParams(
        repo=None,
        revision=revision,
        training_tokens=None,
        commit=None,  # weights in memory have none that others could look up
        dtype=str(model.dtype).removeprefix("torch."),
        tf32=split.device.type == "cuda" and torch.get_float32_matmul_precision() != "highest",
        non_embedding_params=split.non_embedding_params,
        total_params=split.total_params,
        vocab_size=split.vocab_size,
        device=str(split.device),
        split_difference=None,
        dataset_repo=None,
        dataset_commit=None,
        sequence=sequence,
        seq_len=seq_len,
        context=context,
        texts_hash=corpus.texts_hash,
        num_documents=len(corpus.document_ids),
        candidates=Candidates.vocabulary.value,
        rank=Rank.paper.value,
    )
    found = {f.name: getattr(result, f.name) for f in fields(result)}
    return LoggableMeasurement(**found, family=family, size=size, dataset=dataset, params=params, _folder=folder)


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
