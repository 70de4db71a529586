"""What the simulations of `studies.validity` share: designs, documents with heavy tails, and the registry of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy import stats

from rbptrack.stats.bootstrap import document_weights

BOOTSTRAPS = 300
Array = np.ndarray[Any, Any]
Outcome = Mapping[str, bool | None]


@dataclass(frozen=True)
class Design:
    """What a row simulates: sizes m, documents, their tails, scatter tau between models in ln y, and other settings."""

    m: int = 6
    documents: int = 200
    tails: str = "t3"
    tau: float = 0.01
    more: tuple[tuple[str, float], ...] = ()

    def __getitem__(self, name: str) -> float:
        return dict(self.more)[name]

    def __str__(self) -> str:
        rest = "".join(f" {name}={value:g}" for name, value in self.more)
        return f"m={self.m} D={self.documents} {self.tails} tau={self.tau:g}{rest}"


@dataclass(frozen=True)
class Experiment:
    """A simulation and the claims that it tests: claim -> nominal probability; remark: why some are not met."""

    name: str
    truth: str
    claims: Mapping[str, float]
    designs: Sequence[Design]
    draw: Callable[[np.random.Generator, Design], Outcome]
    remark: str = ""


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    name: str, *, truth: str, claims: Mapping[str, float], designs: Sequence[Design], remark: str = ""
) -> Callable[[Callable[[np.random.Generator, Design], Outcome]], Callable[[np.random.Generator, Design], Outcome]]:
    """Register a simulation; see the module's docstring."""

    def register(
        draw: Callable[[np.random.Generator, Design], Outcome],
    ) -> Callable[[np.random.Generator, Design], Outcome]:
        EXPERIMENTS[name] = Experiment(name, truth, claims, designs, draw, remark)
        return draw

    return register


def grid(
    *,
    m: Sequence[int] = (4, 6, 10),
    documents: Sequence[int] = (50, 200, 1000),
    tails: Sequence[str] = ("t3", "skewed"),
    tau: Sequence[float] = (0.0, 0.01),
    **more: Sequence[float],
) -> list[Design]:
    """Return every combination, the settings that matter most to a reader (6 sizes, 200 documents) first."""
    combinations = [
        Design(*values[:4], more=tuple(zip(more, values[4:], strict=True)))
        for values in product(m, documents, tails, tau, *more.values())
    ]
    return sorted(combinations, key=lambda d: (d.documents != 200, d.m not in (6, 10), d.tails != "t3"))


def sizes(m: int) -> Array:
    """Sizes S of a family: a factor 4 apart up to 6, then within three and a half decades."""
    return np.geomspace(1e6, 1e6 * 4.0 ** (min(m, 7) - 1), m)


MEAN_T3 = float(stats.t(3).expect(lambda t: max(1 + 0.25 * t, 0.02)))  # of a difficulty, cut off at its lowest
_LENGTHS = 0.7  # spread of the logarithm of documents' lengths


def texts(rng: np.random.Generator, truth: Array, design: Design) -> tuple[Array, Array]:
    """Return what a family measures on documents with heavy tails, and its paired bootstraps.

    A document has a length (lognormal), a difficulty and a slope in ln S that all sizes and metrics share, and an own
    deviation in each. Its tails are those of t with 3 degrees of freedom or a skewed lognormal.

    Args:
        rng: of the draws.
        truth: true values, (m, metrics).
        design: how many documents, and their tails.

    Returns:
        Values, (m, metrics), and bootstraps, (m, BOOTSTRAPS, metrics).

    """
    m, metrics = truth.shape
    count = design.documents
    x = np.linspace(-1, 1, m)
    if design.tails == "t3":
        difficulty, slope = 0.25 * rng.standard_t(3, count), 0.03 * rng.standard_t(3, count)
        mean = MEAN_T3
    else:
        difficulty = np.exp(0.8 * rng.standard_normal(count) - 0.32) - 1
        slope = 0.03 * (np.exp(0.8 * rng.standard_normal(count) - 0.32) - 1)
        mean = 1.0
    own = 0.05 * rng.standard_normal((count, m, 1)) + 0.02 * rng.standard_normal((count, m, metrics))
    difficulty, slope = np.maximum(1 + difficulty, 0.02) / mean, np.maximum(slope, -0.9)  # no document has y below 0
    relative = difficulty[:, None, None] * (1 + slope[:, None, None] * x[None, :, None]) * np.maximum(1 + own, 0.1)
    length = np.exp(_LENGTHS * rng.standard_normal(count))
    weights = document_weights(count, replicates=BOOTSTRAPS) * length
    drawn = np.tensordot(weights / weights.sum(axis=1, keepdims=True), relative, axes=1)  # (bootstraps, m, metrics)
    once = np.tensordot(length / length.sum(), relative, axes=1)
    return truth * once, truth[:, None, :] * np.moveaxis(drawn, 0, 1)


def counted(design: Design) -> float:
    """As how many equal documents those of `texts` count, whose lengths differ."""
    return design.documents / float(np.exp(_LENGTHS**2))


def scatter(rng: np.random.Generator, design: Design, metrics: int = 1) -> Array:
    """Factors exp(tau z) of each model, (m, metrics): a part that its metrics share, and a part of their own."""
    shared, own = rng.standard_normal((design.m, 1)), rng.standard_normal((design.m, metrics))
    return np.exp(design.tau * (np.sqrt(0.8) * shared + np.sqrt(0.2) * own))


def covers(low: float, true: float, high: float) -> bool:
    """Return whether an interval holds the truth."""
    return bool(low <= true <= high)
