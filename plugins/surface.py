"""The joint surface of size and k: alpha(k) as a band, one lack-of-fit test, and k* with certain ends."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure

from rbptrack.analysis import (
    Analyzer,
    Curve,
    DocumentCounts,
    Drawing,
    Family,
    Report,
    Runs,
    curve_panels,
    log_grid,
    p_in_words,
    rbp_name,
    read_families,
    shared_columns,
    some_of,
    style,
)
from rbptrack.stats import Limit, fit_surface, law_values, positive, worth
from rbptrack.stats import Surface as Fit

KEY = shared_columns("dataset", "family")
COLUMNS = {
    "summary": KEY
    | {
        "sizes": "number of sizes m",
        "p": "of one test over all k: no k departs from a power law",
        "k*": "largest k up to which the estimated departure stays within the margin",
        "shown to": "largest k up to which it is shown to (95% over all k); 0: at none",
        "exceeded from": "smallest k at which it is shown to exceed it; 0: at none",
        "scatter": "between models: standard deviation of ln S, how far a model is ahead of its size",
        "scatter fits": "which rule of scatter fits better: proportional to alpha, or equal in ln y at every k",
    },
    "alpha": KEY
    | {
        "k": "of RBP_k",
        "alpha": "exponent, least squares",
        "band_low": "lower end of a band that holds alpha at every k together",
        "band_high": "upper end",
        "departure": "largest departure from a line over the sizes, in ln y; above 0: the law flattens",
        "departure_low": "lower end of its simultaneous band",
        "departure_high": "upper end",
        "tau": "scatter between models in ln y",
    },
    "models": KEY | shared_columns("size") | {"S": "size", "ahead": "factor in S by which it is ahead of the line"},
}
_LEAST = 5  # sizes: fewer cannot tell a bend from scatter
_LEGEND = 1.4  # inches


@dataclass(frozen=True)
class Found:
    """The surface of one family, and its k*."""

    family: Family
    fit: Fit
    limit: Limit


@dataclass(kw_only=True)
class JointSurface(Analyzer):
    """Does a power law hold at every k, and up to which k? alpha(k) as a band, one test, k* with certain ends.

    Attributes:
        per_decade: how many k per decade.
        least_misses: fewest tokens with rank above k, in any size, from which a k is fitted.
        margin: departure from a line, in ln y, that k* allows.
        scatter: between models: proportional (to alpha), equal (in ln y) or free (at each k).
        level: nominal coverage.
        replicates: document bootstraps, drawn jointly for all sizes and k.

    """

    name: ClassVar[str] = "surface"
    per_decade: int = 12
    least_misses: int = 10
    margin: float = 0.05
    scatter: str = "proportional"
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Fit every family x dataset that has at least 5 sizes."""
        report, found = Report(summary="summary"), list[Found]()

        def load(family: Family, run_id: str) -> DocumentCounts:
            family.require_ranks()
            return runs.document_counts(run_id, log_grid(family.vocab_size, per_decade=self.per_decade).tolist()[:-1])

        for family, counts in read_families(runs, load, report.notes, least=_LEAST):
            fit = self._fit(family, counts)
            if fit is None:
                report.notes.append(
                    f"{family}: no k has {self.least_misses} misses in every model, so nothing is fitted."
                )
            else:
                found.append(Found(family, fit, fit.limit(self.margin)))
        if not found:
            raise report.nothing_found(f"no family with {_LEAST} sizes")
        report.notes[:0] = map(self._sentence, found)
        rejected, p = sum(f.fit.p < 1 - self.level for f in found), [f.fit.p for f in found]
        report.headline = (
            f"tested at all k together, a power law is {_rejected(rejected, len(found))}; "
            f"{'the smallest p' if len(p) > 1 else 'p'} is {min(p):.2g}"
        )
        report.add_table("summary", map(self._row, found), COLUMNS["summary"])
        report.add_table("alpha", (row for f in found for row in _alpha_rows(f)), COLUMNS["alpha"])
        report.add_table("models", (row for f in found for row in _model_rows(f)), COLUMNS["models"])
        report.metrics = {f"surface_p/{f.family.path}": f.fit.p for f in found}
        report.metrics |= {f"surface_k_star/{f.family.path}": float(f.limit.k) for f in found}
        report.drawings = {
            "alpha_band": Drawing(
                _draw(found, "alpha"),
                f"Exponent at each k. The band covers all k together with {self.level:z.0%} probability.",
            ),
            "departure": Drawing(
                _draw(found, "departure", margin=self.margin),
                "Largest departure of the points from a line, in ln y; a power law has 0. Dotted: the margin of k*.",
            ),
        }
        return report

    def _fit(self, family: Family, counts: list[DocumentCounts]) -> Fit | None:
        values = law_values(counts, replicates=self.replicates)
        tokens = np.array([c.tokens.sum() for c in counts])
        misses = (tokens[:, None] - np.stack([c.hits.sum(axis=0) for c in counts])).min(axis=0)
        columns = {
            k: values.of(rbp_name(k)) for k, few in zip(counts[0].ks, misses, strict=True) if few >= self.least_misses
        }
        ks = [k for k, (y, draws) in columns.items() if positive(y) and positive(draws)]
        if not ks:
            return None
        y, draws = (np.stack([columns[k][i] for k in ks], axis=-1) for i in (0, 1))
        documents = worth(np.sqrt(counts[0].tokens))
        return fit_surface(family.s, ks, y, draws, documents=documents, scatter=self.scatter, level=self.level)

    def _row(self, found: Found) -> dict[str, Any]:
        fit, limit = found.fit, found.limit
        row = found.family.keys | {"sizes": len(found.family.s), "p": fit.p, "k*": limit.k}
        row |= {"shown to": limit.shown, "exceeded from": limit.exceeded, "scatter": fit.sigma}
        return row | {"scatter fits": min(fit.fit, key=lambda rule: fit.fit[rule])}

    def _sentence(self, found: Found) -> str:
        fit, limit = found.fit, found.limit
        text = f"{found.family}: {_verdict(fit.p, self.level)} over k = {fit.ks[0]} to {fit.ks[-1]:,}."
        shown = f"up to k = {limit.shown:,}" if limit.shown else "at no k"
        text += f" The law is shown to be straight within {limit.margin:z.0%} {shown}"
        text += f", and shown not to be from k = {limit.exceeded:,}" if limit.exceeded else ""
        low, high = fit.band
        text += f"; alpha goes from {fit.alpha[0]:.3f} ({low[0]:.3f} to {high[0]:.3f}) at k = {fit.ks[0]}"
        return text + f" to {fit.alpha[-1]:.3f} ({low[-1]:.3f} to {high[-1]:.3f}) at k = {fit.ks[-1]:,}."


def _verdict(p: float, level: float) -> str:
    if p < 1 - level:
        return f"a power law does not hold at every k (one test over all k, {p_in_words(p)})"
    return (
        f"the data show no departure from a power law (one test over all k, {p_in_words(p)}; a single k may still show "
        "one)"
    )


def _rejected(rejected: int, cases: int) -> str:
    if cases == 1:
        return "rejected" if rejected else "not rejected"
    return f"rejected in {some_of(rejected, cases, 'case')}, each a family on a dataset"


def _alpha_rows(found: Found) -> Iterator[dict[str, Any]]:
    fit = found.fit
    columns = [fit.ks, fit.alpha, *fit.band, fit.bend, *fit.bend_band, fit.tau]
    names = list(COLUMNS["alpha"])[len(KEY) :]
    for cells in zip(*columns, strict=True):
        yield found.family.keys | {n: int(c) if n == "k" else float(c) for n, c in zip(names, cells, strict=True)}


def _model_rows(found: Found) -> Iterator[dict[str, Any]]:
    for keys, offset in zip(found.family.size_keys, found.fit.offset, strict=True):
        yield keys | {"ahead": float(np.exp(offset))}


def _draw(found: list[Found], quantity: str, margin: float = 0.0) -> Figure:
    curves = []
    for one in found:
        fit, family = one.fit, one.family
        middle, ends = (fit.alpha, fit.band) if quantity == "alpha" else (fit.bend, fit.bend_band)
        curves.append(Curve(family.dataset, family.name, family.name, fit.ks, middle, *ends))
    with style():
        label = "α" if quantity == "alpha" else "departure from a line, ln y"
        figure, axes = curve_panels(curves, xlabel="k", ylabel=label, legend=_LEGEND)
        for ax in axes if margin else ():
            for edge in (-margin, margin):
                ax.axhline(edge, ls=":", lw=1, color="#57606a")
            ax.axhline(0, lw=0.8, color="#57606a")
        return figure
