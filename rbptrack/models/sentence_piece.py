"""Builds fast tokenizers from the vocabularies of sentencepiece, which tokenizer.model and GGUF files hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE = "▁"  # sentencepiece writes a space as this character


def pair_merges(pieces: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Return the merges of a BPE vocabulary of sentencepiece, which joins the two pieces with the best joint score."""
    from transformers.tokenization_utils_base import generate_merges

    ids = {piece: number for number, piece in enumerate(pieces)}
    merges: list[tuple[str, str]] = generate_merges(ids, dict(zip(pieces, scores, strict=True)))
    return merges


def set_sentencepiece_rules(backend: Tokenizer, normalisers: Sequence[Any], *, prefix: bool) -> None:
    """Make a tokenizer normalise texts, add a space before a text if `prefix`, and write spaces as it does."""
    from tokenizers import decoders, normalizers

    spaces = [normalizers.Prepend(SPACE)] if prefix else []
    backend.normalizer = normalizers.Sequence([*normalisers, *spaces, normalizers.Replace(" ", SPACE)])
    backend.pre_tokenizer = None
    steps: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
