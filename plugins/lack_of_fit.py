"""The limits of the law in size: does it bend, up to which k does it hold, and what ends it.

Section 4.3 and open question 2 of arXiv 2510.20387: for k near |V| almost every token is a hit, few misses are left to
count, and what looks like a broken law may be noise. One test of each family on a dataset asks whether its laws bend,
at all k together; a floor (an irreducible term) is spoken of only where it outlives correction, both ways to count S,
and the loss of the smallest model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from rbptrack.analysis import Analyzer, Drawing, Report, Runs, rbp_name
from rbptrack.analysis.bar_figures import draw_verdicts
from rbptrack.analysis.families import Family, families, read_families
from rbptrack.analysis.family_figures import Curve, curve_panels, curves_of
from rbptrack.analysis.figures import COLOURS
from rbptrack.analysis.findings import Finding, Reason, Verdict, around, corrected, sure
from rbptrack.analysis.laws import LawReader
from rbptrack.analysis.rows import R2, Column, Corrected, Exponent, K, OfFamily, OfMetric, OfSize, P
from rbptrack.analysis.sizes import SizeUnit
from rbptrack.ranks import CE, DocumentCounts, log_grid, metric_label
from rbptrack.stats.bends import LEAST_SIZES, FloorTest, floor_test
from rbptrack.stats.each_k import EachK, LawAtK, laws_at_each_k, most_misses
from rbptrack.stats.intervals import Interval
from rbptrack.stats.law_forms import Forms, fit_forms
from rbptrack.stats.power_law import PowerLawFit, fit_power_law
from rbptrack.stats.size_laws import LawValues, law_values, positive

NAN = float("nan")
_OFF, _LOG = "departure from a line, ln y", "R² of the fit on log axes"
_EACH_K = "Verdict on the law in size at each k, from k = 1 to |V|."
_DEPARTURE = "Largest departure of the points from a line, in ln y; a power law has 0. Dotted: the margin."
_R2 = "Lines: R² observed; bands: R² that noise and the usual scatter between models leave of a true law ({:z.0%})."
_MISSES = "Where the misses (rank above k) are, at the first k at which no law is seen, or else at the largest k."


_FILLS: dict[str, tuple[str, str]] = {
    LawAtK.HOLDS: (COLOURS[0], ""),
    LawAtK.NOISE: ("#d9d9d9", "..."),
    LawAtK.BENDS: (COLOURS[1], "///"),
    LawAtK.INVERSE: (COLOURS[3], "xxx"),
}
_FLATTENS = "largest departure from a line over the sizes, in ln y; above 0: it flattens"
Floor = Annotated[float, Column("the smallest floor, as share of y at the largest size, found in 80%", form=".0%")]


@dataclass(kw_only=True)
class SummaryRow(OfFamily):
    """A family on a dataset."""

    sizes: Annotated[int, Column("number of sizes m")]
    k_star: Annotated[int, Column("largest k up to which the law holds; 0: at none", title="k*")]
    last_k: Annotated[int, Column("the last k tried: beyond it some model has too few misses")]
    beyond: Annotated[str, Column("what most k beyond k* are", title="beyond k*")]
    bends: Annotated[Verdict, Column("one test over all k, from 5 sizes")]
    p: P
    p_corrected: Corrected
    floor_seen: Floor
    straight_to: Annotated[int, Column("largest k up to which the law is shown to be straight within the margin")]
    bent_from: Annotated[int, Column("smallest k at which it is shown not to be; 0: at none")]
    misses: Annotated[int, Column("tokens with rank above k*, fewest of all sizes")]
    vocabulary: Annotated[int, Column("smallest |V| of the family", title="|V|")]
    scatter: Annotated[float, Column("standard deviation of ln S by which a model is ahead of its size")]
    scatter_fits: Annotated[str, Column("the better rule of scatter: proportional to alpha, or equal in ln y")]


@dataclass(kw_only=True)
class KRow(OfFamily):
    """The law at one k (`rbptrack.stats.each_k.AtK`)."""

    k: K
    verdict: Annotated[LawAtK, Column("law holds, noise-limited, systematic deviation or inverse")]
    alpha: Exponent
    band_low: Annotated[float, Column("lower end of a band that holds alpha at every k together", form=".3f")]
    band_high: Annotated[float, Column("upper end", form=".3f")]
    snr: Annotated[float, Column("|alpha| / its standard error")]
    misses: Annotated[int, Column("tokens with rank above k, fewest of all sizes")]
    design_effect: Annotated[float, Column("variance of RBP_k over documents / binomial variance, largest model")]
    departure: Annotated[
        Interval, Column(_FLATTENS, low="lower end of a band that holds the departures of all k together")
    ]
    tau: Annotated[float, Column("scatter between models in ln y")]
    r2: R2
    expected: Annotated[
        Interval,
        Column(
            "median R^2 if the line were true under that noise", "R², expected", form=".3f", low="lower end of its band"
        ),
    ]


@dataclass(kw_only=True)
class FloorRow(OfMetric):
    """What is known of a bend and a floor of one metric (`rbptrack.stats.bends.FloorTest`)."""

    floor: Annotated[Verdict, Column("whether there is one, corrected over all rows")]
    departure: Annotated[Interval, Column(_FLATTENS)]
    p_bend: P
    p_floor: Annotated[float, Column("one-sided, the largest by both S and without the smallest size", form=".3g")]
    p_corrected: Corrected
    share: Annotated[Interval, Column("most likely E / y at the largest size, of E + A S^-alpha", form=".0%")]
    floor_seen: Floor


@dataclass(kw_only=True)
class FormRow(OfMetric):
    """One form of the law of one metric."""

    form: Annotated[str, Column("M0: A S^-alpha; M1: E + A S^-alpha, from 6 sizes; M2: broken, from 12 sizes")]
    preferred: Annotated[bool, Column("the form to use: M1 where there is a floor, M2 by AICc, else M0")]
    aicc: Annotated[float, Column("Akaike's criterion for small samples, tau counted; lower is better", "AICc")]
    alpha: Annotated[float, Column("exponent under this form (below the break for M2)", title="α", form=".3f")]
    E: Annotated[Interval, Column("floor, in y's unit")]


@dataclass(kw_only=True)
class DocumentRow(OfFamily):
    """A document that holds many misses."""

    k: K
    document: Annotated[int, Column("number in the selection")]
    tokens: Annotated[int, Column("scored tokens in it")]
    misses: Annotated[int, Column("tokens with rank above k, largest model")]
    share: Annotated[float, Column("of all misses of that model", form=".1%")]
    alpha_without: Annotated[float, Column("exponent when this document is left out", "α without it", form=".3f")]
    alpha: Annotated[float, Column("exponent with all documents", title="α", form=".3f")]


@dataclass(kw_only=True)
class TokenRow(OfFamily):
    """A right token that is often missed."""

    k: K
    token: Annotated[str, Column("the right token")]
    id: Annotated[int, Column("its id in the vocabulary")]
    misses: Annotated[int, Column("times its rank was above k, largest model")]
    share: Annotated[float, Column("of all misses", form=".1%")]
    occurrences: Annotated[int, Column("times it was the right token")]


@dataclass(kw_only=True)
class ModelRow(OfSize):
    """How far a model is ahead of its size."""

    ahead: Annotated[float, Column("factor in S by which it is ahead of the line", form=".2f")]


Judged = tuple[Family, EachK]


class Metric(NamedTuple):
    """The law of one metric, what it says of a floor (from 6 sizes, where it falls), and its forms."""

    family: Family
    metric: str
    test: FloorTest | None
    forms: Forms

    @property
    def keys(self) -> dict[str, Any]:
        """Dataset, family and metric."""
        return self.family.keys | {"metric": metric_label(self.metric)}

    @property
    def case(self) -> dict[str, str]:
        """The same for a finding."""
        return self.family.keys | {"metric": self.metric}


@dataclass(kw_only=True)
class LackOfFit(Analyzer):
    """Does the law in size bend, up to which k does it hold, and what ends it: noise, a bend or an inverse trend.

    Each k below |V| is one of: *inverse* (alpha's interval lies below 0), *systematic deviation* (the family's one test
    over all k says that the law bends, and this k's departure is not 0), *noise-limited* (alpha's interval includes 0,
    or too few misses are left to tell), *law holds*.

    Attributes:
        ks: the k that forms and floors are shown for, beside CE.
        per_decade: how many k per decade are looked at, up to |V|.
        least_misses: fewest tokens with rank above k, in any size, from which anything is fitted.
        margin: departure from a line, in ln y, within which a law counts as straight.
        top: how many documents and tokens to name.
        level: nominal coverage of the intervals and bands; tests have size 1 - level.
        replicates: document bootstraps, and simulations of R^2.

    """

    name: ClassVar[str] = "lack_of_fit"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100, 1000])
    per_decade: int = 12
    least_misses: int = 10
    margin: float = 0.05
    top: int = 5
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Judge every k of every family x dataset that has at least 3 sizes."""
        report, judged, laws = Report(summary="summary"), list[Judged](), list[tuple[Family, str, PowerLawFit]]()
        documents, tokens = list[DocumentRow](), list[TokenRow]()
        options: Any = {"least_misses": self.least_misses, "margin": self.margin}
        options |= {"level": self.level, "replicates": self.replicates}
        for family, counts in read_families(runs, lambda f, i: self._load(runs, f, i), report.notes, least=3):
            values, grid = (
                law_values(counts, replicates=self.replicates),
                [c.select(self._grid(family)) for c in counts],
            )
            each = laws_at_each_k(grid, values, family.s, **options)
            judged.append((family, each))
            laws += self._laws(family, values)
            missed = most_misses(grid, family.s, each.focus, self.top)
            documents += [DocumentRow(**family.keys, k=each.focus, **one) for one in missed]
            tokens += self._tokens(family, runs, each.focus)
        if any(not family.vocab_size for family in families(runs, [], least=3)):
            reader = LawReader(self.ks, 1, SizeUnit("non_embedding_params", {}), self.level, self.replicates)
            laws += [(one.family, one.metric, one.law) for one in reader.read(runs, []) if one.logged]
        if not laws:
            raise report.nothing_found("no measurement to judge")
        forms = fit_forms((law.s, law.y, law.covariance) for *_, law in laws)
        metrics = [_metric(*one, each, tests=len(laws)) for one, each in zip(laws, forms, strict=True)]
        bends, floors = self._bends(judged, metrics), self._floors(metrics)
        pairs = zip(judged, bends, strict=False)
        judged = [(family, replace(each, bends=one.verdict == Verdict.YES)) for (family, each), one in pairs]
        report.findings = [*bends, *(self._straight(*one) for one in judged), *floors]
        report.add_rows("summary", (_summary(*one, bend) for one, bend in zip(judged, bends, strict=False)))
        report.add_rows("verdicts", (row for one in judged for row in _k_rows(*one)))
        report.add_rows("floors", (row for one in metrics for row in _floor_rows(one, floors)))
        report.add_rows("forms", (row for one in metrics for row in _form_rows(one, floors)))
        report.add_rows("documents", documents, caption=_MISSES)
        report.add_rows("tokens", tokens)
        report.add_rows("models", (row for one in judged for row in _model_rows(*one)))
        report.metrics = {f"k_star/{family.path}": float(each.k_star) for family, each in judged}
        report.metrics |= {f"surface_p/{family.path}": each.surface.p for family, each in judged if each.surface}
        if judged:
            self._draw(report, judged)
        else:
            report.summary = "floors"
        return report

    def _grid(self, family: Family) -> list[int]:
        return [int(k) for k in log_grid(family.vocab_size, per_decade=self.per_decade)[:-1]]

    def _load(self, runs: Runs, family: Family, run_id: str) -> DocumentCounts:
        family.require_ranks()
        asked = [k for k in self.ks if k <= family.vocab_size]
        return runs.document_counts(run_id, sorted({*self._grid(family), *asked}))

    def _laws(self, family: Family, values: LawValues) -> Iterator[tuple[Family, str, PowerLawFit]]:
        """CE's law, and those of the k asked for."""
        for metric in (CE, *map(rbp_name, self.ks)):
            if metric in values.metrics and (law := values.fit(metric, family.s, level=self.level)):
                yield family, metric, law

    def _bends(self, judged: Sequence[Judged], metrics: Sequence[Metric]) -> list[Finding]:
        """One finding of each family on a dataset, over all k, or without ranks of each metric; p are corrected."""
        ranked = {family.path for family, _ in judged}
        logged = [one for one in metrics if one.family.path not in ranked and one.test]
        cases = sum(each.surface is not None for _, each in judged) + len(logged)
        asked = [self._bend_of(*one, cases) for one in judged]
        for one in logged:
            test: Any = one.test
            straight = max(-test.departure.low, test.departure.high) <= self.margin
            about = {"floor_seen": test.floor_seen, "margin": self.margin, "straight": straight}
            asked.append(
                Finding(question="bends", case=one.case, p=test.p_bend, extras=about, **around(test.departure))
            )
        return corrected(asked, self._whether)

    def _whether(self, one: Finding) -> Verdict:
        if one.p_corrected < 1 - self.level:
            return Verdict.YES
        return Verdict.NO if one.extras.get("straight") else Verdict.UNTOLD

    def _bend_of(self, family: Family, each: EachK, cases: int) -> Finding:
        """The one test of a family: over all k, at the k whose bend is clearest."""
        about: Any = {"needed": LEAST_SIZES, "sizes": len(family.s), "margin": self.margin}
        surface, limit = each.surface, each.limit
        if surface is None or limit is None:
            return Finding(question="bends", case=family.keys, reason=Reason.FEW_SIZES, extras=about)
        at = int(np.argmax(np.abs(surface.bend) / np.maximum(surface.bend_se, 1e-300)))
        low, high = surface.bend_band
        about |= {"k": int(surface.ks[at]), "floor_seen": surface.floor_seen(family.s, cases=cases)}
        about |= {"straight": limit.shown == surface.ks[-1]}
        number = around(Interval(float(surface.bend[at]), float(low[at]), float(high[at])))
        return Finding(question="bends", case=family.keys, p=surface.p, extras=about, **number)

    def _floors(self, metrics: Sequence[Metric]) -> list[Finding]:
        """Of each metric that is tested, whether it has a floor; p are corrected over all of them."""
        asked = []
        for one in metrics:
            if one.test:
                share = around(one.forms.fits[1].share)
                asked.append(Finding(question="floor", case=one.case, p=one.test.p_floor, **share))
        return corrected(asked, sure(self.level, Verdict.YES))

    def _straight(self, family: Family, each: EachK) -> Finding:
        shown, exceeded = (each.limit.shown, each.limit.exceeded) if each.limit else (0, 0)
        about: Any = {"last_k": each.last_k, "vocabulary": family.vocab_size, "margin": self.margin}
        about |= {"ks": [law.k for law in each.laws], "verdicts": [v.value for v in each.verdicts]}
        about |= {"shown": shown, "exceeded": exceeded}
        return Finding(question="straight up to k", case=family.keys, estimate=each.k_star or NAN, extras=about)

    def _tokens(self, family: Family, runs: Runs, k: int) -> Iterator[TokenRow]:
        """The right tokens that the largest model most often ranks above k."""
        run_id, occurrences, misses = family.run_ids[-1][0], pd.Series(dtype=int), pd.Series(dtype=int)
        for piece in runs.rank_pieces(run_id):
            token = pd.Series(piece.column("token"))
            occurrences = occurrences.add(token.value_counts(), fill_value=0)
            misses = misses.add(token[piece.rank > k].value_counts(), fill_value=0)
        most = misses.sort_index().sort_values(ascending=False, kind="stable")[: self.top]
        for i, text in zip(most.index.tolist(), runs.token_texts(run_id, most.index), strict=True):
            cells: Any = {"misses": int(most[i]), "occurrences": int(occurrences[i])}
            yield TokenRow(**family.keys, k=k, token=text, id=int(i), share=float(most[i] / misses.sum()), **cells)

    def _draw(self, report: Report, judged: list[Judged]) -> None:
        def curves(quantity: str, ends: str = "") -> Iterator[Curve]:
            table = report.tables["verdicts"].frame
            low, high = (table[f"{ends or quantity}_{end}"] for end in ("low", "high"))
            table = table.assign(**{f"{quantity}_low": low, f"{quantity}_high": high})
            where = {"panel": "{dataset}", "series": "{family}", "label": "{family}", "ends": "band"}
            yield from curves_of(table, "k", quantity, **where)

        strips = {f"{f.name} / {f.dataset}": ([law.k for law in each.laws], each.verdicts) for f, each in judged}
        figure = draw_verdicts(strips, _FILLS, ylabel="family / dataset")
        report.drawings["verdict_of_each_k"] = Drawing(figure, _EACH_K)
        if any(each.surface for _, each in judged):
            every = [*curves("departure")]
            figure, axes = curve_panels(every, xlabel="k", ylabel=_OFF)
            for ax, edge in product(axes, (-self.margin, 0.0, self.margin)):
                ax.axhline(edge, ls=":" if edge else "-", lw=0.8, color="#57606a")
            report.drawings["departure"] = Drawing(figure, _DEPARTURE)
        every = [*curves("r2", "expected")]
        figure, axes = curve_panels(every, xlabel="k", ylabel=_LOG, sharey=True)
        axes[0].set_ylim(max(0.0, np.nanmin([law.r2 for _, each in judged for law in each.laws]) - 0.02), 1.003)
        report.drawings["r2_observed_and_expected"] = Drawing(figure, _R2.format(self.level))


def _metric(family: Family, metric: str, law: PowerLawFit, forms: Forms, *, tests: int) -> Metric:
    s, other = family.column("total_params"), None
    if positive(s) and np.ptp(s) > 0:
        other = fit_power_law(s, law.y, covariance=law.covariance, level=law.level)
    test = floor_test(law, other, tests=tests) if law.points > LEAST_SIZES and law.alpha > 0 else None
    return Metric(family, metric, test, forms)


def _summary(family: Family, each: EachK, bends: Finding) -> SummaryRow:
    surface, star, limit = each.surface, each.k_star, each.limit
    beyond = pd.Series([v.value for law, v in zip(each.laws, each.verdicts, strict=True) if law.k > star])
    cells: Any = {"sizes": len(family.s), "k_star": star, "last_k": each.last_k, "vocabulary": family.vocab_size}
    cells |= {"bends": bends.verdict, "p": bends.p, "p_corrected": bends.p_corrected}
    cells |= {"straight_to": limit.shown if limit else 0, "bent_from": limit.exceeded if limit else 0}
    cells |= {"scatter": surface.sigma if surface else NAN, "scatter_fits": surface.better_scatter if surface else ""}
    cells |= {"misses": next((law.misses for law in each.laws if law.k == star), 0)}
    cells |= {"floor_seen": bends.extras.get("floor_seen", NAN)}
    return SummaryRow(**family.keys, beyond=str(beyond.mode().iloc[0]) if len(beyond) else "", **cells)


def _k_rows(family: Family, each: EachK) -> Iterator[KRow]:
    for law, verdict in zip(each.laws, each.verdicts, strict=True):
        yield KRow(**family.keys, verdict=verdict, **vars(law))


def _floor_rows(one: Metric, floors: Sequence[Finding]) -> Iterator[FloorRow]:
    for floor in floors:
        if one.test and floor.case == one.case:
            about: Any = {"share": floor.interval, "floor": floor.verdict, "p_corrected": floor.p_corrected}
            yield FloorRow(**one.keys, **vars(one.test), **about)


def _form_rows(one: Metric, floors: Sequence[Finding]) -> Iterator[FormRow]:
    floor = any(f.verdict == Verdict.YES and f.case == one.case for f in floors)
    best = "M1" if floor else "M0"
    if one.forms.broken:
        best = "M2"
    for fit in one.forms.fits:
        about: Any = {"form": fit.form, "preferred": fit.form == best, "aicc": fit.aicc, "alpha": fit.alpha}
        about |= {"E": fit.e}
        yield FormRow(**one.keys, **about)


def _model_rows(family: Family, each: EachK) -> Iterator[ModelRow]:
    for keys, offset in zip(family.size_keys, each.surface.offset if each.surface else (), strict=False):
        yield ModelRow(**keys, ahead=float(np.exp(offset)))
