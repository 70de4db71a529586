"""The parts of cross-entropy of one family on one dataset, their laws, and their shares in its fall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rbptrack.analysis.families import Family
from rbptrack.ranks import FloatArray
from rbptrack.stats.contrasts import Contrast, contrast
from rbptrack.stats.intervals import Interval
from rbptrack.stats.power_law import PowerLawFit, fit_power_law
from rbptrack.stats.size_laws import positive

from .decomposition import Decomposition, part_covariance, part_errors, shares_of_fall

PARTS = {
    "ce": "CE",
    "error_entropy": "error entropy",
    "self_alignment": "self-alignment",
    "confidence": "confidence",
}
SYMBOLS = {"ce": "CE", "error_entropy": "H(P)", "self_alignment": "KL", "confidence": "-ln Z"}
NATS = {
    "ce": "cross-entropy, nats per token",
    "error_entropy": "H(P) of the shares P(e) of tokens with rank e, plug-in, nats",
    "self_alignment": "KL(P || Q^), plug-in, nats",
    "confidence": "-ln Z_Q, plug-in, nats; may be negative",
    "error_entropy_corrected": "H(P) of unlimited text like this, nats",
    "self_alignment_corrected": "KL(P || Q^) of unlimited text like this, nats",
    "confidence_corrected": "-ln Z_Q of unlimited text like this, nats",
}
FITS = 0.95  # R^2 below which no power law is claimed of a part
_PLUG_IN = ("ce", "error_entropy", "self_alignment", "confidence")
_CORRECTED = ("ce", "error_entropy_corrected", "self_alignment_corrected", "confidence_corrected")


@dataclass(frozen=True)
class Parts:
    """One family on one dataset.

    Attributes:
        family: the measurements.
        values: part -> nats at each size, (m,), by the names of `NATS`; the corrected ones NaN where not known.
        errors: part -> its standard error at each size, (m,).
        laws: of the parts that are positive at every size.
        against_ce: part -> whether its exponent is CE's; only of parts with a law.
        shares: part -> its share in CE's fall over all sizes; empty where CE does not fall or with two sizes.

    """

    family: Family
    values: dict[str, FloatArray] = field(default_factory=dict)
    errors: dict[str, FloatArray] = field(default_factory=dict)
    laws: dict[str, PowerLawFit] = field(default_factory=dict)
    against_ce: dict[str, Contrast] = field(default_factory=dict)
    shares: dict[str, Interval] = field(default_factory=dict)

    @property
    def is_corrected(self) -> bool:
        """Whether every size has ranks enough to be corrected for bias."""
        return bool(np.isfinite(self.values["error_entropy_corrected"]).all())

    @property
    def shown(self) -> dict[str, str]:
        """Each part's name here -> its words: the corrected values where they are known, else those of the tokens."""
        plain = not self.is_corrected
        return {part if part == "ce" or plain else f"{part}_corrected": word for part, word in PARTS.items()}

    @property
    def tested(self) -> dict[str, str]:
        """The same without CE itself."""
        return {part: word for part, word in self.shown.items() if part != "ce"}

    def share_of_ce(self, part: str) -> tuple[float, float]:
        """Return the part over CE, at the smallest and at the largest size."""
        share = self.values[part] / self.values["ce"]
        return float(share[0]), float(share[-1])


def parts_of(family: Family, loaded: Sequence[Decomposition], *, margin: float, level: float) -> Parts:
    """Put the decompositions of a family's sizes together, plug-in and corrected, and fit the laws of its parts.

    Args:
        family: the measurements.
        loaded: the decomposition of each size, (m,).
        margin: share of CE's exponent within which another counts as the same.
        level: nominal coverage of the intervals.

    """
    parts = Parts(family)
    covariance = dict[str, FloatArray]()
    influences = dict[str, FloatArray]()
    plug_in = (np.stack([d.parts for d in loaded]), np.stack([d.influence for d in loaded]))
    of_text = (np.stack([d.corrected for d in loaded]), np.stack([d.corrected_influence for d in loaded]))
    for names, (nats, influence) in ((_PLUG_IN, plug_in), (_CORRECTED, of_text)):
        sampling = part_covariance(influence)
        errors = part_errors(influence, level=level)
        for i, name in enumerate(names):
            if name not in parts.values:  # CE is in both
                parts.values[name] = nats[:, i]
                parts.errors[name] = errors[:, i]
                covariance[name] = sampling[i]
                influences[name] = influence[:, :, i]
        if len(loaded) >= 3 and (shares := shares_of_fall(nats, influence, level=level)):
            parts.shares.update(zip(names[1:], shares, strict=True))
    for name, y in parts.values.items():
        if len(y) >= 3 and positive(y).all():
            sampling_of_logs = covariance[name] / np.outer(y, y)
            parts.laws[name] = fit_power_law(family.s, y, covariance=sampling_of_logs, level=level)
    if ce := parts.laws.get("ce"):
        for name in (name for name in parts.laws if name != "ce"):
            within = max(margin * abs(ce.alpha), 1e-9)
            parts.against_ce[name] = _contrast(parts, influences, name, margin=within, level=level)
    return parts


def _contrast(parts: Parts, influences: dict[str, FloatArray], name: str, *, margin: float, level: float) -> Contrast:
    """Return the exponent of a part against cross-entropy's: the law of their ratio, paired by model and document."""
    y = parts.values[name]
    ce = parts.values["ce"]
    relative = influences[name] / y[:, None] - influences["ce"] / ce[:, None]
    sampling = part_covariance(relative[:, :, None])[0]
    ratio = fit_power_law(parts.family.s, y / ce, covariance=sampling, level=level)
    return contrast(ratio.alpha, ratio.spread, margin=margin, level=level)
