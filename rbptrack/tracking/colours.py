"""Choose a colour for the runs of each dataset on MLflow's page. A tag of the experiment keeps the colours."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

_MAX_EXPERIMENT_TAG = 20_000  # largest number of characters in the tag of an experiment
_PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e6a700",
    "#56b4e9",
    "#8a5a2b",
    "#7f3fbf",
    "#7a7a7a",
    "#c21e56",
)


def with_colours(datasets: Iterable[str], text: str) -> dict[str, str]:
    """Return the colours of datasets in a text (JSON), with a colour for each of some further datasets.

    The first datasets are left out if the result as JSON would be longer than a tag may be.
    """
    colours = read_json_tag(text)
    for dataset in datasets:
        if dataset not in colours:
            unused = [colour for colour in _PALETTE if colour not in colours.values()]
            colours[dataset] = unused[0] if unused else _PALETTE[len(colours) % len(_PALETTE)]
    while len(json.dumps(colours)) > _MAX_EXPERIMENT_TAG:
        del colours[next(iter(colours))]
    return colours


def read_json_tag(text: str) -> dict[str, Any]:
    """Return the JSON object in the value of a tag. It is empty if the value is damaged."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
