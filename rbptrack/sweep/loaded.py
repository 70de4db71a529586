"""Measure a corpus with an engine, and write the files of the measurement into a folder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rbptrack.base.errors import BadInput
from rbptrack.base.files import write_whole
from rbptrack.base.parquet import write_table
from rbptrack.config.schema import Config, Rank
from rbptrack.console.progress import token_bar
from rbptrack.measurement.build import from_ranks
from rbptrack.measurement.describe import config_yaml
from rbptrack.measurement.document import measurement_title
from rbptrack.measurement.files import CONFIG_FILE, DOCUMENTS_FILE, HISTOGRAM_FILE, TOKENS_FILE, UNSCORED_FILE
from rbptrack.measurement.record import MeasurementRecord

if TYPE_CHECKING:  # these modules import torch and transformers, which are loaded only to run a model
    from transformers import PreTrainedTokenizerBase

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.engine import Engine, Ranked

_HIGH_CE_NATS = 0.5  # a CE above ln |V| by more than this gets a note; untrained weights stay below it


def measure_loaded(
    folder: Path,
    config: Config,
    engine: Engine,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    describe: Callable[[Ranked], dict[str, Any]],
    *,
    began: float,
    notes: Sequence[str] = (),
    show_bar: bool = True,
) -> tuple[Ranked, MeasurementRecord]:
    """Measure a corpus with an engine. Writes the ranks, the other files and the record into a folder.

    Args:
        folder: the folder for the files of the measurement.
        config: the configuration of the cell.
        engine: what computes the scores.
        corpus: the dataset as sequences of the model's tokens.
        tokenizer: the model's tokenizer.
        describe: a function that returns the fields of the measurement that follow neither from its ranks nor from the
            corpus.
        began: when the measurement began, in seconds since 1970.
        notes: remarks that a reader of the metrics must know.
        show_bar: whether to show a progress bar.

    Raises:
        BadInput: every k is larger than the vocabulary.
        MeasurementError: a logit is NaN or infinite, or memory does not suffice for a single sequence.

    """
    from rbptrack.engine import measure

    name = measurement_title(config.model.name, config.dataset.name)
    ks, notes_on_ks = _usable_ks(config, engine.vocab_size)
    with token_bar(corpus.num_targets, name, hidden=not show_bar) as progress:
        ranked = measure(
            engine,
            corpus,
            ks=ks,
            folder=folder,
            strict=config.rank is Rank.strict,
            progress=progress.update,
        )
    documents = corpus.document_table()
    groups = documents["group"].astype(str).tolist() if "group" in documents.columns else ()
    measurement = from_ranks(
        {**describe(ranked), "documents_hash": corpus.texts_hash, "documents": len(corpus.document_ids)},
        ranked.sums,
        groups=groups,
        notes=(*ranked.notes, *notes, *notes_on_ks, *_note_on_high_ce(config.dataset.name, ranked, engine.vocab_size)),
        **ranked.results(),
    )
    token_texts = corpus.token_texts(tokenizer, ranked.first_choices())
    ranked.sums.histogram.write(folder / HISTOGRAM_FILE)
    write_table(folder / DOCUMENTS_FILE, pa.Table.from_pandas(documents, preserve_index=False))
    write_table(folder / UNSCORED_FILE, pa.Table.from_pandas(corpus.unscored_table(), preserve_index=False))
    write_whole(folder / TOKENS_FILE, json.dumps({str(token): text for token, text in token_texts.items()}))
    write_whole(folder / CONFIG_FILE, config_yaml(config))
    record = MeasurementRecord(measurement=measurement, began=began)
    record.write(folder)
    return ranked, record


def _usable_ks(config: Config, vocab_size: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the values of k up to the size of the vocabulary, and a note that names larger ones.

    Raises BadInput if every k is larger than the vocabulary.
    """
    requested = tuple(dict.fromkeys(config.k.values))
    usable = tuple(k for k in requested if k <= vocab_size)
    too_large = [str(k) for k in requested if k > vocab_size]
    if not usable:
        raise BadInput(
            f"k must be at most {vocab_size}, the vocabulary of {config.model.name}; got {', '.join(too_large)}"
        )
    if not too_large:
        return usable, ()
    verb = "is" if len(too_large) == 1 else "are"
    return usable, (f"k={', '.join(too_large)} {verb} left out: the vocabulary has only {vocab_size:,} entries",)


def _note_on_high_ce(dataset: str, ranked: Ranked, vocab_size: int) -> tuple[str, ...]:
    """Return a note if CE is far above the CE of a uniform guess over the vocabulary. Otherwise return no note."""
    ce = ranked.sums.histogram.ce
    ce_of_uniform_guess = math.log(vocab_size)
    if ce <= ce_of_uniform_guess + _HIGH_CE_NATS:
        return ()
    return (
        f"CE on {dataset} is {ce:.2f}, far above ln |V| = {ce_of_uniform_guess:.2f}, the CE of a uniform "
        "guess: check that weights and tokenizer belong to the same model",
    )
