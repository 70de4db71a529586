"""The law in size: -ln RBP_k = A * S**-alpha per family, dataset and k, and the same for cross-entropy.

The figures are those of the paper, 3 to 6 (arXiv 2510.20387).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis import (
    CE,
    Analyzer,
    BadInput,
    Drawing,
    FamilyLaw,
    LawReader,
    Report,
    Runs,
    SizeUnit,
    by_family,
    counted,
    draw_against_k,
    draw_ce_against_rbp,
    draw_exponents,
    draw_laws,
    equally_trained,
    interval_cells,
    law_cells,
    listed,
    metric_label,
    parse_rbp_name,
    pooled_families,
    rbp_name,
    shared_columns,
    short_number,
    some_of,
    tallied,
)
from rbptrack.stats import (
    NestedFit,
    Verdict,
    compare_forms,
    forecast,
    forms_in_words,
    huber_alpha,
    leave_largest_out,
    point_diagnostics,
)

KEY = shared_columns("dataset", "family", "metric")
K_OR_0 = {"k": "of RBP_k; 0 for CE"}
ALPHA = shared_columns("alpha", "alpha_low", "alpha_high")
COLUMNS = {
    "laws": KEY
    | {
        "alpha": "exponent",
        "interval": "of alpha, 95% unless the options say otherwise: sampling error over documents, and scatter "
        "between models",
        "R^2": "of the fit on logarithms",
        "sizes": "number of sizes m",
        "largest, left out": "error at the largest size of the law fitted without it",
        "form": "plain: an irreducible share above 10% at the largest size is excluded; E > 0: an irreducible term is "
        "supported (p < 0.05); broken; or undecided",
    },
    "forms": KEY
    | {
        "form": "M0: A S^-alpha; M1: E + A S^-alpha, from 6 sizes; M2: broken, from 12 sizes",
        "preferred": "whether this form is the one that the points support",
        "aicc": "Akaike's criterion for small samples, tau counted; lower is better",
        "alpha": "exponent under this form (below the break for M2)",
        "alpha_se": "its standard error from the likelihood's curvature",
        "E": "irreducible term, in y's unit",
        "E_low": "lower end of its profile-likelihood interval",
        "E_high": "upper end",
        "share_low": "lower end of the interval of E / y at the largest size",
        "share_high": "upper end",
        "starts_agree": "whether the fits from several starts ended at the same parameters",
        "p_irreducible": "p of E = 0 (parametric bootstrap under M0)",
    },
    "points": KEY
    | K_OR_0
    | {
        "size": "the size as published",
        "S": "size, in the unit of the option size",
        "y": "CE in nats, or -ln RBP_k",
        "se_ln_y": "sampling error of ln y (document bootstrap)",
        "residual": "ln y - ln of the law",
        "alpha_without": "exponent when this size is left out",
        "influence": "alpha - alpha_without, in standard errors of alpha",
    },
    "fits": KEY
    | K_OR_0
    | {"sizes": "number of sizes m"}
    | ALPHA
    | {
        "alpha_se": "its standard error",
        "alpha_huber": "by Huber's loss: a check",
        "A": "prefactor, for S in the unit of the option size",
        "r2": "R^2 of the fit on logarithms",
        "tau": "standard deviation between models beyond sampling error, in ln y (REML)",
        "left_out_error": "predicted / measured - 1 at the largest size when it is left out",
    },
    "seeds": KEY
    | {
        "sizes": "number of sizes m",
        "runs": "number of runs: several of some sizes",
        "seed": "standard deviation between runs of one size beyond sampling error, in ln y (REML)",
        "recipe": "standard deviation between sizes beyond that of runs, in ln y (REML)",
        "lack_of_fit": "F of the size means around the law over the scatter of runs within sizes",
        "p": "its p: small where no power law fits within what seeds scatter",
    },
    "forecasts": KEY
    | {
        "S": "size asked for",
        "predicted": "-ln RBP_k or CE at S: M0 and M1, weighted by their error at the largest size when it is left out",
        "low": "lower end of its interval, for one more model of that size: every form that the points do not exclude",
        "high": "upper end",
        "irreducible_weight": "weight of M1 in the prediction",
        "refused": "why no number is given",
        "beyond": "S over the largest size measured",
        "rbp": "RBP_k predicted",
    },
    "pooled": KEY
    | {
        "mean": "mean exponent over families (random effects, REML)",
        "mean_low": "lower end of its interval",
        "mean_high": "upper end",
        "between": "standard deviation between families",
        "alpha": "the family's own exponent",
        "shrunk": "drawn towards the mean by as much as it is uncertain",
    },
    "equal_tokens": KEY | {"tokens": "training tokens of every model fitted", "sizes": "how many models"} | ALPHA,
}
LAWS = (
    "The law in size: a row per dataset, a column per metric. Points: models, with 95% sampling intervals (documents "
    "resampled), often smaller than the marker. Lines: least squares on both logarithms. Every panel spans the same "
    "factor, so that equal exponents have equal slopes. Dotted, where there is one: the authors' published exponent, "
    "through the middle of the points."
)
EXPONENTS = (
    "Exponent of every family on every dataset, with its {level:z.0%} interval. Hollow, where there is one: the "
    "authors' published exponent."
)
ALPHA_AGAINST_K = (
    "Exponent of the law in size against k, with its interval. Thin lines: the exponent of CE. Hollow, where there "
    "is one: the authors' published exponent."
)
CE_AGAINST_RBP = "A point per model and a straight line per family, as in figure 8a of the paper."
_NOTABLE = 0.02  # relative change of alpha by one size that is worth a sentence


@dataclass(kw_only=True)
class PowerLaw(Analyzer):
    """Fits -ln RBP_k = A S^-alpha, and the same for CE: exponents, intervals, R^2.

    Attributes:
        ks: the k of the tables and of the figures' panels.
        curve_points: how many k per decade the exponent is fitted at for the curves of alpha and R^2 against k.
        level: nominal coverage of the intervals.
        replicates: document bootstraps, drawn jointly for all sizes of a family.
        forecast: sizes S to predict every metric at, such as [7e10].
        size: what S is: non_embedding_params, total_params or training_flops (6 S D; needs training_tokens).
        training_tokens: tokens D that models were trained on, by pattern over model names; on the command line
            '+analyzer.training_tokens={pythia-*: 3e11}'. With it, laws are also fitted over the models of a family
            that were trained on equally many.
        pool: also take the families of a dataset together (3 or more): exponents as draws around a common mean.

    """

    name: ClassVar[str] = "power_law"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100, 1000])
    curve_points: int = 8
    level: float = 0.95
    replicates: int = 1000
    forecast: list[float] = field(default_factory=list)
    size: str = "non_embedding_params"
    training_tokens: dict[str, float] = field(default_factory=dict)
    pool: bool = False

    def analyze(self, runs: Runs) -> Report:
        """Fit every family x dataset that has at least 3 sizes."""
        if any(s <= 0 for s in self.forecast):
            raise BadInput(f"analyzer.forecast: sizes must be above 0; got {self.forecast}")
        report = Report(summary="laws")
        asked = (self.ks, self.curve_points, self._unit)
        reader = LawReader(*asked, level=self.level, replicates=self.replicates, draws=self.pool)
        laws = reader.read(runs, report.notes)
        if not laws:
            raise report.nothing_found("no measurement to fit")
        shown = [one for one in laws if one.logged or one.metric in (CE, *map(rbp_name, self.ks))]
        forms = {one.path: compare_forms(one.law.s, one.law.y, one.law.covariance) for one in shown}
        self._tables(report, laws, forms)
        for one in shown:
            report.metrics |= {f"{quantity}/{one.path}": value for quantity, value in law_cells(one.law).items()}
        report.headline = _headline(shown, forms)
        for mine in by_family(shown).values():
            report.notes += self._sentences(mine, forms)
        self._drawings(report, laws)
        return report

    @property
    def _unit(self) -> SizeUnit:
        return SizeUnit(self.size, self.training_tokens)

    def _tables(self, report: Report, laws: list[FamilyLaw], forms: Mapping[str, Verdict]) -> None:
        shown = [one for one in laws if one.path in forms]
        metrics = self._overview_metrics(shown)
        titles = {f"alpha_{metric}": metric_label(metric) for metric in metrics}
        caption = f"Exponent alpha of -ln RBP_k = A S^-alpha, and of CE = A S^-alpha, with {self.level:z.0%} intervals."
        report.add_table("by_family", *self._by_family(shown, metrics), caption=caption, titles=titles)
        report.add_table("laws", (_rounded(one, forms[one.path]) for one in shown), COLUMNS["laws"])
        report.add_table("forms", (row for one in shown for row in _forms(one, forms[one.path])), COLUMNS["forms"])
        report.add_table("points", (row for one in shown for row in _points(one)), COLUMNS["points"])
        report.add_table("fits", map(_fit_row, laws), COLUMNS["fits"])
        seeds = [one for one in shown if one.seeds]
        report.add_table("seeds", (_seed_row(one.keys, one.seeds) for one in seeds if one.seeds), COLUMNS["seeds"])
        report.add_table("forecasts", self._forecasts(shown), COLUMNS["forecasts"])
        if self.pool:
            report.add_table("pooled", self._pooled(shown, report.notes), COLUMNS["pooled"])
        if self.training_tokens:
            equal = equally_trained(shown, self._unit, report.notes, level=self.level)
            report.add_table("equal_tokens", (_equal_row(*one) for one in equal), COLUMNS["equal_tokens"])

    def _forecasts(self, shown: list[FamilyLaw]) -> Iterator[dict[str, Any]]:
        for one in shown:
            for s in self.forecast:
                law = one.law
                found = forecast(law.s, law.y, law.covariance, s, level=self.level)
                row = {"S": s, "predicted": found.y, "low": found.low, "high": found.high, "beyond": s / law.s.max()}
                row |= {"rbp": float("nan") if one.metric == CE else float(np.exp(-found.y))}
                yield one.keys | row | {"irreducible_weight": found.weight, "refused": found.refused}

    def _pooled(self, shown: list[FamilyLaw], notes: list[str]) -> Iterator[dict[str, Any]]:
        for found, group in pooled_families(shown, notes, level=self.level):
            common = {"mean": found.mean, "mean_low": found.low, "mean_high": found.high, "between": found.between}
            for one, shrunk in zip(group, found.shrunk, strict=True):
                yield one.keys | common | {"alpha": one.law.alpha, "shrunk": float(shrunk)}

    def _sentences(self, mine: list[FamilyLaw], forms: Mapping[str, Verdict]) -> Iterator[str]:
        """Of one family: the exponents; then the form that the points support, and the size that decides most."""
        family, law = mine[0].family, mine[0].law
        asked = [one for one in mine if one.metric != CE]
        entropy = [one for one in mine if one.metric == CE]
        exponents = [
            f"{one.law.alpha:.3f} ({one.law.low:.3f} to {one.law.high:.3f}) for {one.label}" for one in asked + entropy
        ]
        text = (
            f"{family}: fitted to {law.points} sizes (S = {short_number(law.s.min())} to {short_number(law.s.max())}), "
            f"alpha is {listed(exponents)} ({self.level:z.0%} intervals)."
        )
        inverse = [one.label for one in entropy + asked if one.law.high < 0]
        if inverse:
            text += f" The law of {listed(inverse)} is inverse: larger models are worse."
        unsure = [one.label for one in entropy + asked if one.law.low <= 0 <= one.law.high]
        if unsure:
            text += f" For {listed(unsure)} the interval includes 0, so no law is claimed."
        yield text
        found = forms_in_words({one.label: forms[one.path] for one in mine})
        yield f"{family}: {found}.{_influence(mine)}"
        if mine[0].seeds:
            yield _seeds_in_words(mine, 1 - self.level)

    def _drawings(self, report: Report, laws: list[FamilyLaw]) -> None:
        metrics = self._overview_metrics(laws)
        report.drawings["law_in_size"] = Drawing(draw_laws(laws, metrics, xlabel=self._unit.label), LAWS)
        report.drawings["exponents"] = Drawing(draw_exponents(laws, metrics), EXPONENTS.format(level=self.level))
        several = len({one.family.name for one in laws}) > 1  # they are compared before each law is shown
        report.overview = ["by_family", *(["exponents"] if several else []), "law_in_size"]
        if all(one.metric == CE for one in laws):
            return  # imports of CE alone have no k
        alphas, r2s = [one.law.alpha for one in laws], [one.law.r2 for one in laws]
        figure, axes = draw_against_k(laws, "alpha", ylabel="α")
        axes[0].set_ylim(min(0.0, *alphas) * 1.1, max(alphas) * 1.25)  # intervals that explode near |V| are cut off
        report.drawings["alpha_against_k"] = Drawing(figure, ALPHA_AGAINST_K)
        figure, axes = draw_against_k(laws, "r2", ylabel="R² of the fit on log axes")
        axes[0].set_ylim(max(0.0, min(r2s) - 0.03), 1.005)
        report.drawings["r2_against_k"] = Drawing(figure, "R² of each law in size against k. Thin lines: that of CE.")
        asked = [k for k in sorted(self.ks) if {rbp_name(k), CE} <= {one.metric for one in laws}]
        if asked:
            figure = draw_ce_against_rbp(laws, asked[0])[0]
            report.drawings[f"ce_against_{rbp_name(asked[0])}"] = Drawing(figure, CE_AGAINST_RBP)

    def _overview_metrics(self, laws: list[FamilyLaw]) -> list[str]:
        """The metrics of the page's first table and figure: RBP_k of the option's k, and CE; five at most."""
        fitted = [one.metric for one in laws]
        asked = [m for m in map(rbp_name, sorted(self.ks)) if m in fitted]
        logged = [m for m in dict.fromkeys(fitted) if m != CE]
        return (asked or logged)[:4] + [CE] * (CE in fitted)

    def _by_family(self, laws: list[FamilyLaw], metrics: list[str]) -> tuple[pd.DataFrame, dict[str, str]]:
        """A row per family and dataset with the exponent of every metric; and what its columns mean."""
        columns = shared_columns("dataset", "family") | {"sizes": "number of sizes m"}
        for metric in metrics:
            label = metric_label(metric)
            columns |= {f"alpha_{metric}": f"exponent of {label}", f"alpha_{metric}_low": "lower end of its interval"}
            columns |= {f"alpha_{metric}_high": "upper end"}
        rows = []
        for every in by_family(sorted(laws, key=lambda one: one.family.dataset)).values():
            mine = {one.metric: one for one in every if one.metric in metrics}
            row = next(iter(mine.values())).family.keys | {"sizes": max(one.law.points for one in mine.values())}
            for metric, one in mine.items():
                cells = {"": one.law.alpha, "_low": one.law.low, "_high": one.law.high}
                row |= {f"alpha_{metric}{end}": value for end, value in cells.items()}
            rows.append(row)
        return pd.DataFrame(rows), columns


def _rounded(one: FamilyLaw, form: Verdict) -> dict[str, Any]:
    """The row for the terminal: texts, rounded."""
    law, left_out = one.law, leave_largest_out(one.law.s, one.law.y)
    row = {"alpha": f"{law.alpha:.4f}", "interval": f"{law.low:.3f} .. {law.high:.3f}", "R^2": f"{law.r2:.4f}"}
    shown = "" if np.isnan(left_out) else f"{left_out:+z.1%}"
    return one.keys | row | {"sizes": law.points, "largest, left out": shown, "form": form.known}


def _forms(one: FamilyLaw, verdict: Verdict) -> Iterator[dict[str, Any]]:
    for form in verdict.fits:
        row = {"form": form.form, "preferred": form.form == verdict.preferred, "aicc": form.aicc}
        row |= {"alpha": form.values["alpha"], "alpha_se": form.se["alpha"], "starts_agree": form.agreed}
        if found := verdict.irreducible if form.form == "M1" else None:
            row |= {"E_low": found.e_low, "E_high": found.e_high, "p_irreducible": found.p}
            row |= {"share_low": found.share_low, "share_high": found.share_high}
        yield one.keys | {"E": form.values.get("E", float("nan"))} | row


def _points(one: FamilyLaw) -> Iterator[dict[str, Any]]:
    found = point_diagnostics(one.law)
    for i, label in enumerate(one.family.labels):
        row = {"k": parse_rbp_name(one.metric) or 0, "size": label, "S": float(one.law.s[i]), "y": float(one.law.y[i])}
        row |= {"se_ln_y": float(found.se_ln_y[i]), "residual": float(found.residual[i])}
        yield one.keys | row | {"alpha_without": float(found.alpha_without[i]), "influence": float(found.influence[i])}


def _fit_row(one: FamilyLaw) -> dict[str, Any]:
    law = one.law
    row = {"k": parse_rbp_name(one.metric) or 0, "sizes": law.points} | law_cells(law)
    row |= {"alpha_se": law.se, "alpha_huber": huber_alpha(law.s, law.y), "A": float(np.exp(law.log_a))}
    return one.keys | row | {"tau": law.tau, "left_out_error": leave_largest_out(law.s, law.y)}


def _seed_row(keys: dict[str, Any], seeds: NestedFit) -> dict[str, Any]:
    row = {"sizes": seeds.sizes, "runs": seeds.runs, "seed": seeds.seed, "recipe": seeds.recipe}
    return keys | row | {"lack_of_fit": seeds.lack, "p": seeds.p}


def _seeds_in_words(mine: list[FamilyLaw], size: float) -> str:
    """Of one family: how far runs of one size scatter, and whether a power law fits within that."""
    found = [(one.label, one.seeds) for one in mine if one.seeds]
    low, high = (f"{100 * end:.1f}" for end in (min(s.seed for _, s in found), max(s.seed for _, s in found)))
    rejected = [label for label, seeds in found if seeds.p < size]
    seeds = found[0][1]
    text = f"no power law fits {', '.join(rejected)}" if rejected else "power laws fit every metric"
    return (
        f"{mine[0].family}: {seeds.runs} runs of {seeds.sizes} sizes; runs of one size scatter by {low} to {high}% in "
        f"y beyond sampling error. Within what seeds scatter, {text} (lack of fit against pure error, p < {size:g})."
    )


def _equal_row(one: FamilyLaw, tokens: float) -> dict[str, Any]:
    return one.keys | {"tokens": tokens, "sizes": one.law.points} | interval_cells(one.law)


def _headline(shown: list[FamilyLaw], forms: Mapping[str, Verdict]) -> str:
    """In how many fits a law is visible, how far it misses a model that it has not seen, and what bends it."""
    clear = sum(one.law.low > 0 for one in shown)
    of = some_of(clear, len(shown), "power law")
    text = f"RBP_k and CE improve with S in {of} fitted (the interval of alpha is above 0)"
    missed = np.array([abs(leave_largest_out(one.law.s, one.law.y)) for one in shown])
    if np.isfinite(missed).any():
        text += f"; fitted without the largest model, the law misses it by {np.nanmax(missed):z.1%} at most"
    known = [forms[one.path].known for one in shown]
    words = {"supported": "E > 0", "excluded": "plain", "undecided": "undecided"}
    counts = {word: known.count(form) for word, form in words.items()}
    if tested := sum(counts.values()):
        text += f". Of {counted(tested, 'fit')} to 6 sizes or more, an irreducible term is {tallied(counts)}"
    return text


def _influence(mine: list[FamilyLaw]) -> str:
    """The size that moves an exponent most, if one does by more than 2%."""
    points = [(one, row) for one in mine for row in _points(one)]
    moved = [p for p in points if abs(p[1]["alpha_without"] - p[0].law.alpha) > _NOTABLE * abs(p[0].law.alpha)]
    if moved:
        one, row = max(moved, key=lambda pair: float(abs(pair[1]["influence"])))
        return (
            f" Of all sizes, {row['size']} changes the fit most: without it, alpha of {one.label} is "
            f"{row['alpha_without']:.3f} instead of {one.law.alpha:.3f}."
        )
    return f" Leaving out any one size changes no alpha by more than {_NOTABLE:z.0%}." if mine[0].law.points > 3 else ""
