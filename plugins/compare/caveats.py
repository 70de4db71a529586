"""Sentences that limit a comparison: models split in half precision, other tokens, imports without ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .pairs import Pair
from .rows import ModelRow


def caveats(pairs: list[Pair], models: list[ModelRow]) -> Iterator[str]:
    """Yield what limits the comparison of these pairs and models."""
    for side in {side.path: side for pair in pairs for side in (pair.a, pair.b)}.values():
        moved = side.family.column("split_difference")
        if np.isfinite(moved).any():
            yield (
                f"{side.path}: {np.isfinite(moved).sum()} of {len(moved)} models were split in half precision, which "
                f"moved some ranks (logits differ by up to {np.nanmax(moved):.2g} of the largest from the whole "
                "model's): differences of a few places against them are of the split, not of the models."
            )
    for pair in (pair for pair in pairs if pair.same_dataset and pair.other_tokens):
        instead = "whole words and bits per byte, as here" if pair.a.words and pair.b.words else "nats of the text"
        text = f"{pair.keys['A']} and {pair.keys['B']} cut {pair.keys['on']} into different tokens: compare {instead}"
        yield f"{text}, not RBP_k or CE."
    for a, b in dict.fromkeys((row.A, row.B) for row in models if not row.documents > 0):
        yield (
            f"{a} and {b}: imported without ranks; logged values, taken to be of the same texts, with logged "
            "standard errors. Without these a difference is undecided."
        )
