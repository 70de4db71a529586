"""For which k the law in size holds, and what stops it: noise, a real deviation, or an inverse trend.

Section 4.3 and open question 2 of arXiv 2510.20387: for k near |V| almost every token is a hit, few misses are left to
count, and what looks like a broken law may be noise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rbptrack.analysis import (
    COLOURS,
    Analyzer,
    DocumentCounts,
    Drawing,
    Family,
    Report,
    Runs,
    colour_and_marker,
    log_axis,
    log_grid,
    panel_per,
    panels,
    read_families,
    style,
)
from rbptrack.stats import FloatArray, fit_power_law, lack_of_fit, law_values, paired_covariance

HOLDS, NOISE, DEVIATES, INVERSE = "law holds", "noise-limited", "systematic deviation", "inverse"
_CLASSES = {
    HOLDS: (COLOURS[0], ""),
    NOISE: ("#d9d9d9", "..."),
    DEVIATES: (COLOURS[1], "///"),
    INVERSE: (COLOURS[3], "xxx"),
}
KEY = {"dataset": "the dataset", "family": "the family", "k": "of RBP_k"}


COLUMNS: dict[str, dict[str, str]] = {
    "summary": {
        "dataset": "the dataset",
        "family": "the family",
        "k*": "largest k with alpha at least 2 standard errors from 0 at it and every smaller k",
        "|V|": "smallest vocabulary of the family",
        "misses": "tokens of the largest model with rank above k*",
        "beyond k*": "what most k beyond it are",
    },
    "verdicts": KEY
    | {
        "verdict": "law holds, noise-limited, systematic deviation or inverse",
        "alpha": "exponent of -ln RBP_k",
        "alpha_low": "lower end of its interval",
        "alpha_high": "upper end",
        "snr": "|alpha| / its standard error",
        "misses": "tokens with rank above k, fewest of all sizes",
        "design_effect": "variance of RBP_k over documents / binomial variance, largest model",
        "chi2": "of the line under sampling noise and usual scatter, m - 2 degrees of freedom",
        "p": "its p",
        "r2": "R^2 observed",
        "r2_expected": "median R^2 if the line were true under that noise",
        "r2_low": "lower end of its band",
        "r2_high": "upper end",
    },
    "documents": KEY
    | {
        "document": "number in the selection",
        "tokens": "scored tokens in it",
        "misses": "tokens with rank above k, largest model",
        "share": "of all misses of that model",
        "alpha_without": "exponent when this document is left out",
        "alpha": "exponent with all documents",
    },
    "tokens": KEY
    | {
        "token": "id in the vocabulary of the right token",
        "misses": "times its rank was above k, largest model",
        "share": "of all misses",
        "occurrences": "times it was the right token",
    },
}


@dataclass(kw_only=True)
class NoiseFloor(Analyzer):
    """For which k the law holds, and where noise, a deviation or an inverse trend ends it.

    Each k below |V| is one of: *inverse* (alpha's interval lies below 0), *systematic deviation* (the points leave the
    line by more than sampling noise and the usual scatter between models explain), *noise-limited* (alpha is not 2
    standard errors from 0, or too few misses are left to tell), *law holds*.

    Attributes:
        per_decade: how many k per decade are looked at, up to |V|.
        snr: alpha over its standard error, from which a law is visible.
        p_deviation: chi^2 test's p below which points deviate.
        scatter_k: the usual scatter between models is the median tau of all k up to this one.
        least_misses: fewest tokens with rank above k, in any size, from which anything is fitted.
        top: how many documents and tokens to name.
        level: nominal coverage of the intervals and bands.
        replicates: document bootstraps, and simulations of R^2.

    """

    name: ClassVar[str] = "noise_floor"
    per_decade: int = 12
    snr: float = 2.0
    p_deviation: float = 0.01
    scatter_k: int = 100
    least_misses: int = 10
    top: int = 5
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Judge every k of every family x dataset that has at least 3 sizes."""
        report = Report(summary="summary")
        verdicts: dict[Any, pd.DataFrame] = {}
        summary, documents, tokens = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()

        def load(family: Family, run_id: str) -> DocumentCounts:
            return runs.document_counts(run_id, log_grid(family.vocab_size, per_decade=self.per_decade).tolist()[:-1])

        for family, counts in read_families(runs, load, report.notes, least=3):
            table = self._judge(family, counts)
            verdicts[family.name, family.dataset] = table
            focus = _focus(table)
            summary.append(_summary(family, table, _k_star(table, self.snr)))
            documents += self._documents(family, counts, focus)
            tokens += self._tokens(family, runs, focus)
            report.metrics[f"k_star/{family.name}/{family.dataset}"] = float(_k_star(table, self.snr))
            report.notes.append(self._sentence(family, table, documents))
        if not verdicts:
            raise report.nothing_found("no measurement to judge")
        report.add_table("summary", summary, COLUMNS["summary"])
        report.add_table("verdicts", pd.concat(verdicts.values(), ignore_index=True), COLUMNS["verdicts"])
        report.add_table(
            "documents",
            documents,
            COLUMNS["documents"],
            caption="At the first k where no law holds, or else the largest: where the misses (rank above k) are.",
        )
        report.add_table("tokens", tokens, COLUMNS["tokens"])
        report.drawings = {
            "verdict_of_each_k": Drawing(_map(verdicts), "What each k is, from k = 1 to |V|."),
            "signal_to_noise": Drawing(
                self._signal(verdicts),
                f"|α| over its standard error; the law is visible above {self.snr:g} (dashed).",
            ),
            "r2_observed_and_expected": Drawing(
                _r2(verdicts),
                "Lines: R² observed; bands: R² that noise and the usual scatter between models "
                f"would leave if the law were true ({self.level:.0%}).",
            ),
        }
        stars = [f"{f} on {d} {_k_star(t, self.snr):,}" for (f, d), t in verdicts.items()]
        report.headline = f"the law is visible up to k* = {'; '.join(stars)}"
        return report

    def _judge(self, family: Family, counts: list[DocumentCounts]) -> pd.DataFrame:
        s, ks = family.s, counts[0].ks
        found = law_values(counts, replicates=self.replicates)
        values, draws = found.values, found.draws
        tokens = np.array([c.tokens.sum() for c in counts], dtype=np.float64)  # (m,)
        misses = tokens[:, None] - np.stack([c.hits.sum(axis=0) for c in counts])  # (m, ks)
        rows: list[dict[str, Any]] = []
        fits = {}
        for i, k in enumerate(ks):
            y, replicate = values[:, i + 1], draws[:, :, i + 1]
            usable = (y > 0) & np.isfinite(y) & (replicate > 0).all(axis=1) & np.isfinite(replicate).all(axis=1)
            if usable.all() and misses[:, i].min() >= self.least_misses:
                covariance = paired_covariance(list(np.log(replicate)))
                fits[k] = covariance, fit_power_law(s, y, covariance=covariance, level=self.level)
        usual = float(np.median([law.tau for k, (_, law) in fits.items() if k <= self.scatter_k] or [0.0]))
        rng = np.random.default_rng(0)
        for i, k in enumerate(ks):
            p = float(np.exp(-values[-1, i + 1]))
            spread = float(np.exp(-draws[-1, :, i + 1]).var(ddof=1))
            binomial = p * (1 - p) / tokens[-1]
            row = {"dataset": family.dataset, "family": family.name, "k": k, "verdict": NOISE}
            row |= dict.fromkeys(list(COLUMNS["verdicts"])[4:], float("nan"))
            row |= {"misses": int(misses[:, i].min()), "design_effect": spread / binomial if binomial > 0 else np.nan}
            if k in fits:
                covariance, law = fits[k]
                noise = covariance + usual**2 * np.eye(len(s))
                chi2, chance = lack_of_fit(s, values[:, i + 1], noise)
                low, middle, high = _expected_r2(np.log(law.predict(s)), np.log(s), noise, self, rng)
                snr = abs(law.alpha) / law.se if law.se > 0 else float("inf")
                row |= {"alpha": law.alpha, "alpha_low": law.low, "alpha_high": law.high, "snr": snr, "chi2": chi2}
                row |= {"p": chance, "r2": law.r2, "r2_expected": middle, "r2_low": low, "r2_high": high}
                row["verdict"] = (
                    INVERSE
                    if law.high < 0
                    else DEVIATES
                    if chance < self.p_deviation
                    else HOLDS
                    if snr >= self.snr and law.alpha > 0
                    else NOISE
                )
            rows.append(row)
        return pd.DataFrame(rows, columns=list(COLUMNS["verdicts"]))

    def _documents(self, family: Family, counts: list[DocumentCounts], k: int) -> Iterator[dict[str, Any]]:
        """The documents that hold most of the largest model's misses, and what each does to alpha."""
        i = counts[0].ks.index(k)
        tokens = np.stack([c.tokens for c in counts]).astype(np.float64)  # (m, documents)
        hits = np.stack([c.hits[:, i] for c in counts]).astype(np.float64)
        misses = tokens[-1] - hits[-1]
        rest = (hits.sum(axis=1, keepdims=True) - hits) / (tokens.sum(axis=1, keepdims=True) - tokens)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(-np.log(np.column_stack([hits.sum(axis=1) / tokens.sum(axis=1), rest])))  # (m, 1 + documents)
        x = np.log(family.s) - np.log(family.s).mean()
        with np.errstate(invalid="ignore"):
            alpha = -(x @ logs) / (x @ x)
        for d in np.argsort(-misses, kind="stable")[: self.top]:
            if misses[d] > 0:
                yield {
                    "dataset": family.dataset,
                    "family": family.name,
                    "k": k,
                    "document": int(counts[0].document[d]),
                    "tokens": int(tokens[-1, d]),
                    "misses": int(misses[d]),
                    "share": float(misses[d] / misses.sum()),
                    "alpha_without": float(alpha[1 + d]),
                    "alpha": float(alpha[0]),
                }

    def _tokens(self, family: Family, runs: Runs, k: int) -> Iterator[dict[str, Any]]:
        """The right tokens that the largest model most often ranks above k."""
        table = runs.ranks(family.run_ids[-1][0])
        token = table.column("token")
        missed, misses = np.unique(token[table.rank > k], return_counts=True)
        for i in np.argsort(-misses, kind="stable")[: self.top]:
            yield {
                "dataset": family.dataset,
                "family": family.name,
                "k": k,
                "token": int(missed[i]),
                "misses": int(misses[i]),
                "share": float(misses[i] / misses.sum()),
                "occurrences": int(np.count_nonzero(token == missed[i])),
            }

    def _sentence(self, family: Family, table: pd.DataFrame, documents: list[dict[str, Any]]) -> str:
        star = _k_star(table, self.snr)
        beyond = table[table["k"] > star]
        text = f"{family}: alpha is visible (at least {self.snr:g} standard errors) at every k up to {star:,}"
        text += f" (|V| = {family.vocab_size:,})."
        if star == 0:
            text = f"{family}: alpha is not visible even at k = 1."
        deviating = table[(table["k"] <= star) & (table["verdict"] != HOLDS)]
        if len(deviating):
            text += f" The points leave the line by more than noise at {_ranges(table, deviating)}: no law there."
        if len(beyond):
            parts = [f"{verdict} at {_ranges(table, rows)}" for verdict, rows in beyond.groupby("verdict", sort=False)]
            fewest = int(beyond["misses"].iloc[0])
            text += f" Beyond, with {fewest:,} misses or fewer in the best model: {'; '.join(parts)}."
        mine = [d for d in documents if (d["family"], d["dataset"]) == (family.name, family.dataset)]
        if mine and mine[0]["share"] > 0.1:
            lead = mine[0]
            text += f" At k = {lead['k']:,} document {lead['document']} alone holds {lead['share']:.0%} of its misses."
        return text

    def _signal(self, verdicts: dict[Any, pd.DataFrame]) -> Figure:
        datasets, names = sorted({d for _, d in verdicts}), sorted({f for f, _ in verdicts})
        with style():
            figure, axes = panel_per(datasets, sharey=True)
            for ax, dataset in zip(axes, datasets, strict=True):
                for name in (f for f in names if (f, dataset) in verdicts):
                    table = verdicts[name, dataset]
                    ax.plot(
                        table["k"], table["snr"], "-", lw=1.5, color=colour_and_marker(names.index(name))[0], label=name
                    )
                ax.axhline(self.snr, ls="--", lw=1, color="#57606a")
                ax.set(xscale="log", xlabel="k", ylabel="|α| / its standard error")
                ax.legend(fontsize=8)
            highest = max(float(t["snr"].replace(np.inf, np.nan).max()) for t in verdicts.values())
            log_axis(axes[0].yaxis, low=0.7, high=max(highest, self.snr) * 1.6)
            return figure


def _expected_r2(
    line: FloatArray, x: FloatArray, noise: FloatArray, options: NoiseFloor, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Lower end, median and upper end of R^2 that points on the line would give under the noise."""
    values, vectors = np.linalg.eigh(noise)
    shock = rng.normal(size=(options.replicates, len(x))) * np.sqrt(np.clip(values, 0, None)) @ vectors.T
    drawn = line + shock  # (replicates, m)
    drawn -= drawn.mean(axis=1, keepdims=True)
    centred = x - x.mean()
    slope = drawn @ centred / (centred @ centred)
    residual = drawn - slope[:, None] * centred
    r2 = 1 - (residual**2).sum(axis=1) / np.maximum((drawn**2).sum(axis=1), 1e-300)
    tail = (1 - options.level) / 2
    low, middle, high = np.quantile(r2, [tail, 0.5, 1 - tail])
    return float(low), float(middle), float(high)


def _k_star(table: pd.DataFrame, snr: float) -> int:
    """Largest k with a visible, positive exponent at it and at every smaller k; 0 if there is none."""
    seen = ((table["snr"] >= snr) & (table["alpha"] > 0)).to_numpy()
    length = int(np.argmin(seen)) if not seen.all() else len(seen)
    return int(table["k"].iloc[length - 1]) if length else 0


def _focus(table: pd.DataFrame) -> int:
    """The k to look into: the first at which no law holds though there are misses, else the last with misses."""
    missed = table[table["misses"] > 0]
    broken = missed[missed["verdict"] != HOLDS]
    return int(broken["k"].iloc[0] if len(broken) else missed["k"].iloc[-1])


def _summary(family: Family, table: pd.DataFrame, star: int) -> dict[str, Any]:
    beyond = table[table["k"] > star]["verdict"]
    at = table[table["k"] == star]["misses"]
    return {
        "dataset": family.dataset,
        "family": family.name,
        "k*": star,
        "|V|": family.vocab_size,
        "misses": int(at.iloc[0]) if len(at) else 0,
        "beyond k*": str(beyond.mode().iloc[0]) if len(beyond) else "",
    }


def _ranges(table: pd.DataFrame, rows: pd.DataFrame) -> str:
    """`k = 40 to 300, 900`: the rows' k, neighbours on the table's grid joined."""
    place = {k: i for i, k in enumerate(table["k"])}
    ranges: list[list[int]] = []
    for k in rows["k"]:
        if ranges and place[k] == place[ranges[-1][-1]] + 1:
            ranges[-1] = [ranges[-1][0], k]
        else:
            ranges.append([k])
    return "k = " + ", ".join(" to ".join(f"{k:,}" for k in r) for r in ranges)


def _map(verdicts: dict[Any, pd.DataFrame]) -> Figure:
    """One strip per family and dataset: the verdict of each k."""
    with style():
        figure, axes = panels(1, 1, width=7.2, height=0.9 + 0.32 * len(verdicts))
        ax = axes[0, 0]
        for row, table in enumerate(verdicts.values()):
            ks = table["k"].to_numpy(dtype=np.float64)
            edges = np.concatenate([[ks[0] / 1.15], np.sqrt(ks[1:] * ks[:-1]), [ks[-1] * 1.15]])
            for left, right, verdict in zip(edges[:-1], edges[1:], table["verdict"], strict=True):
                colour, hatch = _CLASSES[verdict]
                ax.barh(row, right - left, left=left, height=0.72, color=colour, hatch=hatch, lw=0, edgecolor="white")
        ax.set_yticks(range(len(verdicts)), [f"{f} / {d}" for f, d in verdicts])
        ax.invert_yaxis()
        ax.set(xscale="log", xlabel="k", ylabel="family / dataset")
        ax.grid(visible=False)
        seen = {v for table in verdicts.values() for v in table["verdict"]}
        handles = [
            Patch(facecolor=c, hatch=h, edgecolor="white", label=name)
            for name, (c, h) in _CLASSES.items()
            if name in seen
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=8)
        return figure


def _r2(verdicts: dict[Any, pd.DataFrame]) -> Figure:
    datasets, names = sorted({d for _, d in verdicts}), sorted({f for f, _ in verdicts})
    with style():
        figure, axes = panel_per(datasets, sharey=True)
        for ax, dataset in zip(axes, datasets, strict=True):
            for name in (f for f in names if (f, dataset) in verdicts):
                table, colour = verdicts[name, dataset], colour_and_marker(names.index(name))[0]
                ax.plot(table["k"], table["r2"], "-", lw=1.5, color=colour, label=name)
                ax.fill_between(table["k"], table["r2_low"], table["r2_high"], color=colour, alpha=0.15, lw=0)
            ax.set(xscale="log", xlabel="k", ylabel="R² of the fit on log axes")
            ax.legend(fontsize=8, loc="lower left")
        lowest = min(float(t["r2"].min()) for t in verdicts.values())
        axes[0].set_ylim(max(0.0, lowest - 0.02), 1.003)
        return figure
