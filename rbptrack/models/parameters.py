"""Counts of a model's parameters; torch is not needed to read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """Counts of a model's parameters, tied ones once.

    Attributes:
        non_embedding: S.
        total: all.
        head: rows times columns of the output head.
        other: those of towers that read no text (images, audio), which S leaves out; 0 for a text model.

    """

    non_embedding: int
    total: int
    head: int
    other: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What to say of how S was counted; nothing for a text model."""
        if not self.other:
            return ()
        return (
            f"S counts the text part of a multimodal model: {self.other:,} of {self.total:,} parameters are not its",
        )
