"""The interface between a measurement and what computes its scores."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Protocol

from rbptrack.base.errors import MeasurementError
from rbptrack.engine.batches import Batch
from rbptrack.scoring import Scores


class EngineFailed(MeasurementError):
    """An engine cannot score further batches, for example because a server does not answer any more."""


class Engine(Protocol):
    """Turns batches of token ids into scores.

    A class that inherits from this one must define `vocab_size`, `batch_tokens` and `run`.
    """

    @property
    def vocab_size(self) -> int:
        """|V|, the number of entries among which a target is ranked, the target included."""
        ...

    @property
    def batch_tokens(self) -> int:
        """The largest number of tokens of a batch, padding included. Only a batch of one sequence may be longer."""
        ...

    def run(self, batches: Iterable[Batch]) -> Generator[tuple[Batch, Scores]]:
        """Yield each batch with the scores of its targets, in the order of the batches.

        The scores may be on any device. On CUDA, their computation need not have ended when they are yielded. The
        iterator is closed if the caller stops early. Raises EngineFailed if the other batches cannot be scored.
        """
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user on how the scores were computed. They are read after the last batch."""
        return ()

    def results(self) -> dict[str, float]:
        """Return the results that only the engine knows, by field of a measurement. Call it after the last batch."""
        return {}
