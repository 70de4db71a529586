"""Read and write overrides in Hydra's grammar, such as `model.seed=1,2`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice, product

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from rbptrack.base.errors import BadInput
from rbptrack.base.secrets import shown_address

MAX_CELLS = 10_000
"""The largest number of cells that one command line may ask for."""

# Hydra reads other words as numbers, truth values or signs of its grammar: 123e4567 is infinity for it.
_NEEDS_NO_QUOTES = re.compile(r"(?!(?:true|false|null|nan|inf)$)[a-z_][\w./:-]*", re.ASCII | re.IGNORECASE)


def parse_override(override: str) -> Override:
    """Parse an override with Hydra's parser. Raises BadInput if it cannot be read."""
    try:
        override.encode()  # raises UnicodeEncodeError if the word holds bytes that are not text
        return OverridesParser.create().parse_override(override)
    except (HydraException, UnicodeEncodeError) as error:
        key, equals, value = override.partition("=")
        shown = key + equals + (shown_address(value) if key == "tracking.uri" else value)
        raise BadInput(
            f"{shown} cannot be read: quote a value with special characters, as in \"key='a(b)'\""
        ) from error


def quote(text: str) -> str:
    """Quote a text as a value in Hydra's grammar, if it needs quotes.

    A backslash escapes a quote. Other backslashes are doubled only before a quote and at the end.
    """
    if _NEEDS_NO_QUOTES.fullmatch(text):
        return text
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)
    return f"'{escaped}'"


def overrides_of_cells(overrides: Sequence[str]) -> Iterator[list[str]]:
    """Return the overrides of each cell, in the order of Hydra's basic sweeper.

    A key may have several values. There is one cell for each combination of values. Raises BadInput immediately if
    there are more than 10,000 cells.
    """
    alternatives_by_position = []  # for each override: its settings, one for each value
    for override in map(parse_override, overrides):
        if override.is_sweep_override():
            key = override.get_key_element()
            values = list(islice(override.sweep_string_iterator(), MAX_CELLS + 1))
            alternatives_by_position.append([f"{key}={value}" for value in values])
        else:
            alternatives_by_position.append([str(override.input_line)])
    if math.prod(map(len, alternatives_by_position)) > MAX_CELLS:
        raise BadInput(f"this command asks for more than {MAX_CELLS:,} cells: sweep over fewer values at a time")
    return (list(cell) for cell in product(*alternatives_by_position))
