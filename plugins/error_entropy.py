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
    MARKERS,
    Analyzer,
    Drawing,
    Family,
    RankHistogram,
    RankTable,
    RbptrackError,
    Report,
    Runs,
    Unreadable,
    grid,
    log_axis,
    read_families,
    style,
)
from rbptrack.stats import FloatArray, PowerLawFit, fit_power_law

PARTS = ("ce", "error_entropy", "self_alignment", "confidence")
LABELS = {
    "ce": "CE",
    "error_entropy": "error entropy H(P)",
    "self_alignment": "self-alignment KL",
    "confidence": "confidence −ln Z",
}
WORDS = {"error_entropy": "error entropy", "self_alignment": "self-alignment", "confidence": "confidence"}


_CELL = {
    "dataset": "the dataset",
    "family": "the family; with what sets this part apart where its runs disagree",
}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "summary": {
        **_CELL,
        "size": "the size as published",
        "CE": "cross-entropy, nats per token: the sum of the next three",
        "H(P)": "error entropy: entropy of the observed ranks, plug-in",
        "KL": "self-alignment: KL(P || Q^)",
        "-ln Z": "confidence",
        "H(P) Miller-Madow": "error entropy, corrected for its downward bias",
    },
    "parts": {
        **_CELL,
        "size": "the size as published",
        "S": "non-embedding parameters",
        "ce": "cross-entropy, nats per token",
        "ce_se": "its standard error over documents",
        "error_entropy": "H(P) of the shares P(e) of tokens with rank e, plug-in, nats",
        "error_entropy_se": "its standard error",
        "self_alignment": "KL(P || Q^), nats",
        "self_alignment_se": "its standard error",
        "confidence": "-ln Z_Q, nats; may be negative",
        "confidence_se": "its standard error",
        "error_entropy_miller_madow": "H(P) + (K - 1)/(2n), K observed ranks",
    },
    "laws": {
        **_CELL,
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
class Decomposition:
    """The parts of one model's cross-entropy, nats.

    Attributes:
        parts: CE, H(P), KL(P || Q^), -ln Z_Q, (4,): the first is the sum of the others.
        miller_madow: (K - 1)/(2n), K observed ranks: what Miller and Madow add to H(P) for its downward bias.
        influence: each document's part in the sampling error of `parts`, to first order, (documents, 4); columns sum
            to 0.
        runs: how many runs this is the mean of.

    """

    parts: FloatArray
    miller_madow: float
    influence: FloatArray
    runs: int = 1

    def __add__(self, other: "Decomposition") -> "Decomposition":
        """The mean over both's runs (of one size, over the same documents)."""
        runs = self.runs + other.runs
        a, b = self.runs / runs, other.runs / runs
        return Decomposition(
            a * self.parts + b * other.parts,
            a * self.miller_madow + b * other.miller_madow,
            a * self.influence + b * other.influence,
            runs,
        )


def decompose(histogram: RankHistogram) -> FloatArray:
    """CE, H(P), KL(P || Q^) and -ln Z_Q in nats, (4,), from counts and log-probabilities by rank."""
    p = histogram.count / histogram.num_tokens
    log_q = histogram.logprob / histogram.count
    top = log_q.max()
    log_z = float(top + np.log(np.exp(log_q - top).sum()))
    entropy = float(-p @ np.log(p))
    alignment = float(p @ (np.log(p) - log_q + log_z))
    return np.array([histogram.ce, entropy, alignment, -log_z])


def decompose_table(table: RankTable, histogram: RankHistogram) -> Decomposition:
    """The parts and how each document moves them.

    Raises:
        RbptrackError: the parts do not add up to the cross-entropy of the ranks within 1e-6 nats.

    """
    parts = decompose(histogram)
    if not abs(parts[1:].sum() - table.ce) < 1e-6:
        raise RbptrackError(f"CE is {table.ce:.9f}, the sum of its parts {parts[1:].sum():.9f}: more than 1e-6 apart")
    n = histogram.num_tokens
    log_q = histogram.logprob / histogram.count
    by_rank = np.zeros((histogram.vocab_size + 1, 3))
    by_rank[histogram.rank, 0] = -np.log(histogram.count / n)
    by_rank[histogram.rank, 1] = log_q
    by_rank[histogram.rank, 2] = np.exp(log_q + parts[3]) / histogram.count  # Q^(e) / count
    rank, logprob = table.rank, table.column("logprob").astype(np.float64)
    _, document = np.unique(table.column("document"), return_inverse=True)
    tokens = np.bincount(document)
    ce = (np.bincount(document, weights=-logprob) - tokens * parts[0]) / n
    entropy = (np.bincount(document, weights=by_rank[rank, 0]) - tokens * parts[1]) / n
    confidence = -np.bincount(document, weights=by_rank[rank, 2] * (logprob - by_rank[rank, 1]))
    return Decomposition(
        parts=parts,
        miller_madow=(len(histogram.rank) - 1) / (2 * n),
        influence=np.column_stack([ce, entropy, ce - entropy - confidence, confidence]),
    )


@dataclass(frozen=True)
class Parts:
    """One family on one dataset.

    Attributes:
        family: the measurements.
        values: the parts of each size, nats, (m, 4).
        miller_madow: the correction of H(P), nats, (m,).
        covariance: sampling covariance of each part between sizes, (4, m, m).
        laws: of the parts that are positive at every size.
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
        found = []

        def load(_: Family, run_id: str) -> Decomposition:
            table, histogram = runs.ranks(run_id), runs.histogram(run_id)
            if not abs(table.ce - histogram.ce) < 1e-6:
                raise Unreadable(
                    f"run {run_id}: CE is {table.ce:.6f} by its ranks, {histogram.ce:.6f} by its histogram."
                )
            return decompose_table(table, histogram)

        for family, loaded in read_families(runs, load, report.notes):
            found.append(self._parts(family, loaded))
        if not found:
            raise report.nothing_found("no measurement to decompose")
        parts = [row for p in found for row in self._rows(p)]
        laws = [row for p in found for row in self._law_rows(p)]
        table = pd.DataFrame(parts)
        report.add_table("summary", _summary(table), COLUMNS["summary"])
        report.add_table("parts", table, COLUMNS["parts"])
        report.add_table("laws", laws, COLUMNS["laws"])
        report.summary = "summary"
        for row in parts:
            for part in PARTS[1:]:
                report.metrics[f"{part}/{row['family']}/{row['dataset']}/{row['size']}"] = row[part]
        for row in laws:
            for quantity in ("alpha", "r2"):
                if np.isfinite(row[quantity]):
                    report.metrics[f"{quantity}/{row['family']}/{row['dataset']}/{row['part']}"] = row[quantity]
        shares = [p.shares[0] for p in found if np.isfinite(p.shares[0])]
        if shares:
            low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
            span = low if low == high else f"{low} to {high}"
            report.headline = f"error entropy accounts for {span} % of CE's fall from the smallest to the largest size"
        names = sorted({p.family.name for p in found})
        for name in names:
            report.drawings[f"parts_{name}"] = Drawing(
                self._figure([p for p in found if p.family.name == name]),
                "Left: nats per token; right: parts that are positive at every size, with their laws (dotted: no law).",
            )
        report.notes += [self._sentence(p) for p in found]
        return report

    def _parts(self, family: Family, loaded: list[Decomposition]) -> Parts:
        values = np.stack([d.parts for d in loaded])  # (m, 4)
        influence = np.stack([d.influence for d in loaded])  # (m, documents, 4)
        documents = influence.shape[1]
        correction = documents / max(documents - 1, 1)
        covariance = np.einsum("idp,jdp->pij", influence, influence) * correction
        laws = {}
        for number, part in enumerate(PARTS):
            y = values[:, number]
            if len(y) >= 3 and (y > 0).all():
                relative = covariance[number] / np.outer(y, y)
                laws[part] = fit_power_law(family.s, y, covariance=relative, level=self.level)
        fall, moved = values[0] - values[-1], influence[0] - influence[-1]  # (4,), (documents, 4)
        shares = share_se = np.full(3, np.nan)
        if fall[0] > 0:
            shares = fall[1:] / fall[0]
            share_se = np.sqrt(correction * (((moved[:, 1:] - shares * moved[:, :1]) / fall[0]) ** 2).sum(axis=0))
        miller_madow = np.array([d.miller_madow for d in loaded])
        return Parts(family, values, miller_madow, covariance, laws, shares, share_se)

    def _rows(self, p: Parts) -> list[dict[str, Any]]:
        rows = []
        for i, (s, size) in enumerate(zip(p.family.s, p.family.labels, strict=True)):
            row: dict[str, Any] = {"dataset": p.family.dataset, "family": p.family.name, "size": size, "S": s}
            for number, part in enumerate(PARTS):
                row[part] = float(p.values[i, number])
                row[f"{part}_se"] = float(np.sqrt(p.covariance[number, i, i]))
            row["error_entropy_miller_madow"] = float(p.values[i, 1] + p.miller_madow[i])
            rows.append(row)
        return rows

    def _law_rows(self, p: Parts) -> list[dict[str, Any]]:
        """Each part's law, NaN where it is not positive for every size, and its change per factor 10 in S."""
        m = len(p.family.s)
        if m < 3:
            return []
        rows = []
        quantile = float(stats.t.ppf(0.5 + self.level / 2, m - 2))
        corrected = "error_entropy_miller_madow"
        for number, part in [*enumerate(PARTS), (PARTS.index("error_entropy"), corrected)]:
            y, law = p.values[:, number], p.laws.get(part)
            if part == corrected:
                y = y + p.miller_madow
                relative = p.covariance[number] / np.outer(y, y)
                law = fit_power_law(p.family.s, y, covariance=relative, level=self.level)
            line = stats.linregress(np.log10(p.family.s), y)
            rows.append(
                {
                    "dataset": p.family.dataset,
                    "family": p.family.name,
                    "part": part,
                    "alpha": law.alpha if law else np.nan,
                    "alpha_low": law.low if law else np.nan,
                    "alpha_high": law.high if law else np.nan,
                    "r2": law.r2 if law else np.nan,
                    "nats_per_factor_10": float(line.slope),
                    "nats_low": float(line.slope - quantile * line.stderr),
                    "nats_high": float(line.slope + quantile * line.stderr),
                    "share_of_fall_in_ce": float(p.shares[number - 1]) if number else 1.0,
                    "share_se": float(p.share_se[number - 1]) if number else 0.0,
                }
            )
        return rows

    def _sentence(self, p: Parts) -> str:
        ce, labels = p.values[:, 0], p.family.labels
        if len(ce) == 1:
            parts = ", ".join(f"{WORDS[n]} {v:.3f}" for n, v in zip(PARTS[1:], p.values[0, 1:], strict=True))
            return f"{p.family}: CE {ce[0]:.3f} nats ({labels[0]}) is {parts}; which part scales needs several sizes."
        if ce[0] <= ce[-1]:
            return f"{p.family}: CE does not fall from {labels[0]} to {labels[-1]}: no part can account for its fall."
        half = stats.norm.ppf(0.5 + self.level / 2) * p.share_se
        accounts = ", ".join(
            f"{WORDS[part]} {100 * share:.1f} % (± {100 * h:.1f})"
            for part, share, h in zip(PARTS[1:], p.shares, half, strict=True)
        )
        text = (
            f"{p.family}: of CE's fall from {ce[0]:.3f} ({labels[0]}) to {ce[-1]:.3f} nats ({labels[-1]}): {accounts}."
        )
        if len(ce) < 3:
            return text + f" Laws are not identifiable from {len(ce)} sizes."
        scaling, not_scaling = [], []
        for part in PARTS:
            law = p.laws.get(part)
            word = "CE" if part == "ce" else WORDS[part]
            if law is None:
                not_scaling.append(f"{word} (not positive at every size, so its logarithm is not taken)")
            elif law.low > 0:
                scaling.append(f"{word} {law.alpha:.3f} ({law.low:.3f} to {law.high:.3f}), R^2 {law.r2:.3f}")
            else:
                what = "grows with S" if law.high < 0 else "its interval includes 0"
                not_scaling.append(f"{word} (alpha {law.alpha:.3f}, {law.low:.3f} to {law.high:.3f}: {what})")
        text += f" Falling power laws, alpha: {'; '.join(scaling) or 'none'}."
        if not_scaling:
            text += f" None: {'; '.join(not_scaling)}."
        return (
            text + f" H(P) is biased low, by Miller and Madow's estimate by at least {p.miller_madow.max():.3f} nats."
        )

    def _figure(self, found: list[Parts]) -> Figure:
        """Left, the parts in nats; right, those that are positive, with their laws, on log axes."""
        with style():
            figure, axes = grid(len(found), 2, width=4.4, height=3.2)
            for (plain, logs), p in zip(axes, found, strict=True):
                line = np.geomspace(p.family.s.min(), p.family.s.max(), 40)
                drawn = []
                for number, part in enumerate(PARTS):
                    y, look = p.values[:, number], {"color": COLOURS[number], "marker": MARKERS[number], "ms": 4.5}
                    error = 1.96 * np.sqrt(np.diagonal(p.covariance[number]))
                    plain.errorbar(p.family.s, y, yerr=error, lw=1.1, capsize=2, label=LABELS[part], **look)
                    if (y > 0).all():
                        drawn.append(y)
                        law = p.laws.get(part)
                        holds = law is not None and law.low > 0
                        label = f"{LABELS[part]}: α = {law.alpha:.3f}" if law and holds else f"{LABELS[part]}: no law"
                        logs.errorbar(p.family.s, y, yerr=error, ls="", capsize=2, label=label, **look)
                        if law:
                            logs.plot(line, law.predict(line), "-" if holds else ":", lw=1.1, color=COLOURS[number])
                plain.axhline(0, color="0.4", lw=0.8)
                for ax in (plain, logs):
                    ax.set(title=str(p.family), xlabel="S, non-embedding parameters", ylabel="nats per token")
                    log_axis(ax.xaxis, low=p.family.s.min() / 1.5, high=p.family.s.max() * 1.5)
                low, high = min(map(np.min, drawn)), max(map(np.max, drawn))
                log_axis(logs.yaxis, low=low / (high / low) ** 0.45, high=high * 1.3)
                logs.legend(loc="lower left", fontsize=8)
                plain.legend(fontsize=8)
            return figure


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """The table for the terminal: texts, rounded."""
    columns = {"ce": "CE", "error_entropy": "H(P)", "self_alignment": "KL", "confidence": "-ln Z"}
    shown = {name: [f"{v:.3f}" for v in table[part]] for part, name in columns.items()}
    corrected = [f"{v:.3f}" for v in table["error_entropy_miller_madow"]]
    return pd.DataFrame({**table[["dataset", "family", "size"]], **shown, "H(P) Miller-Madow": corrected})
