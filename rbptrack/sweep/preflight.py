"""What can be known to be wrong before hours are spent."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import CellConfig, SweepConfig
from rbptrack.sweep.resolve import Resolved, Resolver
from rbptrack.tracking.store import Store


def check(
    settings: SweepConfig, cells: Sequence[CellConfig], resolver: Resolver, *, ks_were_typed: bool
) -> list[Resolved]:
    """Check the tracking store, and each cell's model, tokenizer, dataset and k; returns what each resolves to.

    Args:
        settings: of the sweep.
        cells: all of them.
        resolver: of this process.
        ks_were_typed: whether the user asked for these k. Of the default list, what is too large for every vocabulary
            is left out later, with a note.

    Raises:
        BadInput: the first thing that is wrong.
        StoreAway: the tracking store does not answer.

    """
    Store(settings.tracking).check_writable()
    resolved = [resolver.resolve(cell) for cell in cells]
    largest = max(cell.candidates for cell in resolved)
    too_large = sorted({k for cell in cells for k in cell.k.values if k > largest})
    if too_large and ks_were_typed:
        raise BadInput(
            f"k must be between 1 and {largest}, the largest vocabulary of the models asked for; "
            f"got {', '.join(map(str, too_large))}"
        )
    return resolved
