"""The Python API: `rbptrack.measure`, `rbptrack.runs`, `rbptrack.analyze`; see docs/python.md.

Nothing here needs a config file. A measurement is logged only where `log` of a measurement is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Sized
from contextlib import ExitStack, nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rbptrack.analysis.discovery import ANALYZERS, discover
from rbptrack.analysis.plugin import help_line
from rbptrack.analysis.runs import Runs
from rbptrack.analysis.shown import ShownReport, ShownRuns, several
from rbptrack.base.errors import BadInput, unknown
from rbptrack.base.files import TemporaryFolder
from rbptrack.base.words import compact
from rbptrack.config.schema import (
    Candidates,
    DatasetConfig,
    EngineConfig,
    FilterConfig,
    Rank,
    SequenceRule,
    TrackingConfig,
)
from rbptrack.console.progress import AnalyzerProgress, CellProgress
from rbptrack.reporting.computing import computed
from rbptrack.tracking.measurement import DEFAULT_KS, LoggableMeasurement
from rbptrack.tracking.params import MeasurementParams
from rbptrack.tracking.store import Store

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    *,
    dataset: str = "texts",
    family: str = "",
    size: str = "",
    seq_len: int = 512,
    context: int = 32,
    sequence: str = "slide",
    revision: str = "main",
    k: int | Sequence[int] = DEFAULT_KS,
    batch_tokens: int | None = None,
    progress: bool = True,
) -> LoggableMeasurement:
    """Rank every token of texts with a transformers causal language model that you have already.

    The model stays on its device and in the precision of its weights, autocast or not; it is given back as it was,
    each part in training mode or not. Several threads may measure one model: one after the other.

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
        k: of RBP_k, one or several, that are shown and logged; above |V| they are left out. The ranks hold every k.
        batch_tokens: tokens of one forward pass; by default the engine's own choice.
        progress: show a bar in notebooks and on terminals.

    Raises:
        BadInput: nothing to score, sequences longer than the model's maximum, a tokenizer that is not the model's, or
            an architecture whose logits are not its hidden states times its head.
        MeasurementError: the logits hold a NaN or an infinity.

    """
    from rbptrack.engine.measure import measure as measure_corpus
    from rbptrack.models.architecture import check_fit
    from rbptrack.models.backbone import Backbone
    from rbptrack.models.borrowed import borrowed
    from rbptrack.models.causal import of_module

    texts = _checked(texts)
    ks = _checked_ks(k)
    _check_parts(model, tokenizer)
    config = _dataset_config(dataset, sequence, seq_len, context)
    check_fit(type(model).__name__, model.config, tokenizer, seq_len)
    corpus = _corpus(texts, tokenizer, config)
    folder = TemporaryFolder()
    with borrowed(model), ExitStack() as given_back:
        split = of_module(model, type(model).__name__)
        if isinstance(split.backbone, Backbone):
            given_back.callback(split.backbone.release)
        engine = EngineConfig() if batch_tokens is None else EngineConfig(batch_tokens=batch_tokens)
        within = tuple(number for number in ks if number <= split.vocab_size)
        name = family or str(model.config.model_type)
        bar = CellProgress(f"{name} / {dataset}", total=corpus.num_targets, progress_label="") if progress else None
        with bar or nullcontext():
            result = measure_corpus(
                split, corpus, ks=within, engine=engine, folder=folder.path, progress=bar or (lambda tokens: None)
            )
    architecture: Any = model.config
    return LoggableMeasurement(
        **{f.name: getattr(result, f.name) for f in fields(result)},
        family=family or str(architecture.model_type),
        size=size or compact(split.non_embedding_params),
        dataset=dataset,
        params=_params(model, split, corpus, config, revision),
        ks=ks,
        folder=folder,
    )


def _checked(texts: Iterable[str]) -> list[str]:
    """Return the texts as a list, of whatever they come; BadInput where one of them is none, or all are empty."""
    kind = type(texts).__name__
    given = list(texts) if isinstance(texts, Iterable) and not isinstance(texts, str | bytes) else None
    if given is None or not all(isinstance(text, str) for text in given):
        raise BadInput(f"texts must be a list of strings, one document each; got {kind}")
    if not any(given):
        raise BadInput(f"nothing to score: {len(given)} texts, none with a character in it")
    for number, text in enumerate(given):
        if not text.isascii() and (surrogate := re.search("[\ud800-\udfff]", text)):
            raise BadInput(
                f"texts[{number}] holds {surrogate[0]!r} at character {surrogate.start()}, half of a character "
                "(a lone surrogate): decode it anew, for example with errors='replace'"
            )
    return given


def _checked_ks(k: int | Sequence[int]) -> tuple[int, ...]:
    ks = tuple(several(k))
    if not ks or min(ks) < 1:
        raise BadInput(f"k must be 1 or more; got {', '.join(map(str, ks)) or 'none'}")
    return ks


def _check_parts(model: Any, tokenizer: Any) -> None:
    """Raise BadInput for a wrapper around a model, one that cannot be measured as it computes, and for a slow
    tokenizer.
    """
    from transformers import PreTrainedModel

    from rbptrack.models.device import is_spread

    if not isinstance(model, PreTrainedModel) and not hasattr(model, "base_model"):
        inside = next((name for name in ("module", "_orig_mod", "model") if hasattr(model, name)), "")
        remedy = f"give its .{inside}" if inside else "give a causal language model of transformers"
        raise BadInput(f"model is a {type(model).__name__}, not a model of transformers: {remedy}")
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise BadInput(
            f"model is a {type(model).__name__} whose adapter adds virtual tokens (prompt learning): ranks would be "
            "those of its base. Measure the base, or an adapter that changes weights, such as LoRA"
        )
    if any(parameter.is_meta for parameter in model.parameters()) and not is_spread(model):
        raise BadInput("model has parameters on the device meta, which hold no numbers: load its weights")
    if not getattr(tokenizer, "is_fast", False):
        raise BadInput(
            f"tokenizer is a {type(tokenizer).__name__}, which does not say where its tokens stand in a text: give the "
            "fast one, AutoTokenizer.from_pretrained(..., use_fast=True)"
        )


def _dataset_config(name: str, sequence: str, seq_len: int, context: int) -> DatasetConfig:
    """Return the rule of sequences as the command line's config has it; BadInput where it is none."""
    if sequence not in SequenceRule.__members__:
        raise BadInput(f"sequence={sequence!r}: expected one of {', '.join(SequenceRule.__members__)}")
    rule = SequenceRule[sequence]
    if rule is not SequenceRule.slide:
        context = 1
    elif not 1 <= context < seq_len:
        raise BadInput(f"context must be between 1 and seq_len - 1 = {seq_len - 1}; got {context}")
    return DatasetConfig(name=name, split="all", sequence=rule, seq_len=seq_len, context=context)


def _corpus(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, config: DatasetConfig) -> Corpus:
    from rbptrack.corpus.documents import Document
    from rbptrack.corpus.sequences import build_corpus

    return build_corpus([Document(str(i), (text,)) for i, text in enumerate(texts)], tokenizer, config)


def _params(
    model: PreTrainedModel, split: CausalModel, corpus: Corpus, config: DatasetConfig, revision: str
) -> MeasurementParams:
    """Return the params that the command line would have logged for the same measurement."""
    import torch

    return MeasurementParams(
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
        dataset_repo=None,
        dataset_commit=None,
        sequence=config.sequence.value,
        seq_len=config.seq_len,
        context=config.context,
        texts_hash=corpus.texts_hash,
        num_documents=len(corpus.document_ids),
        prefix=None,
        candidates=Candidates.vocabulary.value,
        rank=Rank.paper.value,
    )


def runs(
    *,
    family: str | Sequence[str] = (),
    size: str | Sequence[str] = (),
    model: str | Sequence[str] = (),
    dataset: str | Sequence[str] = (),
    sweep: str | Sequence[str] = (),
    tracking_uri: str = "",
    experiment: str = "rbptrack",
) -> ShownRuns:
    """Return finished measurements: `frame` has a row per measurement, `ranks("nano-6k/stdlib")` loads its ranks.

    Args:
        family: patterns that the family must match (`pythia*`, `!pythia-old`), one or several; all, if none is given.
        size: patterns of sizes.
        model: patterns of models; `nano-6k` and `nano/6k` are the same.
        dataset: patterns of datasets.
        sweep: patterns of sweeps; a sweep includes the measurements that it reused.
        tracking_uri: where; by default MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db.
        experiment: MLflow's experiment.

    Raises:
        BadInput: the store cannot be read, or nothing passes; the message lists the measurements.
        StoreAway: the store does not answer.

    """
    given = {"family": family, "size": size, "model": model, "dataset": dataset, "sweep": sweep}
    patterns = {key: [value] if isinstance(value, str) else list(value) for key, value in given.items()}
    for key, value in given.items():
        if not patterns[key] and not isinstance(value, Sized):
            raise BadInput(f"{key}= gives no pattern: the {type(value).__name__} is empty, or was read before")
    store = Store(TrackingConfig(uri=tracking_uri, experiment=experiment))
    return ShownRuns.of(store.reader.runs(FilterConfig(**patterns)))


def analyze(runs: Runs, analyzer: str, **options: object) -> ShownReport:
    """Run an analyzer on measurements; nothing is logged.

    Args:
        runs: of `rbptrack.runs`.
        analyzer: its name, as in `python -m rbptrack plugins`.
        **options: its fields.

    Raises:
        BadInput: unknown analyzer or option.
        AnalyzerFault: the analyzer has a fault of its own.
        RbptrackError: what the analyzer says of its input.

    """
    cls = discover(ANALYZERS).select(analyzer)
    option_names = [f.name for f in fields(cls)]
    for name in options:
        if name not in option_names:
            raise unknown(f"option of {analyzer}", name, option_names)
    with AnalyzerProgress(analyzer, len(runs)) as progress:
        runs.watch(progress)
        try:
            computation = computed(cls(**options), runs)
        finally:
            runs.watch(None)
    shown = ShownReport(**{f.name: getattr(computation, f.name) for f in fields(computation)})
    shown.title = f"{analyzer}: {help_line(cls)}"
    return shown
