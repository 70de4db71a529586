"""Cross-entropy in three parts, and which of them scales: CE = H(P) + KL(P || Q^) - ln Z_Q.

"What Scales in Cross-Entropy Scaling Law?", arXiv 2510.04067: P(e) is the share of tokens with rank e, Q(e) = exp(mean
ln p(target) given rank e), Z_Q the sum of Q(e) over observed e, Q^ = Q/Z_Q. The parts are error entropy, self-alignment
and confidence. The identity is exact; -ln Z_Q may be negative, and its logarithm is never taken then.

Computed from a sample, H(P) is too low and KL too high by more than their standard errors. So the parts stand twice:
plug-in, as the paper defines them, and corrected, which is what the laws, shares and sentences here are of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from scipy import special

from rbptrack.analysis import Analyzer, Drawing, RbptrackError, Report, Runs, Unreadable
from rbptrack.analysis.families import KEYS, Family, read_families
from rbptrack.analysis.family_figures import Curve, curve_panels
from rbptrack.analysis.figures import SIZE, log_axis
from rbptrack.analysis.findings import Finding, Reason, Remark, Verdict, around, corrected
from rbptrack.analysis.rows import R2, UNKNOWN, Column, Corrected, OfFamily, P, exponent
from rbptrack.ranks import FloatArray
from rbptrack.stats.contrasts import Contrast, contrast, verdict_of
from rbptrack.stats.error_entropy import Decomposition, decompose_pieces, part_covariance, part_errors, shares_of_fall
from rbptrack.stats.intervals import Interval
from rbptrack.stats.linear import straight_line
from rbptrack.stats.power_law import PowerLawFit, fit_power_law
from rbptrack.stats.size_laws import positive

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
SE = "its standard error over documents, wider where few of them decide"
SUMMARY = {
    "CE": "cross-entropy, nats per token: the sum of the next three",
    "H(P)": "error entropy: entropy of ranks, corrected for its bias",
    "KL": "self-alignment: KL(P || Q^), corrected",
    "-ln Z": "confidence, corrected",
    "H(P) plug-in": "error entropy of these tokens, not corrected",
    "KL plug-in": "self-alignment of these tokens, not corrected",
}
_FITS = 0.95  # R^2 below which no power law is claimed of a part
_RATIO = "alpha - alpha_ce, from the law of the ratio part / CE"
Share = Annotated[float, Column("part / CE at the smallest size", form=".3f")]


@dataclass(kw_only=True)
class PartLawRow(OfFamily):
    """The law of one part; empty where it is not positive at every size."""

    part: Annotated[str, Column("of cross-entropy, plug-in or corrected")]
    alpha: Annotated[Interval, Column("of part = A S^-alpha", title="α", form=".3f")]
    r2: R2
    nats_per_factor_10: Annotated[
        Interval, Column("change of the part per factor 10 in S, by a line in ln S (interval: scatter between sizes)")
    ]
    share_of_ce: Annotated[
        Interval, Column("share in CE's fall: slope of the part against CE over all sizes (scatter, sampling error)")
    ]


@dataclass(kw_only=True)
class ClaimRow(OfFamily):
    """What arXiv 2510.04067 claims: error entropy scales, the other parts do not, and its share in CE falls."""

    part: Annotated[str, Column("corrected for bias where that is possible")]
    alpha: Annotated[float, Column("its exponent; empty where the part is not positive at every size", title="α")]
    alpha_ce: Annotated[float, Column("cross-entropy's", title="α of CE")]
    difference: Annotated[Interval, Column(_RATIO, form=".3f", low="lower end of its interval (scatter and documents)")]
    p_different: P
    p_corrected: Corrected
    margin: Annotated[float, Column("a difference below which the part scales as CE does", form=".3f")]
    p_equivalent: Annotated[float, Column("of a difference at or beyond the margin (two one-sided tests)", form=".3g")]
    verdict: Annotated[str, Column("equivalent; different; different, but within the margin; undecided; or no law")]
    share_smallest: Share
    share_largest: Annotated[float, Column("part / CE at the largest", form=".3f")]


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
    def is_corrected(self) -> bool:
        """Whether there are ranks enough to correct every size for bias."""
        return bool(np.isfinite(self.values["error_entropy_corrected"]).all())

    @property
    def shown(self) -> dict[str, str]:
        """Each part's name here -> its words: the corrected values where they are known, else those of the tokens."""
        plain = not self.is_corrected
        return {part if part == "ce" or plain else f"{part}_corrected": word for part, word in PARTS.items()}


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
        report = Report(summary="summary")

        def load(_: Family, run_id: str) -> Decomposition:
            try:
                return decompose_pieces(runs.rank_pieces(run_id), runs.histogram(run_id))
            except Unreadable:
                raise
            except RbptrackError as error:
                raise Unreadable(f"run {run_id}: {error}") from error

        every = [self._parts(family, loaded) for family, loaded in read_families(runs, load, report.notes)]
        if not every:
            raise report.nothing_found("no measurement to decompose")
        rows = [row for parts in every for row in _part_rows(parts)]
        laws = [row for parts in every for row in self._law_rows(parts)]
        claims = corrected(
            (one for parts in every for one in _against_ce(parts)),
            lambda one: verdict_of(one.p_corrected, one.extras["p_equivalent"], size=1 - self.level),
        )
        sizes = {name: KEYS[name] for name in ("dataset", "family", "size")}
        report.add_table("summary", map(_rounded, rows), sizes | SUMMARY)
        nats = {
            column: meaning for part, text in NATS.items() for column, meaning in ((part, text), (f"{part}_se", SE))
        }
        report.add_table("parts", rows, KEYS | nats)
        report.add_rows("laws", laws)
        report.add_rows("claims", (row for parts in every for row in _claim_rows(parts, claims)))
        for part in NATS:
            report.add_metrics(f"{part}/{{family}}/{{dataset}}/{{size}}", rows, part)
        for quantity in ("alpha", "r2"):
            report.add_metrics(f"{quantity}/{{family}}/{{dataset}}/{{part}}", laws, quantity)
        report.findings += [*claims, *(one for parts in every for one in _scaling(parts))]
        report.findings += [one for parts in every for one in _shares(parts)]
        for parts in (parts for parts in every if len(parts.family.s) < 3):
            there = len(parts.family.s)
            text = f"{parts.family}: which part of CE scales needs 3 sizes, and there are {there}."
            report.notes.append(Remark(text, Reason.FEW_SIZES, needed=3, there=there))
        for name in sorted({parts.family.name for parts in every}):
            report.drawings[f"parts_{name}"] = Drawing(
                _draw_parts([parts for parts in every if parts.family.name == name]),
                "Parts of CE, corrected for bias. Right: those that are positive at every size, with their laws.",
            )
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
            parts_of_fall = shares_of_fall(nats, influence, level=self.level) if len(loaded) >= 3 else None
            shares |= dict(zip(several[1:], parts_of_fall or [], strict=False))
        influences = {name: of_text[1][:, :, i] for i, name in enumerate([names[0], *names[4:]])}
        influences |= {name: of_tokens[1][:, :, i] for i, name in enumerate(names[:4])}
        laws, against_ce = dict[str, PowerLawFit](), dict[str, Contrast]()
        for name, y in values.items():
            if len(y) >= 3 and positive(y).all():
                sampling = covariance[name] / np.outer(y, y)
                laws[name] = fit_power_law(family.s, y, covariance=sampling, level=self.level)
        for name in (name for name in laws if name != "ce" and "ce" in laws):
            against_ce[name] = self._contrast(family, values, influences, name, self.margin * abs(laws["ce"].alpha))
        return Parts(family, values, errors, laws, against_ce, shares)

    def _contrast(
        self, family: Family, values: dict[str, FloatArray], influences: dict[str, FloatArray], name: str, margin: float
    ) -> Contrast:
        """The exponent of a part against cross-entropy's: the law of their ratio, paired by model and document."""
        relative = influences[name] / values[name][:, None] - influences["ce"] / values["ce"][:, None]
        sampling = part_covariance(relative[:, :, None])[0]
        ratio = fit_power_law(family.s, values[name] / values["ce"], covariance=sampling, level=self.level)
        return contrast(ratio.alpha, ratio.spread, margin=max(margin, 1e-9), level=self.level)

    def _law_rows(self, parts: Parts) -> Iterator[PartLawRow]:
        """Each part's law, empty where it is not positive for every size, and its change per factor 10 in S."""
        m = len(parts.family.s)
        if m < 3:
            return
        quantile = float(special.stdtrit(m - 2, 0.5 + self.level / 2))
        for part, y in parts.values.items():
            line, law = straight_line(np.log10(parts.family.s), y), parts.laws.get(part)
            half = quantile * line.error
            yield PartLawRow(
                **parts.family.keys, part=part, alpha=exponent(law), r2=law.r2 if law else np.nan,
                nats_per_factor_10=Interval.around(line.slope, half),
                share_of_ce=parts.shares.get(part, UNKNOWN),
            )  # fmt: skip


def _part_rows(parts: Parts) -> list[dict[str, Any]]:
    rows = parts.family.size_keys
    for part, y in parts.values.items():
        for row, value, error in zip(rows, y, parts.errors[part], strict=True):
            row |= {part: value, f"{part}_se": error}
    return rows


def _rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row for the terminal: texts."""
    names = ["ce", *(f"{part}_corrected" for part in list(PARTS)[1:]), "error_entropy", "self_alignment"]
    texts = [f"{row[name]:.3f}" if row[name] == row[name] else "" for name in names]
    return {name: row[name] for name in ("dataset", "family", "size")} | dict(zip(SUMMARY, texts, strict=True))


def _about(parts: Parts, part: str) -> dict[str, Any]:
    """What sentences need to know of a part."""
    ce, y = parts.values["ce"], parts.values[part]
    return {"share_smallest": y[0] / ce[0], "share_largest": y[-1] / ce[-1], "corrected": parts.is_corrected}


def _against_ce(parts: Parts) -> Iterator[Finding]:
    """Whether each part scales as cross-entropy does: what its share in CE does as models grow."""
    for part, word in list(parts.shown.items())[1:]:
        if one := parts.against_ce.get(part):
            about = _about(parts, part) | {"margin": one.margin, "p_equivalent": one.p_equivalent}
            number = around(one.difference)
            case = parts.family.keys | {"part": word}
            yield Finding(question="scales as CE", case=case, p=one.p_different, extras=about, **number)


def _claim_rows(parts: Parts, claims: list[Finding]) -> Iterator[ClaimRow]:
    """The contrasts of one family; a part without a law has a row without numbers."""
    known = {one.case["part"]: one for one in claims if one.case.items() >= parts.family.keys.items()}
    for part, word in list(parts.shown.items())[1:] if len(parts.family.s) >= 3 else ():
        about: dict[str, Any] = {"margin": np.nan, "p_equivalent": np.nan} | _about(parts, part)
        tested: dict[str, Any] = {"verdict": "no law", "alpha": np.nan, "alpha_ce": np.nan, "difference": UNKNOWN}
        tested |= {"p_different": np.nan, "p_corrected": np.nan}
        if one := known.get(word):
            about |= one.extras
            tested |= {"verdict": one.verdict, "alpha": parts.laws[part].alpha, "alpha_ce": parts.laws["ce"].alpha}
            tested |= {"difference": one.interval, "p_different": one.p, "p_corrected": one.p_corrected}
        del about["corrected"]
        yield ClaimRow(**parts.family.keys, part=part, **tested, **about)


def _scaling(parts: Parts) -> Iterator[Finding]:
    """Which parts follow a falling power law, and why the others do not."""
    for part, word in list(parts.shown.items())[1:] if len(parts.family.s) >= 3 else ():
        law = parts.laws.get(part)
        about: dict[str, Any] = {"question": "follows a power law", "case": parts.family.keys | {"part": word}}
        if law is None:
            yield Finding(**about, verdict=Verdict.NO, reason="not positive")
            continue
        reason = "poor fit" if law.r2 < _FITS else ""
        if law.low <= 0:
            reason = "grows" if law.high < 0 else "flat"
        verdict = Verdict.NO if reason else Verdict.YES
        yield Finding(**about, **around(exponent(law)), extras={"r2": law.r2}, verdict=verdict, reason=reason)


def _shares(parts: Parts) -> Iterator[Finding]:
    """The parts' shares in CE's fall over all sizes, or why there are none."""
    ce, keys = parts.values["ce"], parts.family.keys
    if len(ce) < 3:
        return
    reason = "" if parts.is_corrected else "too few ranks"
    if ce[0] <= ce[-1]:
        reason = "CE does not fall"
    if reason or not parts.shares:
        yield Finding(question="share of CE's fall", case=keys, reason=reason or "within sampling error")
        return
    bias = parts.values["self_alignment"] / parts.values["self_alignment_corrected"]
    for part, word in list(parts.shown.items())[1:]:
        case, extras = keys | {"part": word}, {"bias": (bias.min(), bias.max())}
        yield Finding(question="share of CE's fall", case=case, extras=extras, **around(parts.shares[part]))


def _draw_parts(every: list[Parts]) -> Figure:
    """Left, the parts in nats; right, those that are positive, with their laws, on log axes."""
    curves = list[Curve]()
    for parts in every:
        plain, logs = list[Curve](), list[Curve]()
        s, left, right = parts.family.s, str(parts.family), f"{parts.family}: laws"
        line = np.geomspace(s.min(), s.max(), 40)
        for i, (part, word) in enumerate(parts.shown.items()):
            y, half, law = parts.values[part], 1.96 * parts.errors[part], parts.laws.get(part)
            label = word if part == "ce" else f"{word} {SYMBOLS[list(PARTS)[i]].replace('-', '−')}"
            plain.append(Curve(left, label, label, s, y, y - half, y + half, bars=True))
            if (y > 0).all():
                holds = law is not None and law.low > 0 and law.r2 >= _FITS
                told = f"{label}: α = {law.alpha:.3f}" if law and holds else f"{label}: no law"
                logs.append(Curve(right, label, told, s, y, y - half, y + half, bars=True, options={"ls": ""}))
                if law:
                    look = {"ls": "-" if holds else ":", "marker": "", "lw": 1.1}
                    logs.append(Curve(right, label, "", line, law.predict(line), options=look))
        curves += plain + logs
    figure, axes = curve_panels(curves, xlabel=SIZE, ylabel="nats per token", columns=2, height=3.2)
    for ax, parts in zip(axes[1::2], every, strict=True):
        above = np.concatenate([parts.values[part] for part in parts.shown if (parts.values[part] > 0).all()])
        low, high = above.min(), above.max()
        log_axis(ax.yaxis, low=low / (high / low) ** 0.45, high=high * 1.3)
    return figure
