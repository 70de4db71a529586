"""The law in size: -ln RBP_k = A * S**-alpha per family, dataset and k, and the same for cross-entropy.

The figures are 3 to 6 of arXiv 2510.20387, which finds the exponents of cross-entropy and RBP_1 "nearly identical". Two
intervals cannot tell, as models and documents are common to both; the law of the ratio of the two values can.

The fit is least squares on ln y, y = -ln RBP_k or CE. The interval of alpha joins the covariance of ln y between
sizes, from a document bootstrap (the same documents for all sizes), and the scatter between models, read off the
residuals (HC2, with Bell and McCaffrey's degrees of freedom). Simulated coverage with 4 to 16 sizes is 93 to 98%.
tau, the scatter's standard deviation, is the REML estimate. Where sizes have several seeds, the scatter between seeds
is separated from that between sizes, and the law is tested against it (table `seeds`).

RBP_k against CE: the law of the ratio of the two values has the exponent alpha - alpha_CE, free of the noise that
both share. Two tests, of difference and of equivalence within `margin`, are Holm-corrected over all families,
datasets and k. An exponent whose interval lies below 0 is called an inverse law.

Held-out error: the law without the largest model predicts it; beside the error stands its standard deviation if the
law holds. `backtests` does the same without the largest two and three. A forecast is as wide as such forecasts were
wrong, and is refused beyond the ratio of sizes that two backtests reached. It held in 92 to 100% of simulated
scenarios (`studies/forecasts.py`), but no data can reveal a break beyond the measured sizes.

`form` takes arithmetic in S and D: + - * / **, numbers, pi, abs exp expm1 log log10 log1p log2 maximum minimum sqrt
tanh; every other name is a parameter. Parameters without a start begin at 255 points over seven decades.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, rbp_name
from rbptrack.analysis.findings import Verdict, around, by_sign, corrected, sure, within_margin
from rbptrack.analysis.laws import FamilyLaw, LawReader, by_family
from rbptrack.analysis.published import published_alpha
from rbptrack.analysis.rows import exponent
from rbptrack.analysis.sizes import SizeUnit
from rbptrack.base.words import listed
from rbptrack.ranks import CE, HEADLINE_KS
from rbptrack.stats.contrasts import contrast, holm
from rbptrack.stats.forecasts import backtest
from rbptrack.stats.nested import NestedFit

from .choices import equally_trained, pooled_families
from .figures import Curves, draw_against_k, draw_ce_against_rbp, draw_laws
from .findings import AgainstCE, FitsWithinSeeds, LargestHeldOut, LawInSize, SizeThatDecides
from .pattern import sign_test
from .rows import (
    BacktestRow,
    ContrastRow,
    ForecastRow,
    LawRow,
    PointRow,
    PooledRow,
    equal_row,
    fit_rows,
    law_rows,
    point_rows,
    seed_row,
)

KS = (*HEADLINE_KS, 1000)
NAN = float("nan")
Cells = dict[str, Any]

LAWS = "Models with 95% sampling intervals, and least squares on both logarithms; equal exponents have equal slopes."
PROFILE = "By least squares in ln y; profile intervals (lmfit) take errors as independent and alike at all sizes."
HOLLOW = "Hollow, if one exists: the authors' published exponent."
ALPHA_AGAINST_K = f"Exponent of the law in size against k, with its interval. Thin lines: that of CE. {HOLLOW}"
CE_AGAINST_RBP = "A point per model and a straight line per family, as in figure 8a of the paper."


@dataclass(kw_only=True)
class PowerLaw(Analyzer):
    """Fits -ln RBP_k = A S^-alpha, and the same for CE; whether RBP_k's exponent differs from CE's.

    Attributes:
        ks: the k of the tables and of the figures' panels.
        curve_points: how many k per decade the exponent is fitted at for the curves of alpha and R^2 against k.
        level: nominal coverage of the intervals; tests have size 1 - level.
        replicates: document bootstraps, drawn jointly for all sizes of a family.
        margin: exponents that differ by less than this share of the larger count as the same.
        forecast: sizes S to predict every metric at, such as [7e10].
        size: what S is: non_embedding_params, total_params or training_flops (6 S D; needs training_tokens).
        training_tokens: tokens D that models were trained on, by pattern over model names; on the command line
            '+analyzer.training_tokens={pythia-*: 3e11}'. With it, laws are also fitted over the models of a family
            that were trained on equally many.
        form: a law of your own: an expression in S, and in D (training tokens) where they are given, such as
            'E + A*S**-alpha'; fitted beside the power law.
        parameters: of the form's parameters starting values, bounds and fixed values; on the command line
            '+analyzer.parameters={E: {min: 0}, alpha: {value: 0.1, vary: false}}'.
        pool: also take the families of a dataset together (3 or more): exponents as draws around a common mean.

    """

    name: ClassVar[str] = "power_law"
    k_option: ClassVar[str] = "ks"
    ks: list[int] = field(default_factory=lambda: [*KS])
    curve_points: int = 8
    level: float = 0.95
    replicates: int = 1000
    margin: float = 0.1
    forecast: list[float] = field(default_factory=list)
    size: str = "non_embedding_params"
    training_tokens: dict[str, float] = field(default_factory=dict)
    pool: bool = False
    form: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)

    def analyze(self, runs: Runs) -> Report:
        """Fit every family x dataset that has at least 3 sizes."""
        if any(s <= 0 for s in self.forecast):
            raise BadInput(f"analyzer.forecast: sizes must be above 0; got {self.forecast}")
        if self.margin <= 0:
            raise BadInput(f"analyzer.margin must be above 0; got {self.margin}")
        if self.parameters and not self.form:
            raise BadInput("analyzer.parameters are those of a form; give analyzer.form")
        report = Report(summary="laws")
        options = (self.ks, self.curve_points, self._unit)
        reader = LawReader(*options, level=self.level, replicates=self.replicates, draws=self.pool)
        laws = reader.read(runs, report.notes)
        if not laws:
            raise report.nothing_found("no measurement to fit")
        shown = [law for law in laws if law.logged or law.metric in (CE, *map(rbp_name, self.ks))]
        contrasts = self._against_ce(shown)
        rows = law_rows(shown)
        points = {law.path: point_rows(law) for law in shown}
        report.add_rows("laws", rows.values())
        caption = "Tested over the same documents and models; p are corrected over all rows (Holm)."
        report.add_rows("against_ce", contrasts.values(), caption=caption)
        report.add_rows("points", (row for family_points in points.values() for row in family_points))
        self._tables(report, laws, shown)
        for law in shown:
            cells = exponent(law.law).columns("alpha") | {"r2": law.law.r2}
            report.metrics |= {f"{quantity}/{law.path}": value for quantity, value in cells.items()}
        self._findings(report, shown, contrasts)
        lead = self._lead_metrics(shown)
        held_out = [_at_largest(law, rows[law.path], opens=law.metric in lead) for law in shown if law.law.points > 3]
        report.findings += corrected(held_out, sure(self.level))
        report.findings += [_most_decisive(family_laws, points) for family_laws in by_family(shown).values()]
        signs = filter(None, (sign_test(laws_of_one) for laws_of_one in by_family(shown).values()))
        report.findings += corrected(signs, sure(self.level))
        seeds = [_within_seeds(law, law.seeds) for law in shown if law.seeds]
        report.findings += corrected(seeds, sure(self.level, Verdict.NO))
        curves = self._own_form(report, shown) if self.form else {}
        self._drawings(report, laws, curves)
        return report

    def _own_form(self, report: Report, shown: list[FamilyLaw]) -> Curves:
        """Fit the form that was asked for to every law shown; its curves, by dataset, metric and family."""
        from .form import Fitted, Form, fit_beside  # lmfit: only for who asks

        form = Form(self.form, self.parameters)
        fitted: dict[tuple[str, str, str], Fitted] = {}
        refused: dict[tuple[str, str], list[str]] = {}
        for law in shown:
            tokens = self._unit.trained_on(law.family)
            try:
                key = (law.family.dataset, law.metric, law.family.name)
                fitted[key] = fit_beside(form, law, tokens, level=self.level)
            except BadInput as error:
                refused.setdefault((str(law.family), str(error)), []).append(law.label)
        notes = [
            f"{family}: {form.text} is not fitted to {listed(labels)}: {reason}."
            for (family, reason), labels in refused.items()
        ]
        if not fitted:
            raise BadInput(notes[0])
        report.notes += notes
        report.add_rows("form", (case.row for case in fitted.values()), caption=f"{form.text}, beside the power law.")
        report.add_rows(
            "form_parameters", (row for case in fitted.values() for row in case.parameters), caption=PROFILE
        )
        report.findings += [case.finding for case in fitted.values()]
        return {key: case.line for key, case in fitted.items()}

    @property
    def _unit(self) -> SizeUnit:
        return SizeUnit(self.size, self.training_tokens)

    def _against_ce(self, shown: list[FamilyLaw]) -> dict[str, ContrastRow]:
        """Return each RBP_k against CE, by the law's path; p are corrected over all of them (Holm)."""
        ce = {law.family.path: law.law.alpha for law in shown if law.metric == CE}
        pairs = [(law, law.to_ce, ce[law.family.path]) for law in shown if law.to_ce and law.family.path in ce]
        margins = [self.margin * max(law.law.alpha, alpha_ce, 1e-9) for law, _, alpha_ce in pairs]
        tested = [
            contrast(to_ce.alpha, to_ce.spread, margin=margin, level=self.level)
            for (_, to_ce, _), margin in zip(pairs, margins, strict=True)
        ]
        different = holm([law.p_different for law in tested])
        same = holm([law.p_equivalent for law in tested])
        rows = {}
        for (law, _, alpha_ce), alone, p_different, p_same in zip(pairs, tested, different, same, strict=True):
            both = replace(alone, p_different=float(p_different), p_equivalent=float(p_same))
            rows[law.path] = ContrastRow(
                **law.keys,
                alpha=law.law.alpha,
                alpha_ce=alpha_ce,
                margin=both.margin,
                difference=both.difference,
                p_different=alone.p_different,
                p_corrected=both.p_different,
                p_equivalent=both.p_equivalent,
                verdict=within_margin(Verdict(both.verdict), both.difference, both.margin),
            )
        return rows

    def _tables(self, report: Report, laws: list[FamilyLaw], shown: list[FamilyLaw]) -> None:
        report.add_rows("fits", fit_rows(laws))
        report.add_rows("seeds", (seed_row(law, law.seeds) for law in shown if law.seeds))
        self._forecasts(report, shown)
        if self.pool:
            report.add_rows("pooled", self._pooled(shown, report.notes))
        if self.training_tokens:
            equal = equally_trained(shown, self._unit, report.notes, level=self.level)
            report.add_rows("equal_tokens", (equal_row(*law) for law in equal))

    def _forecasts(self, report: Report, shown: list[FamilyLaw]) -> None:
        """Add the results of forecasts from fewer sizes, and the requested forecasts with intervals as wide as those
        errors.
        """
        tests = backtest([law.law for law in shown], [law.family.rows["family"].iloc[0] for law in shown])
        rows = []
        for (i, law), s in product(enumerate(shown), self.forecast):
            prediction = tests.forecast(i, s, level=self.level)
            rbp = NAN if law.metric == CE else float(np.exp(-prediction.y.value))
            beyond = s / law.law.s.max()
            cells: Cells = {"predicted": prediction.y, "refused": prediction.refused, "rbp": rbp}
            rows.append(ForecastRow(**law.keys, S=s, beyond=beyond, **cells))
        report.add_rows("forecasts", rows)
        made = []
        for test in tests.made:
            error = float(np.expm1(test.error))
            keys = shown[test.law].keys
            made.append(BacktestRow(**keys, left_out=test.left_out, S=test.s, beyond=test.beyond, error=error))
        caption = f"{tests.models} different models were left out; forecasts are as wide as these errors."
        report.add_rows("backtests", made, caption=caption)

    def _pooled(self, shown: list[FamilyLaw], notes: list[str]) -> Iterator[PooledRow]:
        for pooled, group in pooled_families(shown, notes, level=self.level):
            for law, shrunk in zip(group, pooled.shrunk, strict=True):
                cells: Cells = {"between": pooled.between, "alpha": law.law.alpha, "shrunk": float(shrunk)}
                yield PooledRow(**law.keys, mean=pooled.mean, **cells)

    def _findings(self, report: Report, shown: list[FamilyLaw], contrasts: Mapping[str, ContrastRow]) -> None:
        lead = self._lead_metrics(shown)
        report.findings += [self._law(law, opens=law.metric in lead) for law in shown]
        corrected_level = 1 - (1 - self.level) / max(len(contrasts), 1)
        for law, row in ((law, contrasts[law.path]) for law in shown if law.path in contrasts):
            report.findings.append(
                AgainstCE(
                    case=_case(law),
                    p=row.p_different,
                    p_corrected=row.p_corrected,
                    verdict=row.verdict,
                    margin=row.margin,
                    detectable=law.to_ce.spread.detectable(corrected_level) if law.to_ce else np.nan,
                    sizes=law.law.points,
                    opens=law.metric in lead,
                    **around(row.difference),
                )
            )

    def _law(self, law: FamilyLaw, *, opens: bool) -> LawInSize:
        alpha = exponent(law.law)
        return LawInSize(
            case=_case(law),
            verdict=by_sign(alpha),
            sizes=law.law.points,
            smallest=law.law.s.min(),
            largest=law.law.s.max(),
            level=self.level,
            size=self.size,
            other=exponent(law.other),
            opens=opens,
            **around(alpha),
        )

    def _drawings(self, report: Report, laws: list[FamilyLaw], curves: Curves) -> None:
        metrics = self._lead_metrics(laws)
        caption = f"{LAWS} Black dashes: {self.form}." if curves else LAWS
        drawn = [law for law in laws if law.metric in metrics]
        if any(np.isfinite(published_alpha(law.family.name, law.family.dataset, law.metric)) for law in drawn):
            caption += " Dotted: the published exponent."
        report.drawings["law_in_size"] = Drawing(
            draw_laws(laws, metrics, xlabel=self._unit.label, curves=curves), caption
        )
        if all(law.metric == CE for law in laws):
            return  # imports of CE alone have no k
        alphas = [law.law.alpha for law in laws]
        r2s = [law.law.r2 for law in laws]
        figure, axes = draw_against_k(laws, "alpha", ylabel="α")
        axes[0].set_ylim(min(0.0, *alphas) * 1.1, max(alphas) * 1.25)  # intervals that explode near |V| are cut off
        report.drawings["alpha_against_k"] = Drawing(figure, ALPHA_AGAINST_K)
        figure, axes = draw_against_k(laws, "r2", ylabel="R² of the fit on log axes")
        axes[0].set_ylim(max(0.0, min(r2s) - 0.03), 1.005)
        report.drawings["r2_against_k"] = Drawing(figure, "R² of each law in size against k. Thin lines: that of CE.")
        asked_ks = [k for k in sorted(self.ks) if {rbp_name(k), CE} <= {law.metric for law in laws}]
        if asked_ks:
            figure = draw_ce_against_rbp(laws, asked_ks[0])[0]
            report.drawings[f"ce_against_{rbp_name(asked_ks[0])}"] = Drawing(figure, CE_AGAINST_RBP)

    def _lead_metrics(self, laws: list[FamilyLaw]) -> list[str]:
        """Return the metrics of the page's first table and figure: CE, and RBP_k of the k asked for; five at most."""
        fitted = [law.metric for law in laws]
        ks = HEADLINE_KS if tuple(self.ks) == KS else sorted(self.ks)
        asked_metrics = [m for m in map(rbp_name, ks) if m in fitted]
        logged = [m for m in dict.fromkeys(fitted) if m != CE]
        return [CE] * (CE in fitted) + (asked_metrics or logged)[:4]


def _case(law: FamilyLaw) -> Cells:
    return law.family.keys | {"metric": law.metric}


def _at_largest(law: FamilyLaw, row: LawRow, *, opens: bool) -> LargestHeldOut:
    """Return the signed error at the largest size, held out of the law."""
    return LargestHeldOut(
        case=_case(law),
        p=row.held_out_p,
        detectable=row.held_out_detectable,
        size=law.family.labels[-1],
        opens=opens,
        **around(row.held_out),
    )


def _most_decisive(family_laws: list[FamilyLaw], points: Mapping[str, Sequence[PointRow]]) -> SizeThatDecides:
    """Return the size that moves an exponent of the family most."""
    moved = [
        (abs(row.alpha_without - law.law.alpha) / max(abs(law.law.alpha), 1e-9), law, row)
        for law in family_laws
        for row in points[law.path]
    ]
    share, law, row = max(moved, key=lambda share_and_law: -1.0 if np.isnan(share_and_law[0]) else share_and_law[0])
    alpha = law.law.alpha
    without = row.alpha_without
    return SizeThatDecides(case=_case(law), estimate=share, size=row.size, alpha=alpha, without=without)


def _within_seeds(law: FamilyLaw, seeds: NestedFit) -> FitsWithinSeeds:
    """Return whether a power law fits within the scatter of several runs of a size."""
    return FitsWithinSeeds(case=_case(law), estimate=seeds.seed, p=seeds.p, runs=seeds.runs, sizes=seeds.sizes)
