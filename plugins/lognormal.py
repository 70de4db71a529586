"""Is the distribution of ranks lognormal? Exact truncated fits of every candidate, and what a lognormal implies.

Figure 8 and eqs. 9 to 21 of arXiv 2510.20387, on {1..V} with sums instead of integrals: ln P(k) = const - beta ln k
- gamma ln^2 k. gamma -> 0 is Zipf's law, where mu and sigma run away while the distribution does not. So (beta, gamma)
come first, and mu, sigma only where gamma's interval excludes 0.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy import stats

from rbptrack.analysis import (
    KEYS,
    Analyzer,
    Drawing,
    Family,
    RankHistogram,
    RbptrackError,
    Report,
    Runs,
    Unreadable,
    draw_appendix_terms,
    draw_implied,
    draw_lognormal_parameters,
    draw_misfit,
    draw_rank_distributions,
    interval_columns,
    read_families,
    shared_columns,
    some_of,
    spread,
)
from rbptrack.stats import (
    CANDIDATES,
    FloatArray,
    RanksOfSize,
    Support,
    fit_power_law,
    fit_size,
    goodness_of_fit,
    integral_approximation,
    lognormal_trend,
)

NESTED = ("zipf", "point_mass_lognormal", "two_lognormals")
"""Candidates that a lognormal is a case of, or the other way round: Vuong's z is not normal for them."""
APPENDIX_TERMS = ("square_term", "log_c", "log_c_integral")
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "summary": {
        **shared_columns("dataset", "family", "size"),
        "best of 9": "the candidate with the lowest AIC",
        "KL, 1e-3": "KL divergence of the observed ranks from it beyond sampling noise, 1e-3 nats per token",
        "lognormal": "the same from the pmf-lognormal",
        "Zipf": "the same from the truncated Zipf law",
        "interval of gamma": "95% unless the options say otherwise; of gamma in ln P(k) = const - beta ln k - gamma "
        "ln^2 k; below 0: convex, no lognormal",
        "mu/sigma": "of the lognormal; `limit`: gamma's interval touches 0, Zipf's law, mu and sigma not identifiable",
    },
    "lognormal": {
        **KEYS,
        **interval_columns("beta", "1 - mu/sigma^2, with gamma free to be negative", "see interval_from"),
        **interval_columns("gamma", "1/(2 sigma^2), free to be negative", "see interval_from"),
        "interval_from": "bootstrap over documents; without stored ranks, Fisher information and a design effect",
        "power_law_limit": "gamma's interval touches 0 or lies below: mu and sigma are not identifiable",
        "mu": "of the lognormal",
        "sigma": "of the lognormal",
        **interval_columns("mu_over_sigma", "their ratio", "see interval_from"),
        "entropy": "entropy of the observed ranks, plug-in, nats",
        "entropy_miller_madow": "the same, corrected for its downward bias",
        "entropy_implied": "entropy of the fitted lognormal, exact sum",
        "entropy_integral": "the appendix's integral approximation of it: for comparison only",
        "neg_log_p1": "observed -ln RBP_1",
        "neg_log_p1_implied": "of the fitted lognormal, exact sum",
        "neg_log_p1_integral": "the appendix's integral approximation: for comparison only; below 0 means p_1 > 1",
        "neg_log_p1_corrected": "the same with the terms at k = 1 that the integral drops",
        "square_term": "mu^2/(2 sigma^2): with ln c it is -ln p_1 in the paper's appendix B.4",
        "log_c": "ln c, c the sum over 1..|V| of exp(-(ln k - mu)^2/(2 sigma^2))/k: exact",
        "log_c_integral": "ln[sigma sqrt(2 pi) Phi(mu/sigma)]: the appendix's integral in place of that sum",
        "kl_floor": "KL per token that as many independent tokens drawn from the best candidate would show",
    },
    "candidates": {
        **KEYS,
        "candidate": "the distribution, truncated to 1..V",
        "parameters": "how many",
        "kl": "KL divergence of the observed ranks from it, nats per token",
        "ks": "max over k of |RBP_k fitted - RBP_k observed|: the discrete KS distance",
        "ks_at": "the k of that maximum",
        "aic_above_best": "AIC minus the least AIC of the candidates; takes tokens for independent",
        "vuong_z": "against the lognormal, clustered by document; positive: better than it",
        "nested": "holds the lognormal or is a case of it: z is not normal",
        "p_value": "of ks, by parametric bootstrap, where `samples` asks for it",
        "values": "the fitted parameters, as named in rbptrack/stats/rank_distributions.py",
    },
    "trends": {
        **shared_columns("dataset", "family"),
        "quantity": "what changes with S",
        "sizes": "how many: every one",
        "slope": "change per unit of ln S; of entropy and -ln RBP_1 minus the exponent alpha of A S^-alpha",
        "slope_low": "lower end of its interval (scatter between models, sampling error; t distribution)",
        "slope_high": "upper end",
        "r2": "of a line in ln S through the sizes that have the quantity; of the law for alpha",
        "r2_in_s": "of a line in S instead of ln S",
    },
}


@dataclass(frozen=True)
class Loaded:
    """One run's ranks: the histogram, and where ranks are stored each document's tokens as weights of the nodes."""

    histogram: RankHistogram
    documents: FloatArray | None

    def __add__(self, other: "Loaded") -> "Loaded":
        both = self.documents is not None and other.documents is not None
        return Loaded(self.histogram + other.histogram, self.documents + other.documents if both else None)  # type: ignore[operator]


@dataclass(kw_only=True)
class Lognormal(Analyzer):
    """The distribution of ranks: is it lognormal, what else, and what would a lognormal imply.

    Attributes:
        level: nominal coverage of the intervals.
        replicates: document bootstraps of (beta, gamma), drawn jointly for all sizes of a family.
        samples: parametric bootstraps for a p-value of every candidate, refitted each time; 0: none. It takes tokens
            for independent, so that at hundreds of thousands of tokens it rejects everything.

    """

    name: ClassVar[str] = "lognormal"
    level: float = 0.95
    replicates: int = 500
    samples: int = 0

    def analyze(self, runs: Runs) -> Report:
        """Fit every measurement; trends need at least 3 sizes."""
        report = Report(summary="summary")
        found = list(self._fitted(runs, report.notes))
        if not found:
            raise report.nothing_found("no measurement to fit")
        rows = [row for f, several in found for row in self._rows(f, several)]
        table = pd.DataFrame(rows)
        candidates = [row for f, several in found for row in self._candidate_rows(f, several)]
        trends = [row for f, several in found for row in self._trends(f, several, table)]
        report.add_table("summary", _summary(table, found), COLUMNS["summary"])
        report.add_table("lognormal", table, COLUMNS["lognormal"])
        report.add_table("candidates", candidates, COLUMNS["candidates"])
        report.add_table("trends", trends, COLUMNS["trends"])
        for quantity in ("beta", "gamma", "mu_over_sigma"):
            report.add_metrics(f"lognormal_{quantity}/{{family}}/{{dataset}}/{{size}}", rows, quantity)
        report.add_metrics("kl_{candidate}/{family}/{dataset}/{size}", candidates, "kl")
        report.headline = _headline([size for _, several in found for size in several])
        report.drawings = _drawings(found, table)
        for family, several in found:
            report.notes.append(f"{family}: {self._sentences(family, several, table, trends)}")
        return report

    def _fitted(self, runs: Runs, notes: list[str]) -> Iterator[tuple[Family, list[RanksOfSize]]]:
        """Each family with those of its sizes to which something can be fitted."""

        def load(_: Family, run_id: str) -> Loaded:
            histogram = runs.histogram(run_id)
            support = Support.nodes(histogram.vocab_size)
            projected = []
            try:
                for piece in runs.rank_pieces(run_id):
                    present, document = piece.documents
                    ones = np.ones(len(piece))
                    projected.append(support.project_groups(document, piece.rank, ones, groups=len(present)))
            except Unreadable:
                return Loaded(histogram, None)
            return Loaded(histogram, np.concatenate(projected))

        for family, loaded in read_families(runs, load, notes):
            sizes: list[RanksOfSize] = []
            fitted: list[float] = []
            for one, params, label in zip(loaded, family.s, family.labels, strict=True):
                try:
                    sizes.append(self._size(one, family.rows[family.rows["non_embedding_params"] == params]))
                    fitted.append(params)
                except RbptrackError as error:
                    notes.append(f"{family}, {label}: {error}.")
            if sizes:
                yield _only(family, fitted), sizes

    def _size(self, loaded: Loaded, rows: pd.DataFrame) -> RanksOfSize:
        return fit_size(
            loaded.histogram,
            loaded.documents,
            effect=_design_effect(rows),
            seed=int(rows["non_embedding_params"].iloc[0]),  # sizes apart: not paired
            level=self.level,
            replicates=self.replicates,
        )

    def _rows(self, family: Family, sizes: list[RanksOfSize]) -> list[dict[str, Any]]:
        rows = []
        for s, label, size in zip(family.s, family.labels, sizes, strict=True):
            h, implied = size.histogram, size.fits["lognormal"]
            share = h.count / h.num_tokens
            entropy = float(-share @ np.log(share))
            row: dict[str, Any] = family.keys | {"size": label, "S": s}
            for number, name in enumerate(("beta", "gamma")):
                row |= {name: float(size.free[number]), f"{name}_low": float(size.low[number])}
                row[f"{name}_high"] = float(size.high[number])
            row |= {"interval_from": size.interval_from, "power_law_limit": size.limit}
            row |= dict.fromkeys(("mu", "sigma", "mu_over_sigma", "mu_over_sigma_low", "mu_over_sigma_high"), np.nan)
            row |= {"entropy": entropy, "entropy_miller_madow": entropy + (len(h.rank) - 1) / (2 * h.num_tokens)}
            row |= {"entropy_implied": implied.entropy, "entropy_integral": np.nan}
            row |= {"neg_log_p1": -float(np.log(h.rbp(1))), "neg_log_p1_implied": -float(implied.log_pmf[0])}
            row |= dict.fromkeys(("neg_log_p1_integral", "neg_log_p1_corrected", *APPENDIX_TERMS), np.nan)
            if not size.limit:
                sigma = float(1 / np.sqrt(2 * size.free[1]))
                mu = float((1 - size.free[0]) * sigma**2)
                about = integral_approximation(mu, sigma)
                row |= {"mu": mu, "sigma": sigma, "mu_over_sigma": mu / sigma}
                row |= {"mu_over_sigma_low": size.ratio[0], "mu_over_sigma_high": size.ratio[1]}
                row |= {"entropy_integral": about.entropy, "neg_log_p1_integral": about.neg_log_p1}
                row["neg_log_p1_corrected"] = about.neg_log_p1_corrected
                square = mu**2 / (2 * sigma**2)
                both = (row["neg_log_p1_implied"] - square, about.neg_log_p1 - square)
                row |= dict(zip(APPENDIX_TERMS, (square, *both), strict=True))
            row["kl_floor"] = size.floor
            rows.append(row)
        return rows

    def _candidate_rows(self, family: Family, sizes: list[RanksOfSize]) -> list[dict[str, Any]]:
        rows = []
        for s, label, size in zip(family.s, family.labels, sizes, strict=True):
            for name, fit in size.fits.items():
                row: dict[str, Any] = family.keys | {"size": label, "S": s}
                row |= {"candidate": name, "parameters": len(fit.parameters), "kl": fit.kl, "ks": fit.ks}
                row |= {"ks_at": fit.ks_at, "aic_above_best": fit.aic - size.best.aic}
                row |= {"vuong_z": size.vuong.get(name, np.nan), "nested": name in NESTED, "p_value": np.nan}
                if self.samples:
                    row["p_value"] = goodness_of_fit(fit, tokens=size.histogram.num_tokens, samples=self.samples)
                row["values"] = ", ".join(f"{key} = {value:.6g}" for key, value in fit.parameters.items())
                rows.append(row)
        return rows

    def _trends(self, family: Family, sizes: list[RanksOfSize], table: pd.DataFrame) -> list[dict[str, Any]]:
        """Beta, gamma and mu/sigma against ln S, and the exponents of the measured and the implied curves."""
        mine = table[(table["dataset"] == family.dataset) & (table["family"] == family.name)]
        rows: list[dict[str, Any]] = []
        if len(mine) >= 3:
            theta, draws = np.stack([size.free for size in sizes]), np.stack([size.draws for size in sizes])
            trend = lognormal_trend(family.s, theta, draws, level=self.level)
            slopes = {"beta": trend.beta, "gamma": trend.gamma, "mu_over_sigma": trend.mu_over_sigma}
            for quantity, slope in slopes.items():
                if slope:
                    row = family.keys | {"quantity": quantity, "sizes": len(sizes)} | slope.columns("slope")
                    rows.append(row | dict(zip(("r2", "r2_in_s"), _r2(mine, quantity), strict=True)))
            for quantity in ("entropy", "entropy_implied", "neg_log_p1", "neg_log_p1_implied"):
                law = fit_power_law(mine["S"].to_numpy(float), mine[quantity].to_numpy(float), level=self.level)
                row = family.keys | {"quantity": quantity, "sizes": len(mine)}
                row |= {"slope": -law.alpha, "slope_low": -law.high, "slope_high": -law.low, "r2": law.r2}
                rows.append(row | {"r2_in_s": np.nan})
        return rows

    def _sentences(
        self, family: Family, sizes: list[RanksOfSize], table: pd.DataFrame, trends: list[dict[str, Any]]
    ) -> str:
        mine = table[(table["dataset"] == family.dataset) & (table["family"] == family.name)]
        here = {t["quantity"]: t for t in trends if (t["family"], t["dataset"]) == (family.name, family.dataset)}
        said = [_best_in_words(family, sizes, mine), self._parameters_in_words(family, sizes), _trend_in_words(here)]
        return " ".join([*said, _implied_in_words(mine, here), *_about_terms(mine)])

    def _parameters_in_words(self, family: Family, sizes: list[RanksOfSize]) -> str:
        last = sizes[-1]
        limits = [label for label, s in zip(family.labels, sizes, strict=True) if s.limit]
        text = (
            f"At {family.labels[-1]} beta = {last.free[0]:.3f} ({last.low[0]:.3f} to {last.high[0]:.3f}), "
            f"gamma = {last.free[1]:.4f} ({last.low[1]:.4f} to {last.high[1]:.4f}), {self.level:z.0%} intervals from "
            f"{last.interval_from}."
        )
        if limits:
            text += (
                f" At {some_of(len(limits), len(sizes), 'size')} ({', '.join(limits)}) the interval of gamma includes "
                "0 or lies below it: that is the lognormal's power-law limit, where mu and sigma are not identifiable."
            )
        return text


def _best_in_words(family: Family, sizes: list[RanksOfSize], mine: pd.DataFrame) -> str:
    """Which candidate is nearest to the ranks, by how much, and whether documents agree."""
    names = [s.best.candidate.name for s in sizes]
    best = max(dict.fromkeys(names), key=names.count)
    label = CANDIDATES[best].label
    floor = mine["kl_floor"].to_numpy(float)

    def beyond(name: str) -> str:
        values = 1e3 * (np.array([s.fits[name].kl for s in sizes]) - floor)
        return spread(values, ".1f", family.labels)

    ks = max((s.fits["lognormal"].ks, s.fits["lognormal"].ks_at) for s in sizes)
    text = (
        f"of {len(CANDIDATES)} candidates, the best (by AIC) at {some_of(names.count(best), len(sizes), 'size')} is "
        f"{label}. Its KL divergence from the ranks less that of sampling noise, in 10^-3 nats per token, is "
        f"{beyond(best)}, the lognormal's {beyond('lognormal')} and Zipf's {beyond('zipf')}. The lognormal "
        f"misses RBP_k by up to {ks[0]:.3f} (at k = {ks[1]})"
    )
    scores = [s.vuong[best] for s in sizes if best in s.vuong]
    if best == "lognormal":
        text += "."
    elif scores and min(scores) > 2:
        text += "; the best one fits better at every size also when documents are compared one by one (Vuong's z is at "
        text += f"least {min(scores):.1f})."
    else:
        text += "; compared document by document (Vuong's test), not every size prefers one of the two."
    return text


def _trend_in_words(here: Mapping[str, dict[str, Any]]) -> str:
    """How mu/sigma changes with S, from the rows of `trends` of one family."""
    if "mu_over_sigma" in here:
        t = here["mu_over_sigma"]
        return (
            f"In the middle of the {t['sizes']} sizes, mu/sigma changes by {t['slope']:+z.3f} "
            f"({t['slope_low']:+z.3f} to {t['slope_high']:+z.3f}) per unit of ln S."
        )
    return "How mu/sigma changes with S is not identifiable: gamma may be near 0 in the middle of the sizes."


def _implied_in_words(mine: pd.DataFrame, here: Mapping[str, dict[str, Any]]) -> str:
    """How far the entropy and -ln RBP_1 of the fitted lognormals are off."""
    off_h = mine["entropy_implied"] - mine["entropy"]
    off_p = mine["neg_log_p1_implied"] / mine["neg_log_p1"] - 1
    text = (
        f"The fitted lognormals imply an entropy of the ranks that is off by {spread(off_h, '+.3f', unit='nats')}, "
        f"and a -ln RBP_1 that is off by {spread(off_p, '+.1%')}"
    )
    if "neg_log_p1" in here:
        a, b = -here["neg_log_p1"]["slope"], -here["neg_log_p1_implied"]["slope"]
        text += f"; the exponent of -ln RBP_1 would be {b:.3f} instead of the measured {a:.3f}"
    about = (mine["neg_log_p1_integral"] - mine["neg_log_p1_implied"]).abs().max()
    if np.isfinite(about):
        text += f"; the integral in the paper's appendix differs from the exact sum by up to {about:.2f} in -ln RBP_1"
    return text + "."


def _headline(every: list[RanksOfSize]) -> str:
    names = [size.best.candidate.label for size in every]
    nearest = max(dict.fromkeys(names), key=names.count)
    return (
        f"of {len(CANDIDATES)} candidate distributions of the rank, the best (by AIC) is {nearest} in "
        f"{some_of(names.count(nearest), len(every), 'measurement')}; the lognormal misses RBP_k by up to "
        f"{max(size.fits['lognormal'].ks for size in every):.3f}, and may be Zipf's law (gamma = 0) in "
        f"{some_of(sum(size.limit for size in every), len(every), 'measurement')}"
    )


def _drawings(found: list[tuple[Family, list[RanksOfSize]]], table: pd.DataFrame) -> dict[str, Drawing]:
    drawings = {
        "distribution": Drawing(
            draw_rank_distributions(found),
            "Largest model of each family. Points: observed shares in bins even in ln k. Lines: the best of the "
            "candidates, the lognormal and Zipf's law, fitted to all ranks.",
        ),
        "misfit": Drawing(
            draw_misfit(found),
            "KL divergence of the observed ranks from each candidate. Dotted: what sampling alone would give, for "
            "as many independent tokens drawn from the best candidate.",
        ),
        "parameters": Drawing(
            draw_lognormal_parameters(table),
            "Parameters of ln P(k) = const - beta ln k - gamma ln^2 k. Where the interval of gamma includes "
            "(Zipf's law), mu/sigma is not identifiable and not drawn.",
        ),
        "implied": Drawing(
            draw_implied(table),
            "Solid: observed. Dashed: exact sums over the fitted lognormal. Dotted: the integral approximations of "
            "the paper's appendix, which also ignore that ranks end at |V|.",
        ),
    }
    if table["square_term"].notna().any():
        drawings["appendix_terms"] = Drawing(
            draw_appendix_terms(table[table["square_term"].notna()]),
            "-ln p_1 = ln c + mu^2/(2 sigma^2), the terms of appendix B.4 of arXiv 2510.20387, where mu and sigma "
            "are identified. Where the terms nearly cancel, neither alone shows how -ln p_1 falls.",
        )
    return drawings


def _about_terms(mine: pd.DataFrame) -> list[str]:
    """How the appendix's two terms of -ln p_1 move from the smallest size to the largest; nothing below two sizes."""
    known = mine[mine["square_term"].notna()].sort_values("S")
    if len(known) < 2:
        return []
    first, last = known.iloc[0], known.iloc[-1]
    square, log_c, both = (last[c] - first[c] for c in ("square_term", "log_c", "neg_log_p1_implied"))
    against = ": the two work against each other, and neither is the law by itself." if square * log_c < 0 else "."
    return [
        f"Of -ln p_1 = ln c + mu^2/(2 sigma^2) (appendix B.4), from {first['size']} to {last['size']} the second term "
        f"changes by {square:+z.2f} and ln c by {log_c:+z.2f}, together by {both:+z.2f}{against}"
    ]


def _only(family: Family, sizes: list[float]) -> Family:
    return Family(family.name, family.dataset, family.rows[family.rows["non_embedding_params"].isin(sizes)])


def _r2(table: pd.DataFrame, quantity: str) -> tuple[float, float]:
    """R^2 of a line in ln S, and in S, over the sizes that have the quantity; NaN where they are fewer than 3."""
    known = table[table[quantity].notna()]
    if len(known) < 3:
        return np.nan, np.nan
    s, y = known["S"].to_numpy(float), known[quantity].to_numpy(float)
    return tuple(float(stats.linregress(x, y).rvalue ** 2) for x in (np.log(s), s))  # type: ignore[return-value]


def _design_effect(rows: pd.DataFrame) -> float:
    """How many times the variance of independent tokens the logged RBP_k have: mean over the logged k, at least 1."""
    effects = [1.0]
    for column in (c for c in rows.columns if c.startswith("rbp_") and f"{c}_se" in rows.columns):
        p, se = rows[column].mean(), rows[f"{column}_se"].mean()
        if pd.notna(p) and pd.notna(se) and 0 < p < 1:
            effects.append(float(se**2 * rows["num_tokens"].sum() / (p * (1 - p))))
    return max(1.0, float(np.mean(effects[1:] or effects)))


def _summary(table: pd.DataFrame, found: list[tuple[Family, list[RanksOfSize]]]) -> pd.DataFrame:
    """The table for the terminal: texts, rounded; KL beyond the floor in 1e-3 nats per token."""
    sizes = [size for _, several in found for size in several]
    limit = table["power_law_limit"]

    def kl(name: str) -> list[str]:
        return [f"{1e3 * (size.fits[name].kl - size.floor):z.1f}" for size in sizes]

    interval = [f"{a:.3f} .. {b:.3f}" for a, b in zip(table["gamma_low"], table["gamma_high"], strict=True)]
    return pd.DataFrame(
        {
            "dataset": table["dataset"],
            "family": table["family"],
            "size": table["size"],
            "best of 9": [size.best.candidate.label for size in sizes],
            "KL, 1e-3": [f"{1e3 * (size.best.kl - size.floor):z.1f}" for size in sizes],
            "lognormal": kl("lognormal"),
            "Zipf": kl("zipf"),
            "interval of gamma": interval,
            "mu/sigma": ["limit" if at else f"{v:.2f}" for at, v in zip(limit, table["mu_over_sigma"], strict=True)],
        }
    )
