"""Special tokens with which a tokenizer begins every text."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IntArray = npt.NDArray[Any]
_TEXTS = ("a", "1 b")  # a tokenizer may lack the letter


def text_prefix(tokenizer: PreTrainedTokenizerBase) -> IntArray:
    """Return the special tokens with which the tokenizer begins every text: of what it gives an empty one, the
    beginning.
    """
    added, *others = (tokenizer(text, verbose=False)["input_ids"] for text in ("", *_TEXTS))

    def begins(count: int) -> bool:
        rest = len(added) - count  # what the tokenizer ends every text with
        return all(ids[:count] == added[:count] and ids[len(ids) - rest :] == added[count:] for ids in others)

    counts = [count for count in range(len(added) + 1) if begins(count)]
    return np.array(added[: max(counts, default=0)], dtype=np.int32)


def prefix_of_first_version(tokenizer: PreTrainedTokenizerBase) -> IntArray:
    """Return version 0.1's `text_prefix`, which included an unknown "a". Where the two differ, so do measurements."""
    special = set(tokenizer.all_special_ids)
    ids: list[int] = tokenizer(_TEXTS[0], verbose=False)["input_ids"]
    return np.array(list(takewhile(special.__contains__, ids)), dtype=np.int32)
