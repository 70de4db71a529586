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

from rbptrack.analysis import (
    COLOURS,
    Analyzer,
    Curve,
    DocumentCounts,
    Drawing,
    Family,
    Report,
    Runs,
    curve_panels,
    draw_verdicts,
    k_ranges,
    law_cells,
    log_axis,
    log_grid,
    rbp_name,
    read_families,
    shared_columns,
    spread,
)
from rbptrack.stats import (
    LawValues,
    PowerLawFit,
    Surface,
    alphas_without_documents,
    design_effect,
    expected_r2,
    fit_surface,
    largest_k_without_gap,
    law_values,
)

HOLDS, NOISE, DEVIATES, INVERSE = "law visible", "noise-limited", "systematic deviation", "inverse"
_LEAST_SIZES = 5
_FILLS = {
    HOLDS: (COLOURS[0], ""),
    NOISE: ("#d9d9d9", "..."),
    DEVIATES: (COLOURS[1], "///"),
    INVERSE: (COLOURS[3], "xxx"),
}
_EACH_K = "Verdict on the law in size at each k, from k = 1 to |V|."
_SIGNAL = "|α| over its standard error, against k. The law is visible above {snr:g} (dashed)."
_R2 = (
    "Lines: R² observed; bands: R² that noise and the usual scatter between models would leave if the law were true "
    "({level:z.0%})."
)
KEY = shared_columns("dataset", "family", "k")
COLUMNS = {
    "summary": shared_columns("dataset", "family")
    | {
        "k*": "largest k with alpha at least 2 standard errors from 0 at it and every smaller k",
        "|V|": "smallest vocabulary of the family",
        "misses": "tokens of the largest model with rank above k*",
        "beyond k*": "what most k beyond it are",
        "p": "of one lack-of-fit test over all k: no k departs from a power law (needs 5 sizes)",
    },
    "verdicts": KEY
    | {"verdict": "law visible, noise-limited, systematic deviation or inverse"}
    | shared_columns("alpha", "alpha_low", "alpha_high")
    | {
        "snr": "|alpha| / its standard error",
        "misses": "tokens with rank above k, fewest of all sizes",
        "design_effect": "variance of RBP_k over documents / binomial variance, largest model",
        "departure": "largest departure from a straight line over the sizes, in ln y; above 0: the law flattens",
        "departure_low": "lower end of a band that holds the departures of all k together",
        "departure_high": "upper end",
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
        "token": "the right token",
        "id": "its id in the vocabulary",
        "misses": "times its rank was above k, largest model",
        "share": "of all misses",
        "occurrences": "times it was the right token",
    },
}


@dataclass(frozen=True)
class Judged:
    """What was found of one family: the verdict of each k, the largest visible k, and where the misses are."""

    family: Family
    table: pd.DataFrame
    p: float
    k_star: int
    documents: list[dict[str, Any]]
    tokens: list[dict[str, Any]]


@dataclass(kw_only=True)
class NoiseFloor(Analyzer):
    """For which k the law holds, and where noise, a deviation or an inverse trend ends it.

    Each k below |V| is one of: *inverse* (alpha's interval lies below 0), *systematic deviation* (the departure from a
    line is not 0, corrected for the number of k: the joint surface of all sizes and k, whose scatter between models is
    proportional to alpha), *noise-limited* (alpha is not 2 standard errors from 0, or too few misses are left to tell),
    *law visible*.

    Attributes:
        per_decade: how many k per decade are looked at, up to |V|.
        snr: alpha over its standard error, from which a law is visible.
        least_misses: fewest tokens with rank above k, in any size, from which anything is fitted.
        top: how many documents and tokens to name.
        level: nominal coverage of the intervals and bands.
        replicates: document bootstraps, and simulations of R^2.

    """

    name: ClassVar[str] = "noise_floor"
    per_decade: int = 12
    snr: float = 2.0
    least_misses: int = 10
    top: int = 5
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Judge every k of every family x dataset that has at least 3 sizes."""
        report = Report(summary="summary")
        judged: list[Judged] = []

        def load(family: Family, run_id: str) -> DocumentCounts:
            family.require_ranks()
            return runs.document_counts(run_id, log_grid(family.vocab_size, per_decade=self.per_decade).tolist()[:-1])

        for family, counts in read_families(runs, load, report.notes, least=3):
            table, p = self._verdicts(family, counts)
            focus = _focus(table)
            documents = list(self._documents(family, counts, focus))
            tokens = list(self._tokens(family, runs, focus))
            visible = (table["snr"] >= self.snr) & (table["alpha"] > 0)
            star = largest_k_without_gap(table["k"], visible)
            judged.append(Judged(family, table, p, star, documents, tokens))
        if not judged:
            raise report.nothing_found("no measurement to judge")
        where = "Where the misses (rank above k) are, at the first k at which no law holds, or else at the largest k."
        report.add_table("summary", map(_summary_row, judged), COLUMNS["summary"])
        report.add_table("verdicts", pd.concat([j.table for j in judged], ignore_index=True), COLUMNS["verdicts"])
        report.add_table("documents", (r for j in judged for r in j.documents), COLUMNS["documents"], caption=where)
        report.add_table("tokens", (r for j in judged for r in j.tokens), COLUMNS["tokens"])
        report.metrics = {f"k_star/{j.family.path}": float(j.k_star) for j in judged}
        stars, names = [j.k_star for j in judged], [str(j.family) for j in judged]
        report.headline = (
            f"alpha is distinguishable from 0 at every k up to k*, {spread(stars, ',.0f', names)}, where |V| is "
            f"{spread([j.family.vocab_size for j in judged], ',.0f', names)}"
        )
        report.notes += map(self._sentence, judged)
        strips = {f"{j.family.name} / {j.family.dataset}": (j.table["k"], list(j.table["verdict"])) for j in judged}
        report.drawings = {
            "verdict_of_each_k": Drawing(draw_verdicts(strips, _FILLS, ylabel="family / dataset"), _EACH_K),
            "signal_to_noise": Drawing(self._draw_signal(judged), _SIGNAL.format(snr=self.snr)),
            "r2_observed_and_expected": Drawing(_draw_r2(judged), _R2.format(level=self.level)),
        }
        return report

    def _verdicts(self, family: Family, counts: list[DocumentCounts]) -> tuple[pd.DataFrame, float]:
        """The table of verdicts, a row for each k of the counts, and p of the one lack-of-fit test."""
        ks, found = counts[0].ks, law_values(counts, replicates=self.replicates)
        tokens = np.array([c.tokens.sum() for c in counts], dtype=np.float64)  # (m,)
        misses = tokens[:, None] - np.stack([c.hits.sum(axis=0) for c in counts])  # (m, ks)
        enough = [k for k, fewest in zip(ks, misses.min(axis=0), strict=True) if fewest >= self.least_misses]
        laws = {k: law for k in enough if (law := found.fit(rbp_name(k), family.s, level=self.level))}
        surface = self._surface(found, family, list(laws))
        rng = np.random.default_rng(0)
        rows = []
        for i, k in enumerate(ks):
            y, draws = found.of(rbp_name(k))
            row = family.keys | {"k": k, "misses": int(misses[:, i].min())}
            row["design_effect"] = design_effect(float(np.exp(-y[-1])), np.exp(-draws[-1]), tokens=tokens[-1])
            rows.append(row | (self._judge(laws[k], k, surface, rng) if k in laws else {"verdict": NOISE}))
        return pd.DataFrame(rows, columns=list(COLUMNS["verdicts"])), surface.p if surface else float("nan")

    def _surface(self, found: LawValues, family: Family, ks: list[int]) -> Surface | None:
        """All k together; None with fewer than 5 sizes, which cannot tell a bend from scatter."""
        if len(family.s) < _LEAST_SIZES or not ks:
            return None
        return fit_surface(family.s, ks, *found.of_ks(ks), level=self.level)

    def _judge(self, law: PowerLawFit, k: int, surface: Surface | None, rng: np.random.Generator) -> dict[str, Any]:
        """Verdict and numbers of one k."""
        at = int(np.searchsorted(surface.ks, k)) if surface else 0
        tau, nothing = (float(surface.tau[at]), 0.0) if surface else (law.tau, float("nan"))
        ends = [float(edge[at]) for edge in surface.bend_band] if surface else [nothing, nothing]
        noise = law.covariance + tau**2 * np.eye(law.points)
        low, middle, high = expected_r2(law, noise, replicates=self.replicates, level=self.level, rng=rng)
        snr = abs(law.alpha) / law.se if law.se > 0 else float("inf")
        if law.high < 0:
            verdict = INVERSE
        elif ends[0] > 0 or ends[1] < 0:
            verdict = DEVIATES
        else:
            verdict = HOLDS if snr >= self.snr and law.alpha > 0 else NOISE
        cells = {"verdict": verdict, "snr": snr, "departure": float(surface.bend[at]) if surface else nothing}
        cells |= {"departure_low": ends[0], "departure_high": ends[1]}
        return law_cells(law) | cells | {"r2_expected": middle, "r2_low": low, "r2_high": high}

    def _documents(self, family: Family, counts: list[DocumentCounts], k: int) -> Iterator[dict[str, Any]]:
        """The documents that hold most of the largest model's misses, and what each does to alpha."""
        i = counts[0].ks.index(k)
        tokens = np.stack([c.tokens for c in counts]).astype(np.float64)  # (m, documents)
        hits = np.stack([c.hits[:, i] for c in counts]).astype(np.float64)
        misses = tokens[-1] - hits[-1]
        alpha, *without = alphas_without_documents(family.s, tokens, hits)
        for d in np.argsort(-misses, kind="stable")[: self.top]:
            if misses[d] > 0:
                row = family.keys | {"k": k, "document": int(counts[0].document[d]), "tokens": int(tokens[-1, d])}
                row |= {"misses": int(misses[d]), "share": float(misses[d] / misses.sum())}
                yield row | {"alpha_without": float(without[d]), "alpha": float(alpha)}

    def _tokens(self, family: Family, runs: Runs, k: int) -> Iterator[dict[str, Any]]:
        """The right tokens that the largest model most often ranks above k."""
        run_id, occurrences, misses = family.run_ids[-1][0], pd.Series(dtype=int), pd.Series(dtype=int)
        for piece in runs.rank_pieces(run_id):
            token = pd.Series(piece.column("token"))
            occurrences = occurrences.add(token.value_counts(), fill_value=0)
            misses = misses.add(token[piece.rank > k].value_counts(), fill_value=0)
        most = misses.sort_index().sort_values(ascending=False, kind="stable")[: self.top]
        for i, text in zip(most.index.tolist(), runs.token_texts(run_id, most.index), strict=True):
            row = family.keys | {"k": k, "token": text, "id": int(i), "misses": int(most[i])}
            yield row | {"share": float(most[i] / misses.sum()), "occurrences": int(occurrences[i])}

    def _sentence(self, judged: Judged) -> str:
        family, table, star = judged.family, judged.table, judged.k_star
        beyond = table[table["k"] > star]
        text = f"{family}: alpha is at least {self.snr:g} standard errors above 0 at every k up to {star:,}"
        text += f" (|V| = {family.vocab_size:,})."
        text = text if star else f"{family}: alpha is not {self.snr:g} standard errors above 0 even at k = 1."
        deviating = table[(table["k"] <= star) & (table["verdict"] != HOLDS)]
        if len(deviating):
            where = k_ranges(deviating["k"], table["k"])
            text += f" The points depart from a straight line by more than noise at {where}."
        if len(beyond):
            verdicts = beyond.groupby("verdict", sort=False)["k"]
            parts = [f"{verdict} at {k_ranges(ks, table['k'])}" for verdict, ks in verdicts]
            fewest = int(beyond["misses"].iloc[0])
            text += f" Beyond it, with at most {fewest:,} misses in the best model, the law is {'; '.join(parts)}."
        if np.isfinite(judged.p):
            said = "rejects a power law at every k" if judged.p < 0.05 else "finds no departure from a power law"
            text += f" One test over all k together {said} (p = {judged.p:.2g})."
        else:
            text += (
                f" Whether the law bends is undecided: that needs {_LEAST_SIZES} sizes, and there are {len(family.s)}."
            )
        if judged.documents and judged.documents[0]["share"] > 0.1:
            lead = judged.documents[0]
            text += f" At k = {lead['k']:,}, document {lead['document']} alone has {lead['share']:z.0%} of the misses."
        return text

    def _draw_signal(self, judged: list[Judged]) -> Figure:
        curves = [Curve(j.family.dataset, j.family.name, j.family.name, j.table["k"], j.table["snr"]) for j in judged]
        highest = max(float(j.table["snr"].replace(np.inf, np.nan).max()) for j in judged)
        figure, axes = curve_panels(curves, xlabel="k", ylabel="|α| / its standard error", sharey=True)
        for ax in axes:
            ax.axhline(self.snr, ls="--", lw=1, color="#57606a")
        log_axis(axes[0].yaxis, low=0.7, high=max(highest, self.snr) * 1.6)
        return figure


def _focus(table: pd.DataFrame) -> int:
    """The k to examine: the first at which no law holds though there are misses, else the last with misses."""
    missed = table[table["misses"] > 0]
    broken = missed[missed["verdict"] != HOLDS]
    return int(broken["k"].iloc[0] if len(broken) else missed["k"].iloc[-1])


def _summary_row(judged: Judged) -> dict[str, Any]:
    table, star = judged.table, judged.k_star
    beyond = table[table["k"] > star]["verdict"]
    at = table[table["k"] == star]["misses"]
    row = judged.family.keys | {"k*": star, "|V|": judged.family.vocab_size, "p": judged.p}
    row["misses"] = int(at.iloc[0]) if len(at) else 0
    return row | {"beyond k*": str(beyond.mode().iloc[0]) if len(beyond) else ""}


def _draw_r2(judged: list[Judged]) -> Figure:
    curves = []
    for family, table in ((j.family, j.table) for j in judged):
        edges = table["r2_low"], table["r2_high"]
        curves.append(Curve(family.dataset, family.name, family.name, table["k"], table["r2"], *edges))
    figure, axes = curve_panels(curves, xlabel="k", ylabel="R² of the fit on log axes", sharey=True)
    axes[0].set_ylim(max(0.0, min(float(j.table["r2"].min()) for j in judged) - 0.02), 1.003)
    return figure
