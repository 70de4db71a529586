"""Cross-entropy in three parts, and which of them scales: CE = H(P) + KL(P || Q^) - ln Z_Q.

"What Scales in Cross-Entropy Scaling Law?", arXiv 2510.04067: P(e) is the share of tokens with rank e, Q(e) = exp(mean
ln p(target) given rank e), Z_Q the sum of Q(e) over observed e, Q^ = Q/Z_Q. The parts are error entropy, self-alignment
and confidence. The identity is exact; -ln Z_Q may be negative, and its logarithm is never taken then.

Computed from a sample, H(P) is too low and KL too high by more than their standard errors. So the parts stand twice:
plug-in, as the paper defines them, and corrected, which is what the laws, shares and sentences here are of.
"""

from collections.abc import Iterator, Mapping
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
    RbptrackError,
    Report,
    Runs,
    Unreadable,
    error_bars,
    grid,
    interval_columns,
    law_cells,
    log_axis,
    read_families,
    shared_columns,
    size_axis,
    spread,
    style,
)
from rbptrack.stats import (
    Contrast,
    Decomposition,
    FloatArray,
    Interval,
    PowerLawFit,
    contrast,
    decompose_pieces,
    fit_power_law,
    part_covariance,
    part_errors,
    positive,
    shares_of_fall,
)

PARTS = {
    "ce": "CE",
    "error_entropy": "error entropy",
    "self_alignment": "self-alignment",
    "confidence": "confidence",
}
SYMBOLS = {"ce": "CE", "error_entropy": "H(P)", "self_alignment": "KL", "confidence": "-ln Z"}
SE, SCATTER = (
    "its standard error over documents, wider where few of them decide",
    "t distribution over scatter between sizes",
)
REML = "scatter between models and sampling error, t distribution"
NATS = {
    "ce": "cross-entropy, nats per token",
    "error_entropy": "H(P) of the shares P(e) of tokens with rank e, plug-in, nats",
    "self_alignment": "KL(P || Q^), plug-in, nats",
    "confidence": "-ln Z_Q, plug-in, nats; may be negative",
    "error_entropy_corrected": "H(P) of unlimited text like this, nats",
    "self_alignment_corrected": "KL(P || Q^) of unlimited text like this, nats",
    "confidence_corrected": "-ln Z_Q of unlimited text like this, nats",
}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "summary": {
        **shared_columns("dataset", "family", "size"),
        "CE": "cross-entropy, nats per token: the sum of the next three",
        "H(P)": "error entropy: entropy of ranks, corrected for its bias",
        "KL": "self-alignment: KL(P || Q^), corrected",
        "-ln Z": "confidence, corrected",
        "H(P) plug-in": "error entropy of these tokens, not corrected",
        "KL plug-in": "self-alignment of these tokens, not corrected",
    },
    "parts": {
        **KEYS,
        **{name: meaning for part, text in NATS.items() for name, meaning in ((part, text), (f"{part}_se", SE))},
    },
    "laws": {
        **shared_columns("dataset", "family"),
        "part": "of cross-entropy, plug-in or corrected",
        "alpha": "of part = A S^-alpha; empty where the part is not positive at every size",
        "alpha_low": "lower end of its interval",
        "alpha_high": "upper end",
        "r2": "of that law on log axes",
        **interval_columns("nats_per_factor_10", "change of the part per factor 10 in S, by a line in ln S", SCATTER),
        **interval_columns("share_of_ce", "share in CE's fall: slope of the part against CE over all sizes", REML),
    },
    "claims": {
        **shared_columns("dataset", "family"),
        "part": "corrected for bias where that is possible",
        "alpha": "its exponent; empty where the part is not positive at every size",
        "alpha_ce": "cross-entropy's",
        **interval_columns(
            "difference", "alpha - alpha_ce, from the law of the ratio part / CE", "scatter and documents"
        ),
        "p_different": "of alpha = alpha_ce",
        "margin": "a difference below which the part scales as CE does",
        "p_equivalent": "of a difference at or beyond the margin (two one-sided tests)",
        "verdict": "scales as CE: equivalent; different; different, but within the margin; or not to be told",
        "share_smallest": "part / CE at the smallest size",
        "share_largest": "part / CE at the largest",
    },
}


@dataclass(frozen=True)
class Parts:
    """One family on one dataset.

    Attributes:
        family: the measurements.
        values: part -> nats at each size, (m,), by the names of `NATS`; the corrected ones NaN where not known.
        errors: part -> its standard error at each size, (m,).
        laws: of the parts that are positive at every size.
        against_ce: part -> whether its exponent is CE's; only of parts with a law.
        shares: part -> its share in CE's fall over all sizes; empty where CE does not fall or there are two sizes.

    """

    family: Family
    values: dict[str, FloatArray]
    errors: dict[str, FloatArray]
    laws: dict[str, PowerLawFit]
    against_ce: dict[str, Contrast]
    shares: dict[str, Interval]

    @property
    def shown(self) -> dict[str, str]:
        """Each part's name here -> its words: the corrected values where they are known, else those of the tokens."""
        known = np.isfinite(self.values["error_entropy_corrected"]).all()
        return {part if part == "ce" or not known else f"{part}_corrected": word for part, word in PARTS.items()}


@dataclass(kw_only=True)
class ErrorEntropy(Analyzer):
    """CE = error entropy + self-alignment - ln confidence; which part scales.

    Attributes:
        margin: a part scales as CE where their exponents differ by less than this share of CE's.
        level: nominal coverage of the intervals; tests have size 1 - level.

    """

    name: ClassVar[str] = "error_entropy"
    margin: float = 0.1
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Decompose every measurement; laws need at least 3 sizes."""
        report = Report()

        def load(_: Family, run_id: str) -> Decomposition:
            try:
                return decompose_pieces(runs.rank_pieces(run_id), runs.histogram(run_id))
            except Unreadable:
                raise
            except RbptrackError as error:
                raise Unreadable(f"run {run_id}: {error}") from error

        found = [self._parts(family, loaded) for family, loaded in read_families(runs, load, report.notes)]
        if not found:
            raise report.nothing_found("no measurement to decompose")
        rows = [row for parts in found for row in _part_rows(parts)]
        laws = [row for parts in found for row in self._law_rows(parts)]
        report.add_table("summary", _summary(rows), COLUMNS["summary"])
        report.add_table("parts", rows, COLUMNS["parts"])
        report.add_table("laws", laws, COLUMNS["laws"])
        report.add_table("claims", (row for parts in found for row in _claim_rows(parts)), COLUMNS["claims"])
        report.summary = "summary"
        for part in NATS:
            report.add_metrics(f"{part}/{{family}}/{{dataset}}/{{size}}", rows, part)
        for quantity in ("alpha", "r2"):
            report.add_metrics(f"{quantity}/{{family}}/{{dataset}}/{{part}}", laws, quantity)
        report.headline = _headline(found)
        for name in sorted({parts.family.name for parts in found}):
            report.drawings[f"parts_{name}"] = Drawing(
                _draw_parts([parts for parts in found if parts.family.name == name]),
                "Parts of CE, corrected for bias. Right: those that are positive at every size, with their laws.",
            )
        report.notes += [self._sentence(parts) for parts in found]
        return report

    def _parts(self, family: Family, loaded: list[Decomposition]) -> Parts:
        names, values, covariance = list(NATS), dict[str, FloatArray](), dict[str, FloatArray]()
        errors, shares = dict[str, FloatArray](), dict[str, Interval]()
        of_tokens = np.stack([one.parts for one in loaded]), np.stack([one.influence for one in loaded])
        of_text = np.stack([one.corrected for one in loaded]), np.stack([one.corrected_influence for one in loaded])
        for several, (nats, influence) in ((names[:4], of_tokens), ([names[0], *names[4:]], of_text)):
            columns = dict(zip(several, nats.T, strict=True))
            values |= {name: y for name, y in columns.items() if name not in values}
            sampling = part_covariance(influence)
            covariance |= {name: c for name, c in zip(several, sampling, strict=True) if name not in covariance}
            wide = part_errors(influence, level=self.level)
            errors |= {name: se for name, se in zip(several, wide.T, strict=True) if name not in errors}
            found = shares_of_fall(nats, influence, level=self.level) if len(loaded) >= 3 else None
            shares |= dict(zip(several[1:], found or [], strict=False))
        influences = {name: of_text[1][:, :, i] for i, name in enumerate([names[0], *names[4:]])}
        influences |= {name: of_tokens[1][:, :, i] for i, name in enumerate(names[:4])}
        laws, against_ce = dict[str, PowerLawFit](), dict[str, Contrast]()
        for name, y in values.items():
            if len(y) >= 3 and positive(y).all():
                sampling = covariance[name] / np.outer(y, y)
                laws[name] = fit_power_law(family.s, y, covariance=sampling, level=self.level)
        for name in (name for name in laws if name != "ce" and "ce" in laws):
            against_ce[name] = self._against_ce(family, values, influences, name, self.margin * abs(laws["ce"].alpha))
        return Parts(family, values, errors, laws, against_ce, shares)

    def _against_ce(
        self, family: Family, values: dict[str, FloatArray], influences: dict[str, FloatArray], name: str, margin: float
    ) -> Contrast:
        """The exponent of a part against cross-entropy's: the law of their ratio, paired by model and document."""
        relative = influences[name] / values[name][:, None] - influences["ce"] / values["ce"][:, None]
        sampling = part_covariance(relative[:, :, None])[0]
        ratio = fit_power_law(family.s, values[name] / values["ce"], covariance=sampling, level=self.level)
        return contrast(ratio.alpha, ratio.spread, margin=max(margin, 1e-9), level=self.level)

    def _law_rows(self, parts: Parts) -> list[dict[str, Any]]:
        """Each part's law, empty where it is not positive for every size, and its change per factor 10 in S."""
        m = len(parts.family.s)
        if m < 3:
            return []
        rows = []
        quantile = float(stats.t.ppf(0.5 + self.level / 2, m - 2))
        for part, y in parts.values.items():
            line = stats.linregress(np.log10(parts.family.s), y)
            half = quantile * line.stderr
            row = parts.family.keys | {"part": part} | law_cells(parts.laws.get(part))
            row |= Interval(line.slope, line.slope - half, line.slope + half).columns("nats_per_factor_10")
            if part in parts.shares:
                row |= parts.shares[part].columns("share_of_ce")
            rows.append(row)
        return rows

    def _sentence(self, parts: Parts) -> str:
        family, ce, labels = parts.family, parts.values["ce"], parts.family.labels
        words = list(parts.shown.items())[1:]
        if len(ce) == 1:
            text = ", ".join(f"{word} {parts.values[part][0]:.3f}" for part, word in words)
            return f"{family}: CE {ce[0]:.3f} nats ({labels[0]}) is {text}; which part scales needs several sizes."
        if ce[0] <= ce[-1]:
            return f"{family}: CE does not fall from {labels[0]} to {labels[-1]}, so no part makes it fall."
        text = f"{family}: CE falls from {ce[0]:.3f} ({labels[0]}) to {ce[-1]:.3f} nats ({labels[-1]})."
        if len(ce) < 3:
            return f"{text} Shares and laws are not identifiable from {len(ce)} sizes."
        if "error_entropy_corrected" not in parts.shown:
            return f"{text} There are too few ranks to correct H(P) and KL for bias, so which part scales is undecided."
        shares = "The fall of CE is within its sampling error, so its shares are undecided."
        if parts.shares:
            each = [(word, *_percent(parts.shares[part])) for part, word in words]
            of_each = ", ".join(f"{word} {value}% ({low} to {high})" for word, value, low, high in each)
            shares = f"By a line through all sizes, of a fall of CE by 1 nat the parts have: {of_each}."
        bias = parts.values["self_alignment"] / parts.values["self_alignment_corrected"]
        return (
            f"{text} {shares} {_which_scale(parts)} Without the correction, KL would be {spread(bias, '.1f')} times as "
            f"large.{_entropy_against_ce(parts, self.margin)}"
        )


def _claim_rows(parts: Parts) -> Iterator[dict[str, Any]]:
    """What arXiv 2510.04067 claims: error entropy scales, the other parts do not, and its share in CE falls."""
    ce = parts.values["ce"]
    for part in (part for part in parts.shown if part != "ce" and len(ce) >= 3):
        y, found = parts.values[part], parts.against_ce.get(part)
        row = parts.family.keys | {"part": part, "share_smallest": y[0] / ce[0], "share_largest": y[-1] / ce[-1]}
        if found:
            row |= {"alpha": parts.laws[part].alpha, "alpha_ce": parts.laws["ce"].alpha}
            row |= Interval(found.difference, found.low, found.high).columns("difference")
            row |= {"p_different": found.p_different, "margin": found.margin, "p_equivalent": found.p_equivalent}
        yield row | {"verdict": found.verdict if found else "no law"}


def _entropy_against_ce(parts: Parts, margin: float) -> str:
    """Whether error entropy scales as cross-entropy does, in a sentence; empty where either has no law."""
    part = list(parts.shown)[1]
    found = parts.against_ce.get(part)
    if found is None:
        return ""
    says = {
        "equivalent": f"scales as CE does (exponents equal within {margin:z.0%} of CE's)",
        "different": f"scales {'faster' if found.difference > 0 else 'more slowly'} than CE",
        "not to be told": "may or may not scale as CE does: that cannot be told",
    }
    ce, y = parts.values["ce"], parts.values[part]
    text = says.get(found.verdict, f"scales differently from CE, but within {margin:z.0%}")
    return (
        f" Error entropy {text}: the exponent less CE's is {found.difference:+z.3f} ({found.low:+z.3f} "
        f"to {found.high:+z.3f}), H(P) / CE goes from {y[0] / ce[0]:.3f} to {y[-1] / ce[-1]:.3f}."
    )


def _percent(share: Interval) -> tuple[str, str, str]:
    return f"{100 * share.value:.1f}", f"{100 * share.low:.1f}", f"{100 * share.high:.1f}"


def _part_rows(parts: Parts) -> list[dict[str, Any]]:
    rows = parts.family.size_keys
    for part, y in parts.values.items():
        for row, value, error in zip(rows, y, parts.errors[part], strict=True):
            row |= {part: value, f"{part}_se": error}
    return rows


def _which_scale(parts: Parts) -> str:
    """Which parts follow a falling power law, and why the others do not."""
    scaling, not_scaling = [], []
    for part, word in parts.shown.items():
        law = parts.laws.get(part)
        if law is None:
            not_scaling.append(f"{word} (not positive at every size, so no power law can be fitted)")
        elif law.low > 0:
            scaling.append(f"{word} (alpha {law.alpha:.3f}, {law.low:.3f} to {law.high:.3f}; R^2 {law.r2:.3f})")
        else:
            what = "grows with S" if law.high < 0 else "its interval includes 0"
            not_scaling.append(f"{word} (alpha {law.alpha:.3f}, {law.low:.3f} to {law.high:.3f}: {what})")
    text = f"A falling power law fits {'; '.join(scaling) or 'no part'}."
    return f"{text} It does not fit {'; '.join(not_scaling)}." if not_scaling else text


def _headline(found: list[Parts]) -> str:
    of = [parts for parts in found if "error_entropy_corrected" in parts.shares]
    if not of:
        return "which part of CE scales is undecided: that takes 3 sizes and enough ranks to correct the parts for bias"
    shares = [parts.shares["error_entropy_corrected"] for parts in of]
    said = spread([one.value for one in shares], ".2f", [str(parts.family) for parts in of], unit="nats")
    low, high = min(one.low for one in shares), max(one.high for one in shares)
    whole = ": more than CE itself, so that the other parts together grow" if low > 1 else ""
    return (
        f"as CE falls by 1 nat over the sizes, error entropy, corrected for bias, falls by {said}; "
        f"{_ends(len(shares))} from {low:.2f} to {high:.2f}{whole}"
    )


def _ends(intervals: int) -> str:
    return "its interval is" if intervals == 1 else "the intervals lie"


def _draw_parts(found: list[Parts]) -> Figure:
    """Left, the parts in nats; right, those that are positive, with their laws, on log axes."""
    with style():
        figure, axes = grid(len(found), 2, height=3.2)
        for (plain, logs), parts in zip(axes, found, strict=True):
            s, positive = parts.family.s, []
            line = np.geomspace(s.min(), s.max(), 40)
            for i, (part, word) in enumerate(parts.shown.items()):
                y, half = parts.values[part], 1.96 * parts.errors[part]
                symbol = SYMBOLS[list(PARTS)[i]].replace("-", "−")
                label = word if part == "ce" else f"{word} {symbol}"
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
            plain.legend(loc="best", fontsize=8)
        return figure


def _summary(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The table for the terminal: texts, rounded."""
    table = pd.DataFrame(rows)
    shown = {f"{part}_corrected" if part != "ce" else part: symbol for part, symbol in SYMBOLS.items()}
    shown |= {"error_entropy": "H(P) plug-in", "self_alignment": "KL plug-in"}
    texts = {symbol: [f"{v:.3f}" if v == v else "" for v in table[part]] for part, symbol in shown.items()}
    return pd.DataFrame({**table[["dataset", "family", "size"]], **texts})
