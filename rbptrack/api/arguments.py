"""Check the arguments of the functions for Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

import pandas as pd

from rbptrack.base.errors import BadInput, nearest, suggestion

P = ParamSpec("P")
T = TypeVar("T")

_SURROGATE = re.compile("[\ud800-\udfff]")

_OTHER_KEYWORDS = {
    "device": "The model stays on its device. Move it before, with model.to(device)",
    "dtype": "The model keeps the precision of its weights. Choose it with from_pretrained(..., dtype=...)",
    "batch_size": "Use batch_tokens, the number of tokens in one forward pass",
    "max_length": "Use seq_len, the number of tokens in one sequence",
    "block_size": "Use seq_len, the number of tokens in one sequence",
    "stride": "Use context, the number of tokens that each sequence repeats from the one before",
    "overlap": "Use context, the number of tokens that each sequence repeats from the one before",
    "every": "The Trainer decides when to measure: set eval_strategy and eval_steps in TrainingArguments",
    "name": "Use dataset for the name of the texts, family and size for those of the model",
}
"""What to do in place of a keyword that functions of other libraries have."""


def check_keywords(function: str, given: Iterable[str], allowed: Sequence[str]) -> None:
    """Raise BadInput if a keyword is not an argument of a function. The message names the right keyword."""
    for name in given:
        if name in allowed:
            continue
        near = suggestion(nearest(name, allowed)[:1]).strip()
        remedy = _OTHER_KEYWORDS.get(name) or near or f"Its arguments: {', '.join(allowed)}"
        raise BadInput(f"{function} has no argument {name}. {remedy}")


def names_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that it refuses an unknown keyword in one line, which names the right one."""
    allowed = list(signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        check_keywords(function.__name__, kwargs, allowed)
        return function(*args, **kwargs)

    return call


def list_patterns(name: str, value: str | Sequence[str]) -> list[str]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list | tuple) or not all(isinstance(pattern, str) for pattern in patterns):
        raise BadInput(f"{name} must be a pattern or a list of patterns; got {value!r:.60}")
    return list(patterns)


def list_texts(texts: Iterable[str]) -> list[str]:
    """Return texts as a list. Raises BadInput if one of them is not a text, or if all are empty."""
    # Tables and mappings are refused, because iterating over them would yield their column names, not their texts.
    if isinstance(texts, str | bytes | Mapping | pd.DataFrame) or not isinstance(texts, Iterable):
        raise BadInput(f"texts must be a list of texts, one document each; got {type(texts).__name__}")
    listed = list(texts)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise BadInput(f"texts[{number}] must be a text; got {text!r:.60}")
        if _SURROGATE.search(text):
            raise BadInput(
                f"texts[{number}] is not valid Unicode: it has a lone surrogate. Decode its bytes with "
                f"errors='replace'; got {text!r:.60}"
            )
    if not any(listed):
        raise BadInput(f"nothing to score: all {len(listed)} texts are empty")
    return listed
