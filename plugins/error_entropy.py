"""Cross-entropy in three parts, and which of them scales: CE = H(P) + KL(P || Q^) - ln Z_Q.

"What Scales in Cross-Entropy Scaling Law?", arXiv 2510.04067: P(e) is the share of tokens with rank e, Q(e) = exp(mean
ln p(target) given rank e), Z_Q the sum of Q(e) over observed e, Q^ = Q/Z_Q. The parts are error entropy, self-alignment
and confidence. The identity is exact; -ln Z_Q may be negative, and its logarithm is never taken then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from rbptrack.analysis import (
    COLOURS,
    KEYS,
    MARKERS,
    Analyzer,
    Drawing,
    Family,
    Report,
    Runs,
    Unreadable,
    error_bars,
    grid,
    log_axis,
    read_families,
    size_axis,
    style,
)
from rbptrack.stats import (
    Decomposition,
    FloatArray,
    PowerLawFit,
    decompose_table,
    fit_power_law,
    part_covariance,
    shares_of_fall,
)

PARTS = {
    "ce": "CE",
    "error_entropy": "error entropy",
    "self_alignment": "self-alignment",
    "confidence": "confidence",
}
SYMBOLS = {"ce": "CE", "error_entropy": "H(P)", "self_alignment": "KL", "confidence": "-ln Z"}
CORRECTED = "error_entropy_miller_madow"
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "summary": {
        "dataset": KEYS["dataset"],
        "family": KEYS["family"],
        "size": KEYS["size"],
        "CE": "cross-entropy, nats per token: the sum of the next three",
        "H(P)": "error entropy: entropy of the observed ranks, plug-in",
        "KL": "self-alignment: KL(P || Q^)",
        "-ln Z": "confidence",
        "H(P) Miller-Madow": "error entropy, corrected for its downward bias",
    },
    "parts": {
        **KEYS,
        "ce": "cross-entropy, nats per token",
        "ce_se": "its standard error over documents",
        "error_entropy": "H(P) of the shares P(e) of tokens with rank e, plug-in, nats",
        "error_entropy_se": "its standard error",
        "self_alignment": "KL(P || Q^), nats",
        "self_alignment_se": "its standard error",
        "confidence": "-ln Z_Q, nats; may be negative",
        "confidence_se": "its standard error",
        CORRECTED: "H(P) + (K - 1)/(2n), K observed ranks",
    },
    "laws": {
        "dataset": KEYS["dataset"],
        "family": KEYS["family"],
        "part": "of cross-entropy; error_entropy_miller_madow is corrected for its downward bias",
        "alpha": "of part = A S^-alpha; empty where the part is not positive at every size",
        "alpha_low": "lower end of its interval",
        "alpha_high": "upper end",
        "r2": "of that law on log axes",
        "nats_per_factor_10": "change of the part per factor 10 in S, by a line in ln S",
        "nats_low": "lower end of its interval, t distribution over scatter between sizes",
        "nats_high": "upper end",
        "share_of_fall_in_ce": "its part (uncorrected) in CE's fall from the smallest to the largest size",
        "share_se": "standard error over documents",
    },
}


@dataclass(frozen=True)
class Parts:
    """One family on one dataset.

    Attributes:
        family: the measurements.
        values: the parts of each size, nats, (m, 4).
        miller_madow: the correction of H(P), nats, (m,).
        covariance: sampling covariance of each part between sizes, (4, m, m).
        laws: of the parts, and of the corrected H(P), that are positive at every size.
        shares: of CE's fall from the smallest to the largest size, each part's, (3,).
        share_se: their standard errors, (3,).

    """

    family: Family
    values: FloatArray
    miller_madow: FloatArray
    covariance: FloatArray
    laws: dict[str, PowerLawFit]
    shares: FloatArray
    share_se: FloatArray


@dataclass(kw_only=True)
class ErrorEntropy(Analyzer):
    """CE = error entropy + self-alignment - ln confidence; which part scales.

    Attributes:
        level: nominal coverage of the intervals.

    """

    name: ClassVar[str] = "error_entropy"
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Decompose every measurement; laws need at least 3 sizes."""
        report = Report()

        def load(_: Family, run_id: str) -> Decomposition:
            table, histogram = runs.ranks(run_id), runs.histogram(run_id)
            if not abs(table.ce - histogram.ce) < 1e-6:
                raise Unreadable(
                    f"run {run_id}: CE is {table.ce:.6f} by its ranks, {histogram.ce:.6f} by its histogram."
                )
            return decompose_table(table, histogram)

        found = [self._parts(family, loaded) for family, loaded in read_families(runs, load, report.notes)]
        if not found:
            raise report.nothing_found("no measurement to decompose")
        rows = [row for parts in found for row in _part_rows(parts)]
        laws = [row for parts in found for row in self._law_rows(parts)]
        report.add_table("summary", _summary(rows), COLUMNS["summary"])
        report.add_table("parts", rows, COLUMNS["parts"])
        report.add_table("laws", laws, COLUMNS["laws"])
        report.summary = "summary"
        for part in ("error_entropy", "self_alignment", "confidence"):
            report.add_metrics(f"{part}/{{family}}/{{dataset}}/{{size}}", rows, part)
        for quantity in ("alpha", "r2"):
            report.add_metrics(f"{quantity}/{{family}}/{{dataset}}/{{part}}", laws, quantity)
        report.headline = _headline(found)
        for name in sorted({parts.family.name for parts in found}):
            report.drawings[f"parts_{name}"] = Drawing(
                _draw_parts([parts for parts in found if parts.family.name == name]),
                "Left: nats per token; right: parts that are positive at every size, with their laws (dotted: no law).",
            )
        report.notes += [self._sentence(parts) for parts in found]
        return report

    def _parts(self, family: Family, loaded: list[Decomposition]) -> Parts:
        values = np.stack([one.parts for one in loaded])  # (m, 4)
        influence = np.stack([one.influence for one in loaded])  # (m, documents, 4)
        covariance = part_covariance(influence)
        miller_madow = np.array([one.miller_madow for one in loaded])
        laws = {}
        for part, y, sampling in _series(values, miller_madow, covariance):
            if len(y) >= 3 and (y > 0).all():
                laws[part] = fit_power_law(family.s, y, covariance=sampling / np.outer(y, y), level=self.level)
        return Parts(family, values, miller_madow, covariance, laws, *shares_of_fall(values, influence))

    def _law_rows(self, parts: Parts) -> list[dict[str, Any]]:
        """Each part's law, empty where it is not positive for every size, and its change per factor 10 in S."""
        m = len(parts.family.s)
        if m < 3:
            return []
        rows = []
        quantile = float(stats.t.ppf(0.5 + self.level / 2, m - 2))
        shares = dict(zip(PARTS, zip([1.0, *parts.shares], [0.0, *parts.share_se], strict=True), strict=True))
        for part, y, _ in _series(parts.values, parts.miller_madow, parts.covariance):
            law, line = parts.laws.get(part), stats.linregress(np.log10(parts.family.s), y)
            share, share_se = shares["error_entropy" if part == CORRECTED else part]
            row = parts.family.keys | {"part": part}
            if law:
                row |= {"alpha": law.alpha, "alpha_low": law.low, "alpha_high": law.high, "r2": law.r2}
            half = quantile * line.stderr
            row |= {"nats_per_factor_10": line.slope, "nats_low": line.slope - half, "nats_high": line.slope + half}
            rows.append(row | {"share_of_fall_in_ce": share, "share_se": share_se})
        return rows

    def _sentence(self, parts: Parts) -> str:
        family, ce, labels = parts.family, parts.values[:, 0], parts.family.labels
        if len(ce) == 1:
            words = zip(list(PARTS.values())[1:], parts.values[0, 1:], strict=True)
            text = ", ".join(f"{word} {value:.3f}" for word, value in words)
            return (
                f"{parts.family}: CE {ce[0]:.3f} nats ({labels[0]}) is {text}; which part scales needs several sizes."
            )
        if ce[0] <= ce[-1]:
            return (
                f"{parts.family}: CE does not fall from {labels[0]} to {labels[-1]}: no part can account for its fall."
            )
        half = stats.norm.ppf(0.5 + self.level / 2) * parts.share_se
        accounts = ", ".join(
            f"{word} {100 * share:.1f} % (± {100 * h:.1f})"
            for word, share, h in zip(list(PARTS.values())[1:], parts.shares, half, strict=True)
        )
        text = f"{family}: of CE's fall from {ce[0]:.3f} ({labels[0]}) to {ce[-1]:.3f} nats ({labels[-1]}): {accounts}."
        if len(ce) < 3:
            return f"{text} Laws are not identifiable from {len(ce)} sizes."
        return (
            f"{text} {_which_scale(parts.laws)} H(P) is biased low, by Miller and Madow's estimate by at least "
            f"{parts.miller_madow.max():.3f} nats."
        )


def _series(
    values: FloatArray, miller_madow: FloatArray, covariance: FloatArray
) -> list[tuple[str, FloatArray, FloatArray]]:
    """Each part over the sizes, (m,), with its sampling covariance, (m, m); the corrected H(P) last."""
    plain = [(part, values[:, i], covariance[i]) for i, part in enumerate(PARTS)]
    entropy = list(PARTS).index("error_entropy")
    return [*plain, (CORRECTED, values[:, entropy] + miller_madow, covariance[entropy])]


def _part_rows(parts: Parts) -> list[dict[str, Any]]:
    rows = parts.family.size_keys
    for part, y, sampling in _series(parts.values, parts.miller_madow, parts.covariance):
        for row, value, variance in zip(rows, y, np.diagonal(sampling), strict=True):
            row[part] = value
            if part != CORRECTED:
                row[f"{part}_se"] = np.sqrt(variance)
    return rows


def _which_scale(laws: Mapping[str, PowerLawFit]) -> str:
    """Which parts follow a falling power law, and why the others do not."""
    scaling, not_scaling = [], []
    for part, word in PARTS.items():
        law = laws.get(part)
        if law is None:
            not_scaling.append(f"{word} (not positive at every size, so its logarithm is not taken)")
        elif law.low > 0:
            scaling.append(f"{word} {law.alpha:.3f} ({law.low:.3f} to {law.high:.3f}), R^2 {law.r2:.3f}")
        else:
            what = "grows with S" if law.high < 0 else "its interval includes 0"
            not_scaling.append(f"{word} (alpha {law.alpha:.3f}, {law.low:.3f} to {law.high:.3f}: {what})")
    text = f"Falling power laws, alpha: {'; '.join(scaling) or 'none'}."
    return f"{text} None: {'; '.join(not_scaling)}." if not_scaling else text


def _headline(found: list[Parts]) -> str:
    shares = [parts.shares[0] for parts in found if np.isfinite(parts.shares[0])]
    if not shares:
        return ""
    low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    span = low if low == high else f"{low} to {high}"
    return f"error entropy accounts for {span} % of CE's fall from the smallest to the largest size"


def _draw_parts(found: list[Parts]) -> Figure:
    """Left, the parts in nats; right, those that are positive, with their laws, on log axes."""
    with style():
        figure, axes = grid(len(found), 2, width=4.4, height=3.2)
        for (plain, logs), parts in zip(axes, found, strict=True):
            s, positive = parts.family.s, []
            line = np.geomspace(s.min(), s.max(), 40)
            for i, (part, word) in enumerate(PARTS.items()):
                y, half = parts.values[:, i], 1.96 * np.sqrt(np.diagonal(parts.covariance[i]))
                label = word if part == "ce" else f"{word} {SYMBOLS[part].replace('-', '−')}"
                drawn = {"color": COLOURS[i], "marker": MARKERS[i], "ms": 4.5}
                error_bars(plain, s, y, y - half, y + half, lw=1.1, label=label, **drawn)
                if (y > 0).all():
                    positive.append(y)
                    law = parts.laws.get(part)
                    holds = law is not None and law.low > 0
                    label = f"{label}: α = {law.alpha:.3f}" if law and holds else f"{label}: no law"
                    error_bars(logs, s, y, y - half, y + half, ls="", label=label, **drawn)
                    if law:
                        logs.plot(line, law.predict(line), "-" if holds else ":", lw=1.1, color=COLOURS[i])
            plain.axhline(0, color="0.4", lw=0.8)
            for ax in (plain, logs):
                ax.set(title=str(parts.family), ylabel="nats per token")
                size_axis(ax, s)
            low, high = min(map(np.min, positive)), max(map(np.max, positive))
            log_axis(logs.yaxis, low=low / (high / low) ** 0.45, high=high * 1.3)
            logs.legend(loc="lower left", fontsize=8)
            plain.legend(fontsize=8)
        return figure


def _summary(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The table for the terminal: texts, rounded."""
    table = pd.DataFrame(rows)
    shown = SYMBOLS | {CORRECTED: "H(P) Miller-Madow"}
    texts = {name: [f"{v:.3f}" for v in table[part]] for part, name in shown.items()}
    return pd.DataFrame({**table[["dataset", "family", "size"]], **texts})
