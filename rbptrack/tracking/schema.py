"""What a store's runs are tagged with: the names that every writer and reader shares."""

from __future__ import annotations

from dataclasses import dataclass

from rbptrack.version import __version__


@dataclass(frozen=True)
class MeasurementTags:
    """What identifies a measurement in the store.

    Attributes:
        fingerprint: hash of everything that determines its numbers.
        family: the model's family.
        size: the size label as published.
        model: family and size joined.
        dataset: the dataset's name.
        sweep: the sweep that measured it; empty if none did.

    """

    fingerprint: str
    family: str
    size: str
    model: str
    dataset: str
    sweep: str

    @property
    def title(self) -> str:
        """The run's name: `pythia-70m / wiki`."""
        return f"{self.model} / {self.dataset}"

    def tags(self) -> dict[str, str]:
        """The tags of the measurement's run, each with the prefix `rbptrack.`."""
        return {
            "rbptrack.kind": "measurement",
            "rbptrack.version": __version__,
            "rbptrack.fingerprint": self.fingerprint,
            "rbptrack.family": self.family,
            "rbptrack.size": self.size,
            "rbptrack.model": self.model,
            "rbptrack.dataset": self.dataset,
            "rbptrack.sweep": self.sweep,
        }
