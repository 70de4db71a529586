"""The law in size: -ln RBP_k = A * S**-alpha per family, dataset and k, and the same for cross-entropy.

Figures in the manner of the paper's figures 3 to 6 (arXiv 2510.20387).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import (
    Analyzer,
    BadInput,
    DocumentCounts,
    Drawing,
    Family,
    Report,
    Runs,
    colour_and_marker,
    families,
    legend_of_all,
    log_axis,
    log_grid,
    panel_per,
    read_families,
    short_number,
    style,
)
from rbptrack.stats import (
    FloatArray,
    PowerLawFit,
    Verdict,
    compare_forms,
    fit_power_law,
    huber_alpha,
    law_values,
    leave_largest_out,
    paired_covariance,
    pool,
    without_each,
)

_LEGEND = 1.4  # inches
CE = 0  # stands for cross-entropy where a k is expected
KEY = {"dataset": "the dataset", "family": "the family", "metric": "CE or RBP_k"}
INTERVAL = {"alpha": "exponent", "alpha_low": "lower end of its interval", "alpha_high": "upper end"}
_NOTABLE = 0.02  # relative change of alpha by one size that is worth a sentence
SIZES = ("non_embedding_params", "total_params", "training_flops")


@dataclass(frozen=True)
class Fit:
    """One fitted law and its points: sizes s and values y, each (m,), and the sampling covariance of ln y, (m, m)."""

    k: int
    family: Family
    s: FloatArray
    y: FloatArray
    covariance: FloatArray
    law: PowerLawFit

    @property
    def metric(self) -> str:
        """CE or RBP_k."""
        return "CE" if self.k == CE else f"RBP_{self.k}"

    @property
    def key(self) -> dict[str, object]:
        """The columns that name it in tables."""
        return {"dataset": self.family.dataset, "family": self.family.name, "metric": self.metric}


COLUMNS: dict[str, dict[str, str]] = {
    "laws": KEY
    | {
        "alpha": "exponent",
        "95 % interval": "of alpha: t with m - 2 degrees of freedom over scatter between models and sampling error",
        "R^2": "of the fit on logarithms",
        "sizes": "number of sizes m",
        "largest, left out": "error at the largest size of the law fitted without it",
        "form": "M0 a plain power law, M1 with an irreducible term, M2 broken; m < 6: too few sizes to tell",
    },
    "fits": KEY
    | {
        "k": "of RBP_k; 0 for CE",
        "sizes": "number of sizes m",
        "alpha": "exponent, least squares on ln S and ln y",
        "alpha_low": "lower end of its interval",
        "alpha_high": "upper end",
        "alpha_se": "its standard error",
        "alpha_huber": "by Huber's loss: a check",
        "A": "prefactor, for S in the unit of the option size",
        "r2": "R^2 of the fit on logarithms",
        "tau": "standard deviation between models beyond sampling error, in ln y (REML)",
        "left_out_error": "predicted / measured - 1 at the largest size when it is left out",
    },
    "forms": KEY
    | {
        "form": "M0: A S^-alpha; M1: E + A S^-alpha, from 6 sizes; M2: broken, from 12 sizes",
        "preferred": "whether this form is the one that the points support",
        "aicc": "Akaike's criterion for small samples, tau counted; lower is better",
        "alpha": "exponent under this form (below the break for M2)",
        "alpha_se": "its standard error from the likelihood's curvature",
        "E": "irreducible term, in y's unit",
        "E_se": "its standard error; empty at the bound 0",
        "starts_agree": "whether the fits from several starts ended at the same parameters",
        "p_irreducible": "p of E = 0 (boundary: half chi2_0, half chi2_1)",
    },
    "points": KEY
    | {
        "k": "of RBP_k; 0 for CE",
        "size": "published label",
        "S": "size",
        "y": "CE in nats, or -ln RBP_k",
        "se_ln_y": "sampling error of ln y (document bootstrap)",
        "residual": "ln y - ln of the law",
        "alpha_without": "exponent when this size is left out",
        "influence": "alpha - alpha_without, in standard errors of alpha",
    },
    "forecasts": KEY
    | {
        "S": "size asked for",
        "predicted": "-ln RBP_k or CE at S, if the law holds there",
        "low": "lower end of its interval, for one more model of that size",
        "high": "upper end",
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
    "equal_tokens": KEY | {"tokens": "training tokens of all models fitted", "sizes": "how many models"} | INTERVAL,
}


@dataclass(kw_only=True)
class PowerLaw(Analyzer):
    """-ln RBP_k = A S^-alpha (and CE): exponents, intervals, R^2.

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
        self._check()
        report = Report(summary="laws")
        laws: dict[tuple[str, str], dict[int, Fit]] = {}

        def load(family: Family, run_id: str) -> DocumentCounts:
            return runs.document_counts(run_id, self._ks(family))

        for family, counts in read_families(runs, load, report.notes, least=3):
            fits = self._fit_group(family, counts, report)
            if fits:
                laws[family.name, family.dataset] = fits
        for family in families(runs, [], least=3):
            if (family.name, family.dataset) not in laws:
                fits = self._fit_logged(family, report)
                if fits:
                    laws[family.name, family.dataset] = fits
        if not laws:
            raise report.nothing_found("no measurement to fit")
        shown = [fit for fits in laws.values() for k, fit in fits.items() if k in (CE, *self.ks)]
        verdicts = [compare_forms(fit.s, fit.y, fit.covariance) for fit in shown]
        judged = list(zip(shown, verdicts, strict=True))
        report.add_table("laws", (_summary(f, v) for f, v in judged), COLUMNS["laws"])
        report.add_table("forms", (row for f, v in judged for row in _form_rows(f, v)), COLUMNS["forms"])
        report.add_table("points", (row for fit in shown for row in _point_rows(fit)), COLUMNS["points"])
        report.add_table("fits", (_row(fit) for fits in laws.values() for fit in fits.values()), COLUMNS["fits"])
        report.add_table("forecasts", self._forecasts(shown), COLUMNS["forecasts"])
        if self.pool:
            report.add_table("pooled", self._pooled(shown, report), COLUMNS["pooled"])
        if self.training_tokens:
            report.add_table("equal_tokens", self._equal_tokens(shown, report), COLUMNS["equal_tokens"])
        for fit in shown:
            where = f"{fit.family.name}/{fit.family.dataset}/{fit.metric.lower()}"
            report.metrics |= {
                f"alpha/{where}": fit.law.alpha,
                f"alpha_low/{where}": fit.law.low,
                f"alpha_high/{where}": fit.law.high,
                f"r2/{where}": fit.law.r2,
            }
        self._figures(report, laws)
        report.headline = _headline(shown)
        report.notes += [text for fits in laws.values() for text in self._sentences(fits, shown, verdicts)]
        return report

    def _check(self) -> None:
        if self.size not in SIZES:
            raise BadInput(f"analyzer.size={self.size}: expected one of {', '.join(SIZES)}")
        if self.size == "training_flops" and not self.training_tokens:
            raise BadInput("analyzer.size=training_flops needs tokens: '+analyzer.training_tokens={pythia-*: 3e11}'")
        if any(s <= 0 for s in self.forecast):
            raise BadInput(f"analyzer.forecast: sizes must be above 0; got {self.forecast}")

    def _ks(self, family: Family) -> list[int]:
        if not family.vocab_size:  # imported without ranks: what was logged is all there is
            return family.logged_ks
        grid = log_grid(family.vocab_size, per_decade=self.curve_points)
        return sorted({*grid.tolist(), *(k for k in self.ks if k <= family.vocab_size)})

    def _trained_on(self, family: Family) -> FloatArray:
        """Training tokens per size, (m,); NaN where no pattern fits the model's name."""

        def known(models: pd.Series) -> float:
            found = [t for pattern, t in self.training_tokens.items() if fnmatchcase(str(models.iloc[0]), pattern)]
            return found[0] if found else float("nan")

        return family.rows.groupby("non_embedding_params", sort=True)["model"].agg(known).to_numpy(dtype=np.float64)

    def _sizes(self, family: Family) -> FloatArray:
        if self.size == "training_flops":
            return 6 * family.s * self._trained_on(family)
        return family.s if self.size == "non_embedding_params" else family.column(self.size)

    def _fit_group(self, family: Family, counts: list[DocumentCounts], report: Report) -> dict[int, Fit]:
        sizes, ks = self._sizes(family), self._ks(family)
        if not np.isfinite(sizes).all():
            report.notes.append(f"{family}: not fitted, {self.size} is not known for every model.")
            return {}
        values, draws = law_values(counts, replicates=self.replicates)
        fits: dict[int, Fit] = {}
        for column, k in enumerate([CE, *ks]):
            y, replicate = values[:, column], draws[:, :, column]
            if not (np.isfinite(y).all() and (y > 0).all() and np.isfinite(replicate).all() and (replicate > 0).all()):
                if k in self.ks:
                    report.notes.append(
                        f"{family}: RBP_{k} is 0 or 1 (or nearly) for some size: no law is fitted to it."
                    )
                continue
            covariance = paired_covariance(list(np.log(replicate)))
            law = fit_power_law(sizes, y, covariance=covariance, level=self.level)
            fits[k] = Fit(k, family, sizes, y, covariance, law)
        return fits

    def _fit_logged(self, family: Family, report: Report) -> dict[int, Fit]:
        """Laws from the logged metrics alone, for measurements that came without ranks."""
        fits: dict[int, Fit] = {}
        sizes = self._sizes(family)
        for k in [CE, *self.ks]:
            logged = family.column("ce" if k == CE else f"rbp_{k}")
            error = np.nan_to_num(family.column("ce_se" if k == CE else f"rbp_{k}_se"))
            with np.errstate(divide="ignore", invalid="ignore"):
                y = logged if k == CE else -np.log(logged)
                log_se = error / logged / (1 if k == CE else y)  # of ln y
            if not (np.isfinite(sizes).all() and np.isfinite(y).all() and (y > 0).all()):
                continue
            covariance = np.diag(log_se**2)
            law = fit_power_law(sizes, y, covariance=covariance, level=self.level)
            fits[k] = Fit(k, family, sizes, y, covariance, law)
        if fits:
            report.notes.append(
                f"{family}: no rank tables to read; the logged metrics are fitted, and their standard errors (where "
                "logged) taken as independent between sizes."
            )
        return fits

    def _forecasts(self, shown: list[Fit]) -> pd.DataFrame:
        rows = []
        for fit in shown:
            for s in self.forecast:
                y, low, high = fit.law.forecast(s)
                found = {"S": s, "predicted": y, "low": low, "high": high, "beyond": s / fit.s.max()}
                rows.append(fit.key | found | {"rbp": float("nan") if fit.k == CE else float(np.exp(-y))})
        return pd.DataFrame(rows)

    def _pooled(self, shown: list[Fit], report: Report) -> pd.DataFrame:
        rows = []
        for (dataset, metric), group in _grouped(shown):
            if len(group) < 3:
                report.notes.append(f"{metric} on {dataset}: {len(group)} families, pooling needs 3.")
                continue
            found = pool([f.law.alpha for f in group], [f.law.se for f in group], level=self.level)
            common = {"mean": found.mean, "mean_low": found.low, "mean_high": found.high, "between": found.between}
            rows += [
                f.key | common | {"alpha": f.law.alpha, "shrunk": float(a)}
                for f, a in zip(group, found.shrunk, strict=True)
            ]
        return pd.DataFrame(rows)

    def _equal_tokens(self, shown: list[Fit], report: Report) -> pd.DataFrame:
        rows = []
        for fit in shown:
            trained = self._trained_on(fit.family)
            values, times = np.unique(trained[np.isfinite(trained)], return_counts=True)
            if not len(values) or times.max() < 3:
                text = f"{fit.family}: no 3 models are known to be trained on equally many tokens."
                report.notes += [text] * (text not in report.notes)
                continue
            tokens = values[times.argmax()]
            kept = trained == tokens
            law = fit_power_law(
                fit.s[kept], fit.y[kept], covariance=fit.covariance[np.ix_(kept, kept)], level=self.level
            )
            alphas = {"alpha": law.alpha, "alpha_low": law.low, "alpha_high": law.high}
            rows.append(fit.key | {"tokens": tokens, "sizes": law.points} | alphas)
        return pd.DataFrame(rows)

    def _sentences(self, fits: dict[int, Fit], shown: list[Fit], verdicts: list[Verdict]) -> Iterator[str]:
        some = next(iter(fits.values()))
        ks = [k for k in self.ks if k in fits]
        parts = [f"{fits[k].law.alpha:.3f} ({fits[k].law.low:.3f} to {fits[k].law.high:.3f}) at k = {k}" for k in ks]
        parts += [
            f"{fits[k].law.alpha:.3f} ({fits[k].law.low:.3f} to {fits[k].law.high:.3f}) for CE" for k in fits if k == CE
        ]
        text = (
            f"{some.family}: over {some.law.points} sizes (S = {short_number(some.s.min())} to "
            f"{short_number(some.s.max())}) alpha is {', '.join(parts)} ({self.level:.0%} intervals)."
        )
        unsure = [fits[k].metric for k in [CE, *ks] if k in fits and fits[k].law.low <= 0]
        if unsure:
            text += f" For {', '.join(unsure)} the interval includes 0: no law is claimed."
        yield text
        mine = [(f, v) for f, v in zip(shown, verdicts, strict=True) if f.family == some.family]
        richer = [f"{f.metric}: {v.text}" for f, v in mine if v.preferred != "M0"]
        plain = [f.metric for f, v in mine if v.preferred == "M0"]
        form = "; ".join(richer) if richer else mine[0][1].text if len({v.text for _, v in mine}) == 1 else ""
        if not form:
            form = f"no richer form than a plain power law is supported for {', '.join(plain)}"
        alphas = {f.metric: f.law.alpha for f, _ in mine}
        moved = [r for f, _ in mine for r in _point_rows(f) if abs(r["alpha_without"] / f.law.alpha - 1) > _NOTABLE]
        text = f"{some.family}: {form}."
        if moved:
            row = max(moved, key=lambda r: float(abs(r["influence"])))
            text += (
                f" The most influential size is {row['size']}: without it alpha of {row['metric']} is "
                f"{row['alpha_without']:.3f} instead of {alphas[row['metric']]:.3f}."
            )
        elif some.law.points > 3:
            text += f" No single size moves an alpha by more than {_NOTABLE:.0%}."
        yield text

    def _figures(self, report: Report, laws: dict[tuple[str, str], dict[int, Fit]]) -> None:
        for k in [k for k in [*self.ks, CE] if any(k in fits for fits in laws.values())]:
            name = "ce_against_size" if k == CE else f"rbp_{k}_against_size"
            caption = (
                "Points: measured, with 95 % sampling intervals (documents resampled; often smaller than the marker). "
                "Lines: least squares on both logarithms."
            )
            report.drawings[name] = Drawing(self._against_size(laws, k), "" if report.drawings else caption)
        report.drawings["alpha_against_k"] = Drawing(
            self._against_k(laws, "alpha"), "Exponent at each k, with its interval; dashed: cross-entropy's."
        )
        report.drawings["r2_against_k"] = Drawing(self._against_k(laws, "r2"))

    def _against_size(self, laws: dict[tuple[str, str], dict[int, Fit]], k: int) -> Figure:
        """The paper's figures 3 to 5: one panel per dataset, one colour per family, log-log."""
        datasets, families = sorted({d for _, d in laws}), sorted({f for f, _ in laws})
        with style():
            figure, axes = panel_per(datasets)
            for ax, dataset in zip(axes, datasets, strict=True):
                drawn = [(f, laws[f, dataset][k]) for f in families if k in laws.get((f, dataset), {})]
                for family, fit in drawn:
                    colour, marker = colour_and_marker(families.index(family))
                    line = np.geomspace(fit.s.min(), fit.s.max(), 50)
                    label = f"{family}: α = {fit.law.alpha:.3f}, R² = {fit.law.r2:.3f}"
                    error = 1.96 * np.sqrt(np.diag(fit.covariance)) * fit.y
                    ax.errorbar(fit.s, fit.y, yerr=error, fmt=marker, ms=4.5, color=colour, label=label)
                    ax.plot(line, fit.law.predict(line), "-", lw=1.2, color=colour)
                ax.set_xlabel(_SIZE_LABELS[self.size])
                if drawn:
                    low_s, high_s = min(f.s.min() for _, f in drawn), max(f.s.max() for _, f in drawn)
                    low_y, high_y = min(f.y.min() for _, f in drawn), max(f.y.max() for _, f in drawn)
                    log_axis(ax.xaxis, low=low_s / 1.5, high=high_s * 1.5)
                    # room for a legend line per family
                    log_axis(ax.yaxis, low=low_y / 1.12, high=high_y * (high_y / low_y) ** (0.13 * len(drawn) + 0.05))
                    ax.legend(loc="upper right", fontsize=8)
                ax.set_ylabel("CE, nats per token" if k == CE else f"−ln RBP$_{{{k}}}$")
            return figure

    def _against_k(self, laws: dict[tuple[str, str], dict[int, Fit]], quantity: str) -> Figure:
        """The paper's figure 6: alpha or R^2 against k, cross-entropy's as a dashed line."""
        datasets, families = sorted({d for _, d in laws}), sorted({f for f, _ in laws})
        with style():
            figure, axes = panel_per(datasets, sharey=True, legend=_LEGEND)
            for ax, dataset in zip(axes, datasets, strict=True):
                for family in (f for f in families if (f, dataset) in laws):
                    fits, (colour, _) = laws[family, dataset], colour_and_marker(families.index(family))
                    ks = sorted(k for k in fits if k != CE)
                    values = [getattr(fits[k].law, quantity) for k in ks]
                    ax.plot(ks, values, "-", lw=1.5, color=colour, label=f"{family}, RBP$_k$")
                    if quantity == "alpha":
                        low, high = [fits[k].law.low for k in ks], [fits[k].law.high for k in ks]
                        ax.fill_between(ks, low, high, color=colour, alpha=0.15, lw=0)
                    if CE in fits:
                        value = getattr(fits[CE].law, quantity)
                        ax.axhline(value, ls="--", lw=1.1, color=colour, label=f"{family}, CE")
                ax.set(xlabel="k", xscale="log", ylabel="α" if quantity == "alpha" else "R² of the fit on log axes")
            legend_of_all(figure, legend=_LEGEND)
            self._limit(axes, laws, quantity)
            return figure

    def _limit(self, axes: Any, laws: dict[tuple[str, str], dict[int, Fit]], quantity: str) -> None:
        """Let the interesting range fill the panel: intervals that explode near |V| are cut off."""
        every = [f for fits in laws.values() for f in fits.values()]
        if quantity == "r2":
            axes[0].set_ylim(max(0.0, min(f.law.r2 for f in every) - 0.03), 1.005)
        else:
            top = max(f.law.alpha for f in every)
            low = min(0.0, *(f.law.alpha for f in every))
            axes[0].set_ylim(low * 1.1, top * 1.25)


_SIZE_LABELS = {
    "non_embedding_params": "S, non-embedding parameters",
    "total_params": "S, all parameters",
    "training_flops": "S, training FLOPs (6 S D)",
}


def _headline(shown: list[Fit]) -> str:
    """The range of alpha per metric over families and datasets, and in how many cases a law is visible."""
    parts = []
    for metric in dict.fromkeys(f.metric for f in shown):
        alphas = [f.law.alpha for f in shown if f.metric == metric]
        low, high = f"{min(alphas):.3f}", f"{max(alphas):.3f}"
        parts.append(f"{low} to {high} for {metric}" if low != high else f"{low} for {metric}")
    clear = sum(f.law.low > 0 for f in shown)
    return f"alpha is {', '.join(parts)}; its interval lies above 0 in {clear} of {len(shown)} fits"


def _grouped(fits: list[Fit]) -> Iterator[tuple[tuple[str, str], list[Fit]]]:
    keys = dict.fromkeys((f.family.dataset, f.metric) for f in fits)
    for key in keys:
        yield key, [f for f in fits if (f.family.dataset, f.metric) == key]


def _row(fit: Fit) -> dict[str, Any]:
    law = fit.law
    return fit.key | {
        "k": fit.k,
        "sizes": law.points,
        "alpha": law.alpha,
        "alpha_low": law.low,
        "alpha_high": law.high,
        "alpha_se": law.se,
        "alpha_huber": huber_alpha(fit.s, fit.y),
        "A": float(np.exp(law.log_a)),
        "r2": law.r2,
        "tau": law.tau,
        "left_out_error": leave_largest_out(fit.s, fit.y),
    }


def _form_rows(fit: Fit, verdict: Verdict) -> Iterator[dict[str, Any]]:
    for form in verdict.fits:
        yield fit.key | {
            "form": form.form,
            "preferred": form.form == verdict.preferred,
            "aicc": form.aicc,
            "alpha": form.values["alpha"],
            "alpha_se": form.se["alpha"],
            "E": form.values.get("E", float("nan")),
            "E_se": form.se.get("E", float("nan")),
            "starts_agree": form.agreed,
            "p_irreducible": verdict.p_irreducible if form.form == "M1" else float("nan"),
        }


def _point_rows(fit: Fit) -> Iterator[dict[str, Any]]:
    without = without_each(fit.s, fit.y)
    residual = np.log(fit.y) - np.log(fit.law.predict(fit.s))
    se = np.sqrt(np.diag(fit.covariance))
    for i, label in enumerate(fit.family.labels):
        yield fit.key | {
            "k": fit.k,
            "size": label,
            "S": float(fit.s[i]),
            "y": float(fit.y[i]),
            "se_ln_y": float(se[i]),
            "residual": float(residual[i]),
            "alpha_without": float(without[i]),
            "influence": float((fit.law.alpha - without[i]) / fit.law.se) if fit.law.se > 0 else float("nan"),
        }


def _summary(fit: Fit, verdict: Verdict) -> dict[str, object]:
    """A row of the table for the terminal: texts, rounded."""
    law, left_out = fit.law, leave_largest_out(fit.s, fit.y)
    return fit.key | {
        "alpha": f"{law.alpha:.4f}",
        "95 % interval": f"{law.low:.3f} .. {law.high:.3f}",
        "R^2": f"{law.r2:.4f}",
        "sizes": law.points,
        "largest, left out": "" if np.isnan(left_out) else f"{left_out:+.1%}",
        "form": verdict.preferred if len(verdict.fits) > 1 else "m < 6",
    }
