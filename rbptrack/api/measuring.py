"""Measure a model in memory or on a server."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rbptrack.api.arguments import list_texts, names_keywords
from rbptrack.api.loggable import LoggableMeasurement
from rbptrack.api.served import find_served, measure_served
from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import compact
from rbptrack.config.compose import config_from_values
from rbptrack.config.schema import Config, SequenceRule
from rbptrack.measurement.describe import describe
from rbptrack.measurement.record import MeasurementRecord
from rbptrack.ranks import RankTable
from rbptrack.ranks.names import check_ks
from rbptrack.sweep.loaded import measure_loaded

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.engine import Ranked

DEFAULT_KS = (1, 3, 10, 30, 100)
DEFAULT_SEQ_LEN = 512

_IN_MEMORY = "(in memory)"  # the path of weights and texts in the configuration, because they have none
_MODEL_IN_USE = threading.Lock()  # held during a measurement, which puts the user's model into evaluation mode


@names_keywords
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
    from rbptrack.models.architecture import max_sequence_length
    from rbptrack.models.compatibility import check_compatible, check_token_ids

    tokenizer = _check_model_and_tokenizer(model, tokenizer, server)
    in_memory: Any = model
    served = find_served(tokenizer, server, server_name) if server else None
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
            ranked, record = measure_served(folder, served, tokenizer, corpus, config, show_bar=progress)
        else:
            ranked, record = _measure_in_memory(folder, in_memory, tokenizer, corpus, config, show_bar=progress)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    result = LoggableMeasurement(
        measurement=record.measurement,
        counts=ranked.sums.counts,
        histogram=ranked.sums.histogram,
        folder=folder,
    )
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
            "k": {"values": check_ks(k)},
            "engine": {"batch_tokens": batch_tokens},
        }
    )
    if config.dataset.sequence is not SequenceRule.slide:
        config.dataset.context = 1  # only `slide` uses it; 1 is the default of the command line
    return config


def _measure_in_memory(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    config: Config,
    *,
    show_bar: bool,
) -> tuple[Ranked, MeasurementRecord]:
    """Measure a corpus with a model, one thread at a time. Writes the ranks and the record into a folder."""
    from rbptrack.engine import Transformers
    from rbptrack.models.describe import describe_model
    from rbptrack.models.evaluation import evaluation_mode
    from rbptrack.models.splitting import split_model
    from rbptrack.models.tokenizer_rules import rules_hash

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

        return measure_loaded(
            folder,
            config,
            Transformers(causal, corpus, config.engine),
            corpus,
            tokenizer,
            describe_ranked,
            began=began,
            show_bar=show_bar,
        )


def _hash_ranks(ranks: RankTable) -> str:
    digest = hashlib.sha256()
    for column in (ranks.above, ranks.column("logprob")):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _check_model_and_tokenizer(model: Any, tokenizer: Any, server: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer. Raises BadInput if it or the model cannot be used, or if there are two models."""
    from rbptrack.models.tokenizer_in_memory import check_tokenizer

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
