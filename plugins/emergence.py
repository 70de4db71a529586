"""Sequences of successes: how often N tokens in a row have R <= k, whether independence predicts it, and why not.

Figure 7 and eqs. 6 to 8 of arXiv 2510.20387 take tokens for independent: p_{N,k} = RBP_k^N, so -ln p = N A S^-alpha.
Here the share of windows is measured, set beside a ladder of nulls (independent; hits anywhere in their document; a
first-order Markov chain), and alpha_N and C_N are fitted freely for every N before they are compared with alpha and
N C_1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from scipy import stats

from rbptrack.analysis import (
    COLOURS,
    Analyzer,
    Drawing,
    Family,
    Report,
    Runs,
    colour_and_marker,
    gradient,
    grid,
    grid_of,
    legend_of_all,
    log_axis,
    panel_per,
    read_families,
    short_number,
    style,
)
from rbptrack.stats import (
    Answers,
    FloatArray,
    Ladder,
    Segments,
    WindowCounts,
    count_windows,
    document_weights,
    fit_power_law,
    ladder,
    paired_covariance,
    read_answers,
)

NULLS = ("independent", "documents", "markov")


_CELL = {
    "dataset": "the dataset",
    "family": "the family; with what sets this part apart where its runs disagree",
    "size": "the size as published",
    "S": "non-embedding parameters",
    "k": "k of RBP_k",
}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "summary": {
        "dataset": "the dataset",
        "family": "the family",
        "size": "its largest size",
        "k": "k of RBP_k",
        "N": "tokens in a row",
        "p measured": "share of windows of N tokens that all have R <= k",
        "RBP_k^N": "what independent tokens would give",
        "N_eff": "ln p / ln RBP_k: how many independent tokens the window counts as",
        "eta": "d ln(-ln p) / d ln N between the length before and N: 1 where tokens are independent",
        "accounted for by": "the simplest null from which the measured share cannot be told",
    },
    "windows": {
        **_CELL,
        "N": "tokens in a row: consecutive scored tokens of one document",
        "p": "share of windows whose tokens all have R <= k; empty where refused",
        "p_low": "lower end of its interval, by document bootstrap",
        "p_high": "upper end",
        "rho": "p / RBP_k^N",
        "rho_low": "lower end of its interval, by document bootstrap",
        "rho_high": "upper end",
        "p_independent": "RBP_k^N",
        "p_documents": "p if each document's hits fell anywhere in it: a mixture over documents",
        "p_markov": "p of a first-order chain: RBP_k q^(N-1), q the share of hits after a hit",
        "n_eff": "ln p / ln RBP_k",
        "n_eff_low": "lower end of its interval, by document bootstrap",
        "n_eff_high": "upper end",
        "eta": "d ln(-ln p) / d ln N between the length before and N",
        "by_documents": "share of ln p - N ln RBP_k that the mixture over documents gives",
        "by_neighbours": "share of it that the chain gives",
        "runs": "distinct runs of at least N hits",
        "documents": "documents that have one",
        "verdict": "the simplest null whose distance to the measured ln p has an interval with 0 in it (N > 2)",
    },
    "laws": {
        "dataset": "the dataset",
        "family": "the family",
        "k": "k of RBP_k",
        "N": "tokens in a row",
        "sizes": "sizes with enough runs: the law is fitted to these",
        "alpha": "alpha_N of -ln p = C_N S^-alpha_N, fitted freely for this N",
        "alpha_low": "lower end of its interval (scatter between models and sampling error, t distribution)",
        "alpha_high": "upper end",
        "C": "C_N, for S in parameters",
        "r2": "of ln(-ln p)",
        "alpha_change": "alpha_N - alpha_1 over the same sizes, paired by document; independence says 0",
        "alpha_change_low": "lower end of its interval",
        "alpha_change_high": "upper end",
        "n_eff_per_n": "N_eff / N, geometric mean over these sizes: C_N / (N C_1); independence says 1",
        "n_eff_per_n_low": "lower end of its interval, by document bootstrap",
        "n_eff_per_n_high": "upper end",
    },
    "answers": {
        **_CELL,
        "answers": "documents whose whole answer (the dataset's last field) was scored",
        "mean_length": "tokens of an answer",
        "share": "share of answers whose every token has R <= k",
        "share_low": "lower end of Wilson's interval over documents",
        "share_high": "upper end",
        "rbp_of_answer": "RBP_k of the answers' tokens",
        "share_independent": "mean over answers of rbp_of_answer^length",
        "share_by_law": "the same with RBP_k from the law -ln RBP_k = A S^-alpha of the answers' tokens",
    },
}


@dataclass(frozen=True)
class Loaded:
    """What one run contributes: window counts of each k, and its answers where the dataset has several fields."""

    windows: tuple[WindowCounts, ...]
    answers: Answers | None

    def __add__(self, other: "Loaded") -> "Loaded":
        pooled = tuple(a + b for a, b in zip(self.windows, other.windows, strict=True))
        return Loaded(pooled, self.answers + other.answers if self.answers and other.answers else None)


@dataclass(frozen=True)
class Cell:
    """Windows of one size at one k.

    Attributes:
        runs: distinct runs of hits of at least N tokens, (lengths,).
        documents: documents that have one, (lengths,).
        point: ln p, measured and by each null, (1, lengths).
        draws: the same in each bootstrap replicate.
        enough: the N that are not refused, (lengths,).

    """

    runs: FloatArray
    documents: FloatArray
    point: Ladder
    draws: Ladder
    enough: FloatArray

    @property
    def log_p(self) -> FloatArray:
        """Measured ln p, NaN where refused, (lengths,)."""
        return np.where(self.enough, self.point.measured[0], np.nan)


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
        answers: list[dict[str, Any]] = []

        def load(family: Family, run_id: str) -> Loaded:
            table = runs.ranks(run_id)
            segments = Segments.of(table)
            windows = tuple(count_windows(table, segments, k=k, lengths=self._lengths) for k in self._ks(family))
            truncated = family.rows.iloc[0]["sequence"] == "truncate"
            cut = int(family.rows.iloc[0]["seq_len"]) if truncated else None
            return Loaded(windows, read_answers(table, self._ks(family), cut_at=cut))

        for family, loaded in read_families(runs, load, report.notes):
            if not self._ks(family):
                report.notes.append(f"{family}: every k is at least |V| = {family.vocab_size}: no window can fail.")
                continue
            weights = document_weights(len(loaded[0].windows[0].tokens), replicates=self.replicates)
            here: list[dict[str, Any]] = []
            fitted: list[dict[str, Any]] = []
            for number, k in enumerate(self._ks(family)):
                cells = [self._cell(one.windows[number], weights) for one in loaded]
                here += self._rows(family, k, cells)
                fitted += self._laws(family, k, cells)
            rows += here
            laws += fitted
            report.notes.append(f"{family}{self._sentences(family, here, fitted)}")
            if all(one.answers for one in loaded):
                found = self._answers(family, [one.answers for one in loaded if one.answers])
                answers += found
                report.notes.append(f"{family}, {_answer_sentence(family, found)}")
        if not rows:
            raise report.nothing_found("no measurement with windows")
        table = pd.DataFrame(rows)
        report.add_table("summary", _summary(table), COLUMNS["summary"])
        report.add_table("windows", table, COLUMNS["windows"])
        report.add_table("laws", laws, COLUMNS["laws"])
        report.add_table("answers", answers, COLUMNS["answers"])
        report.summary = "summary"
        tested = [row["verdict"] for row in rows if row["N"] > 2 and row["verdict"] not in ("", "too few runs")]
        if tested:
            failing, neither = sum(v != "independent" for v in tested), tested.count("more than either")
            report.headline = (
                f"independence fails in {failing} of {len(tested)} cases of model, dataset, k and N > 2; "
                f"in {neither} neither documents nor neighbours account for it"
            )
        self._metrics(report, rows, laws, answers)
        self._draw(report, table)
        return report

    @property
    def _lengths(self) -> list[int]:
        return sorted({1, *self.lengths})

    def _ks(self, family: Family) -> list[int]:
        return [k for k in sorted(self.ks) if k < family.vocab_size]

    def _cell(self, counts: WindowCounts, weights: FloatArray) -> Cell:
        runs, documents = counts.runs.sum(axis=0), (counts.runs > 0).sum(axis=0)
        enough = (runs >= self.least_runs) & (documents >= self.least_documents)
        return Cell(runs, documents, ladder(counts, np.ones((1, len(counts.tokens)))), ladder(counts, weights), enough)

    def _interval(self, draws: FloatArray) -> tuple[float, float]:
        """Percentiles over replicates; from -infinity where a replicate has no success at all."""
        tail = 50 * (1 - self.level)
        low, high = np.percentile(draws, [tail, 100 - tail], method="nearest")
        return float(low), float(high)

    def _rows(self, family: Family, k: int, cells: Sequence[Cell]) -> list[dict[str, Any]]:
        rows = []
        for s, size, cell in zip(family.s, family.labels, cells, strict=True):
            log_p = cell.log_p
            for j, n in enumerate(self._lengths):
                row: dict[str, Any] = {"dataset": family.dataset, "family": family.name, "size": size, "S": s}
                row |= {"k": k, "N": n, "p": np.exp(log_p[j])}
                row |= dict.fromkeys(("p_low", "p_high", "rho", "rho_low", "rho_high"), np.nan)
                row |= {f"p_{null}": float(np.exp(getattr(cell.point, null)[0, j])) for null in NULLS}
                row |= dict.fromkeys(("n_eff", "n_eff_low", "n_eff_high", "eta"), np.nan)
                row |= {"by_documents": np.nan, "by_neighbours": np.nan}
                row |= {"runs": int(cell.runs[j]), "documents": int(cell.documents[j]), "verdict": "too few runs"}
                if cell.enough[j]:
                    row |= self._measured(cell, j, n)
                rows.append(row)
        return rows

    def _measured(self, cell: Cell, j: int, n: int) -> dict[str, Any]:
        """What one N says: p, rho, N_eff and eta, and which null accounts for it."""
        point, draws = cell.point, cell.draws
        low, high = self._interval(draws.measured[:, j])
        excess = point.measured[0, j] - point.independent[0, j]
        rho_low, rho_high = self._interval(draws.measured[:, j] - draws.independent[:, j])
        found: dict[str, Any] = {"p_low": np.exp(low), "p_high": np.exp(high), "verdict": ""}
        found |= {"rho": np.exp(excess), "rho_low": np.exp(rho_low), "rho_high": np.exp(rho_high)}
        one = point.measured[0, 0]
        if one < 0:
            n_low, n_high = self._interval(draws.measured[:, j] / draws.measured[:, 0])
            found |= {"n_eff": point.measured[0, j] / one, "n_eff_low": n_low, "n_eff_high": n_high}
            if j > 0 and cell.enough[j - 1]:
                steps = np.log(point.measured[0, j] / point.measured[0, j - 1])
                found["eta"] = steps / np.log(n / self._lengths[j - 1])
        if n > 1 and excess != 0:
            found["by_documents"] = (point.documents[0, j] - point.independent[0, j]) / excess
            found["by_neighbours"] = (point.markov[0, j] - point.independent[0, j]) / excess
        if n > 2 and one < 0:  # a first-order chain is fitted to pairs and says nothing about them
            found["verdict"] = self._verdict(draws, j)
        return found

    def _verdict(self, draws: Ladder, j: int) -> str:
        """The simplest null from which the measured share cannot be told."""

        def consistent(null: FloatArray) -> bool:
            low, high = self._interval(draws.measured[:, j] - null[:, j])
            return low <= 0 <= high

        if consistent(draws.independent):
            return "independent"
        by = [word for word, null in (("documents", draws.documents), ("neighbours", draws.markov)) if consistent(null)]
        return " or ".join(by) or "more than either"

    def _laws(self, family: Family, k: int, cells: Sequence[Cell]) -> list[dict[str, Any]]:
        """-ln p = C_N S^-alpha_N, free for each N, and N_eff = (C_N/C_1) S^-(alpha_N - alpha_1) for the comparison."""
        rows = []
        y = -np.stack([c.log_p for c in cells])  # (m, lengths)
        draws = -np.stack([c.draws.measured for c in cells])  # (m, replicates, lengths)
        for j, n in enumerate(self._lengths):
            keep = (
                np.isfinite(y[:, j]) & (y[:, j] > 0) & (np.isfinite(draws[:, :, j]) & (draws[:, :, j] > 0)).all(axis=1)
            )
            keep &= (y[:, 0] > 0) & (draws[:, :, 0] > 0).all(axis=1)
            if keep.sum() < 3:
                continue
            s, logs = family.s[keep], np.log(draws[keep, :, j])
            law = fit_power_law(s, y[keep, j], covariance=paired_covariance(list(logs)), level=self.level)
            row: dict[str, Any] = {"dataset": family.dataset, "family": family.name, "k": k, "N": n}
            row |= {"sizes": int(keep.sum()), "alpha": law.alpha, "alpha_low": law.low, "alpha_high": law.high}
            row |= {"C": float(np.exp(law.log_a)), "r2": law.r2}
            row |= dict.fromkeys(("alpha_change", "alpha_change_low", "alpha_change_high"), np.nan)
            row |= dict.fromkeys(("n_eff_per_n", "n_eff_per_n_low", "n_eff_per_n_high"), np.nan)
            if n > 1:
                relative = logs - np.log(draws[keep, :, 0])
                ratio = y[keep, j] / y[keep, 0]
                change = fit_power_law(s, ratio, covariance=paired_covariance(list(relative)), level=self.level)
                row |= {"alpha_change": change.alpha, "alpha_change_low": change.low, "alpha_change_high": change.high}
                low, high = self._interval(relative.mean(axis=0))
                row["n_eff_per_n"] = float(np.exp(np.log(ratio).mean()) / n)
                row |= {"n_eff_per_n_low": np.exp(low) / n, "n_eff_per_n_high": np.exp(high) / n}
            rows.append(row)
        return rows

    def _answers(self, family: Family, answers: Sequence[Answers]) -> list[dict[str, Any]]:
        """The share of whole answers, beside RBP_k^length with their tokens' RBP_k, as measured and by its law."""
        rows = []
        for j, k in enumerate(self._ks(family)):
            with np.errstate(divide="ignore"):
                y = np.array([-np.log(a.hits[:, j].sum() / max(a.length.sum(), 1)) for a in answers])
            usable = len(y) >= 3 and bool((np.isfinite(y) & (y > 0)).all())
            law = fit_power_law(family.s, y, level=self.level) if usable else None
            for i, (s, size, a) in enumerate(zip(family.s, family.labels, answers, strict=True)):
                n = len(a.length)
                if n < self.least_runs:
                    continue
                share = float(a.whole[:, j].mean())
                low, high = wilson(share, n, level=self.level)
                row: dict[str, Any] = {"dataset": family.dataset, "family": family.name, "size": size, "S": s, "k": k}
                row |= {"answers": n, "mean_length": float(a.length.mean()), "share": share}
                row |= {"share_low": low, "share_high": high, "rbp_of_answer": float(np.exp(-y[i]))}
                row["share_independent"] = float(np.exp(-a.length * y[i]).mean())
                by_law = float(law.predict(s)) if law else np.nan
                row["share_by_law"] = float(np.exp(-a.length * by_law).mean())
                rows.append(row)
        return rows

    def _metrics(
        self,
        report: Report,
        rows: Sequence[dict[str, Any]],
        laws: Sequence[dict[str, Any]],
        answers: Sequence[dict[str, Any]],
    ) -> None:
        for row in laws:
            report.metrics[f"alpha_n{row['N']}/{row['family']}/{row['dataset']}/rbp_{row['k']}"] = row["alpha"]
        largest = {(r["family"], r["dataset"]): r["size"] for r in rows}  # rows ascend in S
        for row in rows:
            if row["size"] == largest[row["family"], row["dataset"]] and np.isfinite(row["n_eff"]) and row["N"] > 1:
                report.metrics[f"n_eff_{row['N']}/{row['family']}/{row['dataset']}/rbp_{row['k']}"] = row["n_eff"]
        for row in answers:
            report.metrics[f"answers/{row['family']}-{row['size']}/{row['dataset']}/rbp_{row['k']}"] = row["share"]

    def _sentences(self, family: Family, rows: Sequence[dict[str, Any]], laws: Sequence[dict[str, Any]]) -> str:
        """About the longest N that the largest model allows, at the smallest k that allows more than pairs."""
        size = family.labels[-1]
        mine = [r for r in rows if r["size"] == size and np.isfinite(r["n_eff"]) and r["N"] > 2]
        if not mine:
            if all(r["p"] == 1 for r in rows if r["size"] == size):
                return f": every token of {size} has R <= k, so no sequence can fail."
            return f": too few runs of more than 2 successes to compare {size} with independence."
        k = min(r["k"] for r in mine)
        row = [r for r in mine if r["k"] == k][-1]
        level = f"{self.level:.0%}"
        notes = [
            f", {size}, k = {k}: {row['N']} tokens in a row succeed with p = {row['p']:.2g} ({level} interval "
            f"{row['p_low']:.2g} to {row['p_high']:.2g}; {row['runs']} runs in {row['documents']} documents); "
            f"independence predicts {row['p_independent']:.2g}. {row['N']} tokens count as {row['n_eff']:.1f} "
            f"({row['n_eff_low']:.1f} to {row['n_eff_high']:.1f}) independent ones."
        ]
        if row["verdict"] == "independent":
            notes.append("No departure from independence is seen.")
        else:
            notes.append(
                f"Documents that differ account for {row['by_documents']:.0%} of the excess in ln p, dependence on the "
                f"token before for {row['by_neighbours']:.0%}; " + _VERDICTS[row["verdict"]]
            )
        m = len(family.s)
        longest = [r for r in laws if r["k"] == k and r["N"] > 1 and r["sizes"] >= max(4, m / 2)]
        if not longest:
            sizes = sum(bool(np.isfinite(r["n_eff"])) for r in rows if r["k"] == k and r["N"] == 2)
            text = f"Alpha_N for N > 1 is not identifiable: {sizes} of {m} sizes have enough runs of 2, 4 are needed."
            return " ".join([*notes, text])
        last = longest[-1]
        same = last["alpha_change_low"] <= 0 <= last["alpha_change_high"]
        notes.append(
            f"Over the sizes, at N = {last['N']}, alpha_N is {last['alpha']:.3f} ({last['alpha_low']:.3f} to "
            f"{last['alpha_high']:.3f}, {last['sizes']} of {m} sizes have enough runs); its change from N = 1, "
            f"{last['alpha_change']:+.3f} ({last['alpha_change_low']:+.3f} to {last['alpha_change_high']:+.3f}), "
            f"{'leaves alpha_N = alpha possible' if same else 'rejects alpha_N = alpha'}; -ln p is "
            f"{last['n_eff_per_n']:.2f} ({last['n_eff_per_n_low']:.2f} to {last['n_eff_per_n_high']:.2f}) times what "
            f"{last['N']} independent tokens would give."
        )
        return " ".join(notes)

    def _draw(self, report: Report, table: pd.DataFrame) -> None:
        for name in sorted(set(table["family"])):
            report.drawings[f"success_{name}"] = Drawing(
                self._success(table[table["family"] == name]),
                "Points: measured, with intervals over documents; dashes: RBP_k^N.",
            )
        report.drawings["ladder"] = Drawing(
            self._ladder(table[table["k"] == table["k"].min()]),
            "The largest size of each family, with intervals over documents.",
        )
        if "laws" in report.tables:
            report.drawings["alpha_against_n"] = Drawing(
                self._alpha(report.tables["laws"].frame),
                "Only N with enough runs at 4 sizes or more; independence predicts a level line.",
            )
        if "answers" in report.tables:
            report.drawings["answers"] = Drawing(self._answers_figure(report.tables["answers"].frame))

    def _success(self, table: pd.DataFrame) -> Figure:
        """The paper's figure 7: p against S, a row of panels per dataset, N as colour; dashes: RBP_k^N."""
        datasets, ks = sorted(set(table["dataset"])), sorted(set(table["k"]))
        colours = dict(zip(self._lengths, gradient(len(self._lengths)), strict=True))
        with style():
            figure, axes = grid(len(datasets), len(ks), legend=1.3)
            for (i, j), ax in np.ndenumerate(axes):
                rows = table[(table["dataset"] == datasets[i]) & (table["k"] == ks[j])]
                if not len(rows):
                    ax.remove()
                    continue
                floor = max(min(rows["p"].dropna(), default=1.0) / 5, 1e-7)
                for n in self._lengths:
                    one = rows[rows["N"] == n]
                    seen = one[one["p"].notna()]
                    if len(seen):
                        error = np.clip([seen["p"] - seen["p_low"], seen["p_high"] - seen["p"]], 0, None)
                        drawn = {"color": colours[n], "lw": 1, "ms": 3.5}
                        ax.errorbar(seen["S"], seen["p"], yerr=error, fmt="o-", label=f"N = {n}", **drawn)
                    shown = one[one["p_independent"] > floor / 3]
                    ax.plot(shown["S"], shown["p_independent"], "--", lw=1, color=colours[n])
                ax.plot([], [], "--", lw=1, color="0.3", label="RBP$_k^N$,\nindependent")
                log_axis(ax.xaxis, low=rows["S"].min() / 1.5, high=rows["S"].max() * 1.5)
                log_axis(ax.yaxis, low=floor, high=2.0)
                ax.set(title=f"{datasets[i]}, k = {ks[j]}", xlabel="S, non-embedding parameters")
                ax.set_ylabel("windows with all R ≤ k")
            legend_of_all(figure, legend=1.3)
            return figure

    def _ladder(self, table: pd.DataFrame) -> Figure:
        """-ln p against N for the largest size of each family: measured, and what each null predicts."""
        datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
        labels = {"independent": "independent", "documents": "hits anywhere in\ntheir document"}
        labels["markov"] = "first-order\nMarkov chain"
        with style():
            figure, axes = grid_of(datasets, names, legend=1.5)
            for (dataset, name), ax in axes.items():
                rows = table[(table["dataset"] == dataset) & (table["family"] == name)]
                rows = rows[rows["S"] == rows["S"].max()]
                seen = rows[rows["p"].notna() & (rows["p"] < 1)]
                if not len(seen):
                    ax.remove()
                    continue
                for number, null in enumerate(NULLS, start=1):
                    predicted = seen[seen[f"p_{null}"] > 0]
                    values = -np.log(predicted[f"p_{null}"])
                    ax.plot(predicted["N"], values, "--", lw=1.2, color=COLOURS[number], label=labels[null])
                y = -np.log(seen["p"])
                with np.errstate(divide="ignore"):
                    error = np.clip([y + np.log(seen["p_high"]), -np.log(seen["p_low"]) - y], 0, None)
                error = np.where(np.isfinite(error), error, 0)
                drawn = {"color": COLOURS[0], "lw": 1.2, "ms": 4, "capsize": 2}
                ax.errorbar(seen["N"], y, yerr=error, fmt="o-", label="measured", **drawn)
                highest = -np.log(seen["p_independent"].min())
                log_axis(ax.yaxis, low=y.min() / 1.3, high=max(highest, y.max()) * 1.3)
                _powers_of_two(ax)
                title = f"{name} {rows['size'].iloc[0]} on {dataset}, k = {rows['k'].iloc[0]}"
                ax.set(title=title, xlabel="N, tokens in a row", ylabel="−ln p")
            legend_of_all(figure, legend=1.5)
            return figure

    def _alpha(self, laws: pd.DataFrame) -> Figure:
        """alpha_N against N; independence predicts a level line."""
        datasets, names, ks = (sorted(set(laws[c])) for c in ("dataset", "family", "k"))
        with style():
            figure, axes = panel_per(datasets, legend=1.5)
            for ax, dataset in zip(axes, datasets, strict=True):
                for number, (name, k) in enumerate((n, k) for n in names for k in ks):
                    rows = laws[(laws["dataset"] == dataset) & (laws["family"] == name) & (laws["k"] == k)]
                    rows = rows[(rows["N"] == 1) | (rows["sizes"] >= 4)]  # three sizes leave no interval worth drawing
                    error = [rows["alpha"] - rows["alpha_low"], rows["alpha_high"] - rows["alpha"]]
                    shift = 1.03 ** (number - len(names) * len(ks) / 2)
                    colour, _ = colour_and_marker(number if len(names) == 1 else names.index(name))
                    _, marker = colour_and_marker(ks.index(k))
                    drawn = {"color": colour, "lw": 1, "ms": 4, "capsize": 2, "label": f"{name}, k = {k}"}
                    ax.errorbar(rows["N"] * shift, rows["alpha"], yerr=error, fmt=f"{marker}-", **drawn)
                _powers_of_two(ax)
                ax.set(xlabel="N, tokens in a row", ylabel="α$_N$ of −ln p = C$_N$ S$^{−α_N}$")
            legend_of_all(figure, legend=1.5)
            return figure

    def _answers_figure(self, table: pd.DataFrame) -> Figure:
        datasets, ks, names = (sorted(set(table[c])) for c in ("dataset", "k", "family"))
        with style():
            figure, axes = grid_of(datasets, names, legend=1.6)
            for (dataset, name), ax in axes.items():
                mine = table[(table["dataset"] == dataset) & (table["family"] == name)]
                if not len(mine):
                    ax.remove()
                    continue
                for number, k in enumerate(ks):
                    rows, (colour, _) = mine[mine["k"] == k], colour_and_marker(number)
                    error = np.clip([rows["share"] - rows["share_low"], rows["share_high"] - rows["share"]], 0, None)
                    drawn = {"color": colour, "ms": 4, "capsize": 2, "label": f"k = {k}"}
                    ax.errorbar(rows["S"], rows["share"], yerr=error, fmt="o", **drawn)
                    ax.plot(rows["S"], rows["share_by_law"], "-", lw=1, color=colour)
                    ax.plot(rows["S"], rows["share_independent"], ":", lw=1.4, color=colour)
                ax.plot([], [], "-", lw=1, color="0.3", label="RBP$_k^{length}$,\nRBP$_k$ by its law")
                ax.plot([], [], ":", lw=1.4, color="0.3", label="RBP$_k^{length}$,\nRBP$_k$ measured")
                ax.set(title=f"{name} on {dataset}", xlabel="S, non-embedding parameters", ylim=(-0.02, None))
                ax.set_ylabel("whole answers with R ≤ k")
                log_axis(ax.xaxis, low=mine["S"].min() / 1.5, high=mine["S"].max() * 1.5)
            legend_of_all(figure, legend=1.6)
            return figure


_VERDICTS = {
    "documents": "what remains after documents is within sampling error.",
    "neighbours": "what remains after the chain is within sampling error.",
    "documents or neighbours": "either alone is within sampling error of the measured share.",
    "more than either": "neither alone is enough.",
}


def wilson(share: float, n: int, *, level: float) -> tuple[float, float]:
    """Wilson's interval of a share of n independent documents."""
    z = float(stats.norm.ppf(0.5 + level / 2))
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def _answer_sentence(family: Family, rows: Sequence[dict[str, Any]]) -> str:
    largest = [r for r in rows if r["size"] == family.labels[-1]]
    if not largest:
        return "too few whole answers were scored to compare with the law."
    parts = [
        f"k = {r['k']}: {r['share']:.1%} ({r['share_low']:.1%} to {r['share_high']:.1%}), RBP_k^length says "
        f"{r['share_independent']:.1%}"
        for r in largest
    ]
    some = largest[0]
    return (
        f"{some['size']}: of {some['answers']} whole answers ({some['mean_length']:.1f} tokens on average) all tokens "
        f"have R <= k for {'; '.join(parts)}."
    )


def _powers_of_two(ax: Any) -> None:
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(FuncFormatter(short_number))


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """The table for the terminal: the largest model of each family at the smallest k, rounded."""
    top = table["S"] == table.groupby(["family", "dataset"])["S"].transform("max")
    shown = table[top & (table["k"] == table["k"].min())]
    return pd.DataFrame(
        {
            "dataset": shown["dataset"],
            "family": shown["family"],
            "size": shown["size"],
            "k": [str(k) for k in shown["k"]],
            "N": [str(n) for n in shown["N"]],
            "p measured": [f"{v:.2e}" if v == v else "" for v in shown["p"]],
            "RBP_k^N": [f"{v:.2e}" for v in shown["p_independent"]],
            "N_eff": [f"{v:.2f}" if v == v else "" for v in shown["n_eff"]],
            "eta": [f"{v:.2f}" if v == v else "" for v in shown["eta"]],
            "accounted for by": shown["verdict"],
        }
    )
