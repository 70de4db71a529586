"""What a bench runs: a configured model on a configured dataset, or a published shape on random documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbptrack.config.compose import Composer
from rbptrack.config.patterns import chosen
from rbptrack.config.schema import Config, ModelConfig
from rbptrack.sweep.resolve import Resolver

if TYPE_CHECKING:  # torch loads only where a model runs
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel


def configured(group: str, pattern: str) -> list[str]:
    """The names of a config group that match a pattern, in order of size; BadInput if none does."""
    return chosen(group, pattern, Composer("config", []).options(group))


def load(
    resolver: Resolver, model: str, dataset: str, *, tokens: int, overrides: tuple[str, ...] = ()
) -> tuple[CausalModel, Corpus]:
    """A configured model, and the first tokens of a configured dataset.

    Args:
        resolver: keeps what several subjects share.
        model: its config's name, `nano/2m`.
        dataset: its config's name.
        tokens: about how many the corpus has.
        overrides: of the config, such as `model.dtype=bfloat16`.

    """
    config: Config = Composer("config", []).compose_typed([f"model={model}", f"dataset={dataset}", *overrides])
    cell = resolver.resolve(config)
    return cell.load_model(), cell.load_corpus().first_tokens(tokens)


def make(settings: ModelConfig, *, tokens: int, seq_len: int, vocabulary: int) -> tuple[CausalModel, Corpus]:
    """A model with random weights, and random documents.

    Args:
        settings: its family is the shape's name; dtype, tf32 and device as for a configured model.
        tokens: about how many the corpus has.
        seq_len: of the longest document.
        vocabulary: |V|; 0: the shape's own.

    """
    import torch

    from rbptrack.bench.shapes import random_corpus, random_model
    from rbptrack.models.device import place

    device, _ = place(settings)
    dtype = getattr(torch, settings.dtype.value)
    model = random_model(settings.family, device=device, dtype=dtype, vocabulary=vocabulary)
    return model, random_corpus(tokens=tokens, seq_len=seq_len, vocab_size=model.vocab_size)
