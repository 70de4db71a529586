"""Sequences of successes: how often N tokens in a row have R <= k, whether independence predicts it, and why not.

Figure 7 and eqs. 6 to 8 of arXiv 2510.20387 take tokens for independent: p_{N,k} = RBP_k^N, so -ln p = N A S^-alpha.
Here the share of windows is measured, set beside a ladder of nulls (independent; a share of hits that drifts with the
position; hits anywhere in their document; a first-order Markov chain), and alpha_N and C_N are fitted freely for every
N before they are compared with alpha and N C_1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import (
    COLOURS,
    KEYS,
    Analyzer,
    Drawing,
    Family,
    Report,
    Runs,
    colour_and_marker,
    error_bars,
    gradient,
    grid,
    grid_of,
    interval_columns,
    legend_of_all,
    length_axis,
    log_axis,
    panel_per,
    read_families,
    size_axis,
    some_of,
    style,
)
from rbptrack.stats import (
    PositionBins,
    SuccessByLength,
    WindowCounts,
    count_windows,
    document_weights,
    fit_length_laws,
    success_by_length,
)

NULLS = {
    "independent": "independent",
    "position": "share of hits by\nposition",
    "documents": "hits anywhere in\ntheir document",
    "markov": "first-order\nMarkov chain",
}
BOOTSTRAP, REML = "by document bootstrap", "scatter between models and sampling error, t distribution"
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "summary": {
        "dataset": KEYS["dataset"],
        "family": KEYS["family"],
        "size": "its largest size",
        "k": "k of RBP_k",
        "N": "tokens in a row",
        "p measured": "share of windows of N tokens that all have R <= k",
        "RBP_k^N": "what independent tokens would give",
        "N_eff": "ln p / ln RBP_k: how many independent tokens the window counts as",
        "eta": "d ln(-ln p) / d ln N between the length before and N: 1 where tokens are independent",
        "explained by": "the simplest process that explains the measured share within its sampling error",
    },
    "windows": {
        **KEYS,
        "k": "k of RBP_k",
        "N": "tokens in a row: consecutive scored tokens of one document",
        **interval_columns("p", "share of windows whose tokens all have R <= k; empty where refused", BOOTSTRAP),
        **interval_columns("rho", "p / RBP_k^N", BOOTSTRAP),
        "p_independent": "RBP_k^N",
        "p_position": "p of independent hits whose share drifts with the position in the document",
        "p_documents": "p if each document's hits fell anywhere in it: a mixture over documents",
        "p_markov": "p of a first-order chain: RBP_k q^(N-1), q the share of hits after a hit",
        **interval_columns("n_eff", "ln p / ln RBP_k", BOOTSTRAP),
        "eta": "d ln(-ln p) / d ln N between the length before and N",
        "by_position": "share of ln p - N ln RBP_k that the drift with position gives",
        "by_documents": "share of it that the mixture over documents gives",
        "by_neighbours": "share of it that the chain gives",
        "runs": "distinct runs of at least N hits",
        "documents": "documents that have one",
        "verdict": "nulls whose distance to the measured ln p has 0 in its interval, at all N > 2 at once",
    },
    "laws": {
        "dataset": KEYS["dataset"],
        "family": KEYS["family"],
        "k": "k of RBP_k",
        "N": "tokens in a row",
        "sizes": "sizes with enough runs: the law is fitted to these",
        **interval_columns("alpha", "alpha_N of -ln p = C_N S^-alpha_N, fitted freely for this N", REML),
        "C": "C_N, for S in parameters",
        "r2": "of ln(-ln p)",
        **interval_columns("alpha_change", "alpha_N - alpha_1 over the same sizes, paired; independence says 0", REML),
        **interval_columns("n_eff_per_n", "N_eff / N, geometric mean over sizes; independence says 1", BOOTSTRAP),
    },
}
Windows = tuple[WindowCounts, ...]


@dataclass(frozen=True)
class Loaded:
    """What one run contributes: the window counts of each k; those of several runs of a size add up."""

    by_k: Windows

    def __add__(self, other: "Loaded") -> "Loaded":
        return Loaded(tuple(a + b for a, b in zip(self.by_k, other.by_k, strict=True)))


@dataclass(kw_only=True)
class Emergence(Analyzer):
    """Sequences of successes: RBP_k^N beside the measured share of windows, and why they differ.

    Attributes:
        ks: the k.
        lengths: the window lengths N; 1 is always among them.
        least_runs: an N is refused where fewer distinct runs of hits are that long,
        least_documents: or come from fewer documents.
        level: nominal coverage of the intervals.
        replicates: document bootstraps, drawn jointly for all sizes of a family.

    """

    name: ClassVar[str] = "emergence"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    lengths: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16, 32, 64])
    least_runs: int = 10
    least_documents: int = 5
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Count windows of every measurement; laws need at least 3 sizes."""
        report = Report()
        rows: list[dict[str, Any]] = []
        laws: list[dict[str, Any]] = []
        lengths = sorted({1, *self.lengths})

        bins: dict[str, PositionBins] = {}  # by family: all of its models read the same text

        def load(family: Family, run_id: str) -> Loaded:
            if str(family) not in bins:
                bins[str(family)] = PositionBins.of(lambda: runs.rank_pieces(run_id), lengths)
            at, ks = bins[str(family)], self._ks(family)
            parts = [count_windows(piece, at, ks=ks, lengths=lengths) for piece in runs.rank_pieces(run_id)]
            return Loaded(tuple(map(WindowCounts.concatenate, zip(*parts, strict=True))))

        for family, loaded in read_families(runs, load, report.notes):
            if not self._ks(family):
                report.notes.append(f"{family}: every k is at least |V| = {family.vocab_size}, so no window can fail.")
                continue
            here: list[dict[str, Any]] = []
            fitted: list[dict[str, Any]] = []
            for number, k in enumerate(self._ks(family)):
                sizes = [self._success(one.by_k[number]) for one in loaded]
                for keys, one in zip(family.size_keys, sizes, strict=True):
                    here += [keys | {"k": k} | one.columns(j) for j in range(len(lengths))]
                of_k = fit_length_laws(family.s, sizes, level=self.level)
                fitted += [family.keys | {"k": k} | law.columns() for law in of_k]
            rows += here
            laws += fitted
            report.notes.append(f"{family}{self._sentences(family, here, fitted)}")
        if not rows:
            raise report.nothing_found("no measurement with windows")
        self._write(report, rows, laws)
        return report

    def _ks(self, family: Family) -> list[int]:
        return [k for k in sorted(self.ks) if k < family.vocab_size]

    def _success(self, counts: WindowCounts) -> SuccessByLength:
        weights = document_weights(len(counts.tokens), replicates=self.replicates)
        least = {"least_runs": self.least_runs, "least_documents": self.least_documents}
        return success_by_length(counts, weights, **least, level=self.level)

    def _write(self, report: Report, rows: list[dict[str, Any]], laws: list[dict[str, Any]]) -> None:
        """Tables, metrics, headline and figures."""
        table = pd.DataFrame(rows)
        report.add_table("summary", _summary(table), COLUMNS["summary"])
        report.add_table("windows", table, COLUMNS["windows"])
        report.add_table("laws", laws, COLUMNS["laws"])
        report.summary = "summary"
        tested = [row["verdict"] for row in rows if row["N"] > 2 and row["verdict"] not in ("", "too few runs")]
        if tested:
            failing, more = sum(v != "independent" for v in tested), tested.count("more than any one")
            report.headline = (
                f"successes in a row are not independent in {some_of(failing, len(tested), 'case')} (each a model, "
                f"dataset, k and N > 2); in {more:,} of them neither position, document nor the token before is enough "
                "to explain it"
            )
        report.add_metrics("alpha_n{N}/{family}/{dataset}/rbp_{k}", laws, "alpha")
        largest = {(r["family"], r["dataset"]): r["size"] for r in rows}  # rows ascend in S
        of_largest = [r for r in rows if r["size"] == largest[r["family"], r["dataset"]] and r["N"] > 1]
        report.add_metrics("n_eff_{N}/{family}/{dataset}/rbp_{k}", of_largest, "n_eff")
        for name in sorted(set(table["family"])):
            caption = "Points: share of windows of N tokens that all have R <= k. Dashes: RBP_k^N, as if independent."
            report.drawings[f"success_{name}"] = Drawing(_draw_success(table[table["family"] == name]), caption)
        caption = (
            "Largest model of each family. Solid: measured, with intervals. Dashed: what each simpler process predicts."
        )
        report.drawings["ladder"] = Drawing(_draw_ladder(table[table["k"] == table["k"].min()]), caption)
        if laws:
            caption = "Exponent at each N with enough runs at 4 sizes or more. Independence predicts a horizontal line."
            report.drawings["alpha_against_n"] = Drawing(_draw_alpha(report.tables["laws"].frame), caption)

    def _sentences(self, family: Family, rows: Sequence[dict[str, Any]], laws: Sequence[dict[str, Any]]) -> str:
        """About the longest N that the largest model allows, at the smallest k that allows more than pairs."""
        size = family.labels[-1]
        mine = [r for r in rows if r["size"] == size and np.isfinite(r.get("n_eff", np.nan)) and r["N"] > 2]
        if not mine:
            if all(r["p"] == 1 for r in rows if r["size"] == size):
                return f": every token of {size} has R <= k, so no sequence can fail."
            return f": too few runs of more than 2 successes to compare {size} with independence."
        row = [r for r in mine if r["k"] == min(r["k"] for r in mine)][-1]
        text = (
            f", {size}, k = {row['k']}: all {row['N']} tokens of a window have R <= k in a share p = {row['p']:.2g} of "
            f"windows ({self.level:z.0%} interval {row['p_low']:.2g} to {row['p_high']:.2g}; {row['runs']} runs in "
            f"{row['documents']} documents), where independence predicts {row['p_independent']:.2g}. The {row['N']} "
            f"tokens count as {row['n_eff']:.1f} ({row['n_eff_low']:.1f} to {row['n_eff_high']:.1f}) independent ones."
        )
        if row["verdict"] == "independent":
            return f"{text} The data show no departure from independence. {_about_laws(family, row['k'], rows, laws)}"
        return (
            f"{text} Of the excess in ln p, each alone explains: drift with position {row['by_position']:z.0%}, "
            f"differences between documents {row['by_documents']:z.0%}, dependence on the token before "
            f"{row['by_neighbours']:z.0%}; "
            f"{_about_verdict(row['verdict'])} "
            f"{_about_laws(family, row['k'], rows, laws)}"
        )


def _about_verdict(verdict: str) -> str:
    if verdict == "more than any one":
        return "none of them alone explains all of it."
    return f"what {verdict} leaves unexplained is within sampling error."


def _about_laws(family: Family, k: int, rows: Sequence[dict[str, Any]], laws: Sequence[dict[str, Any]]) -> str:
    """Whether alpha_N is alpha, and how large C_N is, at the longest N that half of the sizes have."""
    m = len(family.s)
    longest = [r for r in laws if r["k"] == k and r["N"] > 1 and r["sizes"] >= max(4, m / 2)]
    if not longest:
        sizes = sum(np.isfinite(r.get("n_eff", np.nan)) for r in rows if r["k"] == k and r["N"] == 2)
        return (
            f"Alpha_N for N > 1 is not identifiable: {sizes} of {m} sizes have enough runs of 2 tokens, and it needs 4."
        )
    last = longest[-1]
    same = last["alpha_change_low"] <= 0 <= last["alpha_change_high"]
    return (
        f"Fitted over the sizes at N = {last['N']}, alpha_N is {last['alpha']:.3f} ({last['alpha_low']:.3f} to "
        f"{last['alpha_high']:.3f}, {last['sizes']} of {m} sizes have enough runs); its change from N = 1, "
        f"{last['alpha_change']:+z.3f} ({last['alpha_change_low']:+z.3f} to {last['alpha_change_high']:+z.3f}), "
        f"{'is compatible with alpha_N = alpha' if same else 'rejects alpha_N = alpha'}; -ln p is "
        f"{last['n_eff_per_n']:.2f} ({last['n_eff_per_n_low']:.2f} to {last['n_eff_per_n_high']:.2f}) times what "
        f"{last['N']} independent tokens would give."
    )


def _draw_success(table: pd.DataFrame) -> Figure:
    """The paper's figure 7: p against S, a row of panels per dataset, N as colour; dashes: RBP_k^N."""
    datasets, ks, lengths = (sorted(set(table[column])) for column in ("dataset", "k", "N"))
    colours = dict(zip(lengths, gradient(len(lengths)), strict=True))
    with style():
        figure, axes = grid(len(datasets), len(ks), legend=1.3)
        for (i, j), ax in np.ndenumerate(axes):
            rows = table[(table["dataset"] == datasets[i]) & (table["k"] == ks[j])]
            if not len(rows):
                ax.remove()
                continue
            floor = max(min(rows["p"].dropna(), default=1.0) / 5, 1e-7)
            for n, one in rows.groupby("N"):
                seen, shown = one[one["p"].notna()], one[one["p_independent"] > floor / 3]
                drawn = {"fmt": "o-", "lw": 1, "ms": 3.5, "capsize": 0, "color": colours[n], "label": f"N = {n}"}
                if len(seen):
                    error_bars(ax, seen["S"], seen["p"], seen["p_low"], seen["p_high"], **drawn)
                ax.plot(shown["S"], shown["p_independent"], "--", lw=1, color=colours[n])
            ax.plot([], [], "--", lw=1, color="0.3", label="RBP$_k^N$,\nindependent")
            size_axis(ax, rows["S"])
            log_axis(ax.yaxis, low=floor, high=2.0)
            ax.set(title=f"{datasets[i]}, k = {ks[j]}", ylabel="windows with all R ≤ k")
        legend_of_all(figure, legend=1.3)
        return figure


def _draw_ladder(table: pd.DataFrame) -> Figure:
    """-ln p against N for the largest size of each family: measured, and what each null predicts."""
    datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
    with style():
        figure, axes = grid_of(datasets, names, legend=1.5)
        for (dataset, name), ax in axes.items():
            rows = table[(table["dataset"] == dataset) & (table["family"] == name)]
            seen = rows[(rows["S"] == rows["S"].max()) & rows["p"].notna() & (rows["p"] < 1)]
            if not len(seen):
                ax.remove()
                continue
            for number, (null, label) in enumerate(NULLS.items(), start=1):
                predicted = seen[seen[f"p_{null}"] > 0]
                y = -np.log(predicted[f"p_{null}"])
                ax.plot(predicted["N"], y, "--", lw=1.2, color=COLOURS[number], label=label)
            y, low, high = (-np.log(seen[column]) for column in ("p", "p_high", "p_low"))
            error_bars(ax, seen["N"], y, low, high, fmt="o-", color=COLOURS[0], lw=1.2, ms=4, label="measured")
            log_axis(ax.yaxis, low=y.min() / 1.3, high=max(-np.log(seen["p_independent"].min()), y.max()) * 1.3)
            length_axis(ax)
            ax.set(title=f"{name} {seen['size'].iloc[0]} on {dataset}, k = {seen['k'].iloc[0]}", ylabel="−ln p")
        legend_of_all(figure, legend=1.5)
        return figure


def _draw_alpha(laws: pd.DataFrame) -> Figure:
    """alpha_N against N; independence predicts a level line."""
    datasets, names, ks = (sorted(set(laws[column])) for column in ("dataset", "family", "k"))
    several = [(name, k) for name in names for k in ks]
    with style():
        figure, axes = panel_per(datasets, legend=1.5)
        for ax, dataset in zip(axes, datasets, strict=True):
            for number, (name, k) in enumerate(several):
                rows = laws[(laws["dataset"] == dataset) & (laws["family"] == name) & (laws["k"] == k)]
                rows = rows[(rows["N"] == 1) | (rows["sizes"] >= 4)]  # three sizes leave no interval worth drawing
                colour, _ = colour_and_marker(number if len(names) == 1 else names.index(name))
                _, marker = colour_and_marker(ks.index(k))
                shifted = rows["N"] * 1.03 ** (number - len(several) / 2)
                drawn = {"fmt": f"{marker}-", "color": colour, "lw": 1, "ms": 4, "label": f"{name}, k = {k}"}
                error_bars(ax, shifted, rows["alpha"], rows["alpha_low"], rows["alpha_high"], **drawn)
            length_axis(ax)
            ax.set_ylabel("α$_N$ of −ln p = C$_N$ S$^{−α_N}$")
        legend_of_all(figure, legend=1.5)
        return figure


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """The table for the terminal: the largest model of each family at the smallest k, rounded."""
    top = table["S"] == table.groupby(["family", "dataset"])["S"].transform("max")
    shown = table[top & (table["k"] == table["k"].min())]
    return pd.DataFrame(
        {
            **shown[["dataset", "family", "size"]],
            "k": [str(k) for k in shown["k"]],
            "N": [str(n) for n in shown["N"]],
            "p measured": [f"{v:.2e}" if v == v else "" for v in shown["p"]],
            "RBP_k^N": [f"{v:.2e}" for v in shown["p_independent"]],
            "N_eff": [f"{v:.2f}" if v == v else "" for v in shown["n_eff"]],
            "eta": [f"{v:.2f}" if v == v else "" for v in shown["eta"]],
            "explained by": shown["verdict"],
        }
    )
