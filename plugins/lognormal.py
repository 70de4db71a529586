"""Is the distribution of ranks lognormal? Exact truncated fits of every candidate, and what a lognormal implies.

Figure 8 and eqs. 9 to 21 of arXiv 2510.20387, on {1..V} with sums instead of integrals: ln P(k) = const - beta ln k
- gamma ln^2 k. gamma -> 0 is Zipf's law, where mu and sigma run away while the distribution does not. So (beta, gamma)
come first, and mu, sigma only where gamma's interval excludes 0.
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
    RankHistogram,
    RbptrackError,
    Report,
    Runs,
    Unreadable,
    colour_and_marker,
    grid,
    grid_of,
    interval_columns,
    legend_of_all,
    log_axis,
    read_families,
    shared_columns,
    size_axis,
    some_of,
    spread,
    style,
)
from rbptrack.stats import (
    CANDIDATES,
    FloatArray,
    RankFit,
    Support,
    document_weights,
    fit_lognormal,
    fit_power_law,
    fit_ranks,
    goodness_of_fit,
    information_covariance,
    integral_approximation,
    log_sums,
    lognormal_trend,
    mu_over_sigma,
    sampling_kl,
    vuong,
)

NESTED = ("zipf", "point_mass_lognormal", "two_lognormals")
"""Candidates that a lognormal is a case of, or the other way round: Vuong's z is not normal for them."""
LEAST_DOCUMENTS = 10
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


@dataclass(frozen=True)
class Size:
    """One size.

    Attributes:
        histogram: its ranks.
        fits: of every candidate.
        vuong: z of each candidate against the lognormal; empty without documents.
        floor: KL that sampling alone would give, nats per token.
        free: (beta, gamma), gamma free to be negative, (2,).
        draws: the same in bootstrap replicates, (replicates, 2).
        low: lower ends of their intervals, (2,).
        high: upper ends, (2,).
        ratio: interval of mu/sigma.
        interval_from: where the intervals come from.

    """

    histogram: RankHistogram
    fits: dict[str, RankFit]
    vuong: dict[str, float]
    floor: float
    free: FloatArray
    draws: FloatArray
    low: FloatArray
    high: FloatArray
    ratio: tuple[float, float]
    interval_from: str

    @property
    def limit(self) -> bool:
        """Whether the lognormal is at its power-law limit, within the interval of gamma."""
        return bool(self.low[1] <= 0)

    @property
    def best(self) -> RankFit:
        """The candidate with the lowest AIC."""
        return _best(self.fits)


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
        report = Report()
        found: list[tuple[Family, list[Size]]] = []

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

        for family, loaded in read_families(runs, load, report.notes):
            sizes: list[Size] = []
            fitted: list[float] = []
            for one, params, label in zip(loaded, family.s, family.labels, strict=True):
                try:
                    sizes.append(self._size(one, family.rows[family.rows["non_embedding_params"] == params]))
                    fitted.append(params)
                except RbptrackError as error:
                    report.notes.append(f"{family}, {label}: {error}.")
            if sizes:
                found.append((_only(family, fitted), sizes))
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
        report.summary = "summary"
        every = [size for _, several in found for size in several]
        names = [size.best.candidate.label for size in every]
        nearest = max(dict.fromkeys(names), key=names.count)
        report.headline = (
            f"of {len(CANDIDATES)} candidate distributions of the rank, the best (by AIC) is {nearest} in "
            f"{some_of(names.count(nearest), len(every), 'measurement')}; the lognormal misses RBP_k by up to "
            f"{max(size.fits['lognormal'].ks for size in every):.3f}, and may be Zipf's law (gamma = 0) in "
            f"{some_of(sum(size.limit for size in every), len(every), 'measurement')}"
        )
        for quantity in ("beta", "gamma", "mu_over_sigma"):
            report.add_metrics(f"lognormal_{quantity}/{{family}}/{{dataset}}/{{size}}", rows, quantity)
        report.add_metrics("kl_{candidate}/{family}/{dataset}/{size}", candidates, "kl")
        report.drawings = {
            "distribution": Drawing(
                self._distribution(found),
                "Largest model of each family. Points: observed shares in bins even in ln k. Lines: the best of the "
                "candidates, the lognormal and Zipf's law, fitted to all ranks.",
            ),
            "misfit": Drawing(
                self._misfit(found),
                "KL divergence of the observed ranks from each candidate. Dotted: what sampling alone would give, for "
                "as many independent tokens drawn from the best candidate.",
            ),
            "parameters": Drawing(
                self._parameters(table),
                "Parameters of ln P(k) = const - beta ln k - gamma ln^2 k. Where the interval of gamma includes 0 "
                "(Zipf's law), mu/sigma is not identifiable and not drawn.",
            ),
            "implied": Drawing(
                self._implied(table),
                "Solid: observed. Dashed: exact sums over the fitted lognormal. Dotted: the integral approximations of "
                "the paper's appendix, which also ignore that ranks end at |V|.",
            ),
        }
        if table["square_term"].notna().any():
            report.drawings["appendix_terms"] = Drawing(
                _draw_terms(table[table["square_term"].notna()]),
                "-ln p_1 = ln c + mu^2/(2 sigma^2), the terms of appendix B.4 of arXiv 2510.20387, where mu and sigma "
                "are identified. Where the terms nearly cancel, neither alone shows how -ln p_1 falls.",
            )
        for one_family, several in found:
            report.notes.append(f"{one_family}: {self._sentences(one_family, several, table, trends)}")
        return report

    def _size(self, loaded: Loaded, rows: pd.DataFrame) -> Size:
        histogram = loaded.histogram
        support = Support.nodes(histogram.vocab_size)
        fits = fit_ranks(histogram)
        documents = loaded.documents
        free = fit_lognormal(log_sums(support.project(histogram.rank, histogram.count), support), support)
        tail = 50 * (1 - self.level)
        if documents is not None and len(documents) >= LEAST_DOCUMENTS:
            weights = document_weights(len(documents), replicates=self.replicates)
            draws = fit_lognormal(weights @ log_sums(documents, support), support, start=free)
            source = "documents"
        else:
            effect = _design_effect(rows)
            covariance = effect * information_covariance(free, support, tokens=histogram.num_tokens)
            rng = np.random.default_rng([0, int(rows["non_embedding_params"].iloc[0])])  # sizes apart: not paired
            draws = rng.multivariate_normal(free, covariance, size=self.replicates)
            source = f"likelihood, design effect {effect:.1f}"
        low, high = np.percentile(draws, [tail, 100 - tail], axis=0)
        ratio = mu_over_sigma(draws[draws[:, 1] > 0])
        ends = tuple(np.percentile(ratio, [tail, 100 - tail])) if len(ratio) else (np.nan, np.nan)
        scores = {}
        if documents is not None:
            reference = fits["lognormal"]
            scores = {n: vuong(f, reference, documents, support) for n, f in fits.items() if n != "lognormal"}
        floor = sampling_kl(_best(fits), tokens=histogram.num_tokens)
        return Size(histogram, fits, scores, floor, free, draws, low, high, (float(ends[0]), float(ends[1])), source)

    def _rows(self, family: Family, sizes: list[Size]) -> list[dict[str, Any]]:
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

    def _candidate_rows(self, family: Family, sizes: list[Size]) -> list[dict[str, Any]]:
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

    def _trends(self, family: Family, sizes: list[Size], table: pd.DataFrame) -> list[dict[str, Any]]:
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

    def _sentences(self, family: Family, sizes: list[Size], table: pd.DataFrame, trends: list[dict[str, Any]]) -> str:
        m, last = len(sizes), sizes[-1]
        mine = table[(table["dataset"] == family.dataset) & (table["family"] == family.name)]
        names = [s.best.candidate.name for s in sizes]
        best = max(dict.fromkeys(names), key=names.count)
        label = CANDIDATES[best].label
        floor = mine["kl_floor"].to_numpy(float)

        def beyond(name: str) -> str:
            values = 1e3 * (np.array([s.fits[name].kl for s in sizes]) - floor)
            return spread(values, ".1f", family.labels)

        ks = max((s.fits["lognormal"].ks, s.fits["lognormal"].ks_at) for s in sizes)
        text = (
            f"of {len(CANDIDATES)} candidates, {label} describes the ranks best (by AIC) at "
            f"{some_of(names.count(best), m, 'size')}. Its KL divergence from the ranks less that of sampling noise, "
            f"in 10^-3 nats per token, is {beyond(best)}, the lognormal's {beyond('lognormal')} and Zipf's "
            f"{beyond('zipf')}. The lognormal misses RBP_k by up to {ks[0]:.3f} (at k = {ks[1]})"
        )
        scores = [s.vuong[best] for s in sizes if best in s.vuong]
        if best == "lognormal":
            text += "."
        elif scores and min(scores) > 2:
            text += f"; {label} fits better at every size also when documents are compared one by one (Vuong's z is at "
            text += f"least {min(scores):.1f})."
        else:
            text += "; compared document by document (Vuong's test), not every size prefers one of the two."
        notes = [text]
        limits = [label for label, s in zip(family.labels, sizes, strict=True) if s.limit]
        text = (
            f"At {family.labels[-1]} beta = {last.free[0]:.3f} ({last.low[0]:.3f} to {last.high[0]:.3f}), "
            f"gamma = {last.free[1]:.4f} ({last.low[1]:.4f} to {last.high[1]:.4f}), {self.level:z.0%} intervals from "
            f"{last.interval_from}."
        )
        if limits:
            text += (
                f" At {some_of(len(limits), m, 'size')} ({', '.join(limits)}) the interval of gamma includes 0 or lies "
                "below it: that is the lognormal's power-law limit, where mu and sigma are not identifiable."
            )
        notes.append(text)
        here = {t["quantity"]: t for t in trends if (t["family"], t["dataset"]) == (family.name, family.dataset)}
        if "mu_over_sigma" in here:
            t = here["mu_over_sigma"]
            notes.append(
                f"In the middle of the {t['sizes']} sizes, mu/sigma changes by {t['slope']:+z.3f} "
                f"({t['slope_low']:+z.3f} to {t['slope_high']:+z.3f}) per unit of ln S."
            )
        else:
            notes.append(
                "How mu/sigma changes with S is not identifiable: gamma may be near 0 in the middle of the sizes."
            )
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
            text += (
                f"; the integral in the paper's appendix differs from the exact sum by up to {about:.2f} in -ln RBP_1"
            )
        return " ".join([*notes, text + ".", *_about_terms(mine)])

    def _distribution(self, found: list[tuple[Family, list[Size]]]) -> Figure:
        """The paper's figure 8 for the largest size of each family: observed shares in bins even in ln k, and fits."""
        return _grid(found, self._draw_distribution, ylabel="P(R = k)", height=3.2, legend=2.4)

    def _draw_distribution(self, ax: Any, family: Family, sizes: list[Size]) -> None:
        size = sizes[-1]
        h, v = size.histogram, size.histogram.vocab_size
        edges = np.unique(np.rint(np.geomspace(1, v + 1, 48)).astype(np.int64))
        mass, _ = np.histogram(h.rank, bins=edges, weights=h.count / h.num_tokens)
        centre, width = np.sqrt(edges[:-1] * (edges[1:] - 1.0)), np.diff(edges)
        seen = mass > 0
        ax.plot(centre[seen], (mass / width)[seen], "o", ms=3, color="0.35", label="observed")
        grid = np.unique(np.rint(np.geomspace(1, v, 120)).astype(np.int64))
        shown = dict.fromkeys([size.best.candidate.name, "lognormal", "zipf"])
        for name in shown:
            colour, _ = colour_and_marker(list(CANDIDATES).index(name))
            dash = {"lognormal": "--", "zipf": ":"}.get(name, "-")
            fitted = np.exp(size.fits[name].log_pmf[grid - 1])
            ax.plot(grid, fitted, ls=dash, lw=1.4, color=colour, label=CANDIDATES[name].label)
        ax.set(title=f"{family}, {family.labels[-1]}", xlabel="rank k")
        shares = (mass / width)[seen]
        log_axis(ax.xaxis, low=0.8, high=v * 1.25)
        log_axis(ax.yaxis, low=float(shares.min()) / 3, high=float(shares.max()) * 2)

    def _misfit(self, found: list[tuple[Family, list[Size]]]) -> Figure:
        """KL per token of every candidate against S."""
        return _grid(found, self._draw_misfit, ylabel="KL, nats per token", height=3.0, legend=2.4)

    def _draw_misfit(self, ax: Any, family: Family, sizes: list[Size]) -> None:
        values = {name: np.array([size.fits[name].kl for size in sizes]) for name in CANDIDATES}
        for number, (name, kl) in enumerate(values.items()):
            look = {"color": COLOURS[number % len(COLOURS)], "ls": "-" if number < len(COLOURS) else "--"}
            ax.plot(
                family.s, kl, marker=MARKERS[number % len(MARKERS)], ms=3.5, lw=1, label=CANDIDATES[name].label, **look
            )
        floor = [size.floor for size in sizes]
        ax.plot(family.s, floor, ":", color="0.3", lw=1.4, label="sampling alone")
        every = np.concatenate([*values.values(), floor])
        log_axis(ax.xaxis, low=family.s.min() / 1.5, high=family.s.max() * 1.5)
        log_axis(ax.yaxis, low=every.min() / 1.5, high=every.max() * 1.5)
        ax.set(title=str(family), xlabel="S, non-embedding parameters")

    def _parameters(self, table: pd.DataFrame) -> Figure:
        """beta, gamma and, where identified, mu/sigma against S."""

        def draw(ax: Any, rows: pd.DataFrame, quantity: str, looks: dict[str, Any]) -> None:
            y, low, high = (rows[f"{quantity}{end}"] for end in ("", "_low", "_high"))
            error = np.clip([y - low, high - y], 0, None)
            ax.errorbar(rows["S"], y, yerr=error, capsize=2, label=" ".join(set(rows["family"])), **looks)
            if quantity == "gamma":
                ax.axhline(0, color="0.4", lw=0.8)

        words = {"beta": "β", "gamma": "γ", "mu_over_sigma": "μ/σ, where identified"}
        return _against_size(table, words, draw, legend=1.2)

    def _implied(self, table: pd.DataFrame) -> Figure:
        """Entropy and -ln RBP_1: observed, implied by the lognormal, and by the appendix's integrals."""

        def draw(ax: Any, rows: pd.DataFrame, quantity: str, looks: dict[str, Any]) -> None:
            name = " ".join(set(rows["family"]))
            ax.plot(rows["S"], rows[quantity], "-", label=f"{name}, observed", **looks)
            ax.plot(rows["S"], rows[f"{quantity}_implied"], "--", mfc="none", label=f"{name}, lognormal", **looks)
            ax.plot(rows["S"], rows[f"{quantity}_integral"], ":", color="0.45", lw=1.2, label="appendix's integral")

        words = {"entropy": "entropy of ranks, nats", "neg_log_p1": "−ln RBP$_1$"}
        return _against_size(table, words, draw, legend=1.9)


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


def _draw_terms(table: pd.DataFrame) -> Figure:
    """The appendix's terms of -ln p_1 against S, a panel per family and dataset: side by side, and their sum."""
    datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
    lines = {
        "square_term": ("μ²/(2σ²)", "-", COLOURS[1]),
        "log_c": ("ln c, exact sum", "-", COLOURS[2]),
        "log_c_integral": ("ln c, appendix's integral", ":", COLOURS[2]),
        "neg_log_p1_implied": ("their sum, −ln p$_1$", "--", COLOURS[0]),
    }
    with style():
        figure, axes = grid_of(datasets, names, legend=1.9)
        for (dataset, name), ax in axes.items():
            rows = table[(table["dataset"] == dataset) & (table["family"] == name)].sort_values("S")
            if not len(rows):
                ax.remove()
                continue
            for column, (label, line, colour) in lines.items():
                ax.plot(rows["S"], rows[column], line, marker="o", ms=3, lw=1.3, color=colour, label=label)
            ax.plot(rows["S"], rows["neg_log_p1"], "s", ms=4.5, mfc="none", color="0.2", label="−ln RBP$_1$ observed")
            ax.axhline(0, color="0.6", lw=0.8)
            size_axis(ax, rows["S"])
            ax.set(title=f"{name} on {dataset}", ylabel="nats")
        legend_of_all(figure, legend=1.9)
        return figure


def _best(fits: dict[str, RankFit]) -> RankFit:
    return min(fits.values(), key=lambda f: f.aic)


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


def _grid(
    found: list[tuple[Family, list[Size]]], draw: Any, *, ylabel: str, height: float, legend: float = 0.0
) -> Figure:
    """One panel per dataset (rows) and family (columns)."""
    datasets, names = sorted({f.dataset for f, _ in found}), sorted({f.name for f, _ in found})
    with style():
        figure, axes = grid_of(datasets, names, height=height, legend=legend)
        for family, sizes in found:
            ax = axes.pop((family.dataset, family.name))
            draw(ax, family, sizes)
            ax.set_ylabel(ylabel)
        for spare in axes.values():
            spare.remove()
        if legend:
            legend_of_all(figure, legend=legend)
        return figure


def _against_size(table: pd.DataFrame, words: Mapping[str, str], draw: Any, *, legend: float) -> Figure:
    """One panel per dataset (rows) and quantity (columns), families as colours."""
    datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
    with style():
        figure, axes = grid(len(datasets), len(words), legend=legend)
        for (i, j), ax in np.ndenumerate(axes):
            quantity, mine = list(words)[j], table[table["dataset"] == datasets[i]]
            for number, name in enumerate(names):
                rows = mine[(mine["family"] == name) & mine[quantity].notna()]
                colour, marker = colour_and_marker(number)
                draw(ax, rows, quantity, {"color": colour, "marker": marker, "ms": 4.5, "lw": 1.1})
            if mine[quantity].isna().all():
                ax.text(0.5, 0.5, "not identifiable", transform=ax.transAxes, ha="center", color="0.4")
                ax.set_yticks([])
            log_axis(ax.xaxis, low=mine["S"].min() / 1.5, high=mine["S"].max() * 1.5)
            ax.set(title=datasets[i], xlabel="S, non-embedding parameters", ylabel=words[quantity])
        legend_of_all(figure, legend=legend)
        return figure


def _summary(table: pd.DataFrame, found: list[tuple[Family, list[Size]]]) -> pd.DataFrame:
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
