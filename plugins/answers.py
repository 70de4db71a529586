"""Whole answers: how often every token of an answer has R <= k, and whether RBP_k and its law predict it.

Datasets of several fields (question and answer, prompt and solution) have one: the tokens of the last field. For
independent tokens the share is the mean of RBP_k^length (eqs. 6 to 8 of arXiv 2510.20387); k = 1 is the greedy exact
match.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import (
    KEYS,
    Analyzer,
    Drawing,
    Family,
    Report,
    Runs,
    colour_and_marker,
    counted,
    error_bars,
    grid_of,
    interval_columns,
    legend_of_all,
    read_families,
    size_axis,
    style,
)
from rbptrack.stats import Answers, fit_power_law, independent_share, read_answers, share_interval

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "answers": {
        **KEYS,
        "k": "k of RBP_k",
        "answers": "documents whose whole answer (the dataset's last field) was scored",
        "mean_length": "tokens of an answer",
        **interval_columns("share", "share of answers whose every token has R <= k", "Wilson's, over documents"),
        "rbp_of_answer": "RBP_k of the answers' tokens",
        "share_independent": "mean over answers of rbp_of_answer^length",
        "share_by_law": "the same with RBP_k from the law -ln RBP_k = A S^-alpha of the answers' tokens",
    },
}


@dataclass(kw_only=True)
class WholeAnswers(Analyzer):
    """Whole answers: the share whose every token has R <= k, beside RBP_k^length and its law in S.

    Attributes:
        ks: the k; 1 is the greedy exact match.
        least_answers: a measurement with fewer whole answers is left out.
        level: nominal coverage of the intervals.

    """

    name: ClassVar[str] = "answers"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    least_answers: int = 10
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Read the answers of every measurement whose dataset has several fields."""
        report = Report()
        rows: list[dict[str, Any]] = []

        def load(family: Family, run_id: str) -> Answers:
            truncated = str(family.rows.iloc[0]["sequence"]) == "truncate"  # an import may not say
            cut = int(family.rows.iloc[0]["seq_len"]) if truncated else None
            ks = self._ks(family)
            return Answers.concatenate([read_answers(p, ks, cut_at=cut) for p in runs.rank_pieces(run_id)])

        for family, answers in read_families(runs, load, report.notes):
            if not any(len(one.length) for one in answers):
                report.notes.append(f"{family}: no answers; its dataset has one field, or none was scored whole.")
                continue
            here = self._rows(family, answers)
            rows += here
            report.notes.append(f"{family}, {_sentence(family, here)}")
        if not rows:
            raise report.nothing_found("no measurement with answers")
        report.add_table("answers", rows, COLUMNS["answers"])
        report.summary = "answers"
        inside = sum(row["share_low"] <= row["share_independent"] <= row["share_high"] for row in rows)
        report.headline = (
            f"RBP_k^length, as if tokens succeeded independently, predicts the share of whole answers within its "
            f"{self.level:z.0%} interval in {inside} of {counted(len(rows), 'case')} (each a model, dataset and k)"
        )
        report.add_metrics("answers/{family}-{size}/{dataset}/rbp_{k}", rows, "share")
        caption = "Points: share of whole answers, with Wilson's intervals. Lines: what independent tokens would give."
        report.drawings["answers"] = Drawing(_draw(report.tables["answers"].frame), caption)
        return report

    def _ks(self, family: Family) -> list[int]:
        return [k for k in sorted(self.ks) if k < family.vocab_size]

    def _rows(self, family: Family, answers: Sequence[Answers]) -> list[dict[str, Any]]:
        """The share of whole answers, beside RBP_k^length with their tokens' RBP_k, as measured and by its law."""
        rows = []
        for j, k in enumerate(self._ks(family)):
            y = np.array([-np.log(a.hits[:, j].sum() / max(a.length.sum(), 1)) for a in answers])
            usable = len(y) >= 3 and bool((np.isfinite(y) & (y > 0)).all())
            law = fit_power_law(family.s, y, level=self.level) if usable else None
            for keys, a, measured in zip(family.size_keys, answers, y, strict=True):
                if len(a.length) < self.least_answers:
                    continue
                share = float(a.whole[:, j].mean())
                low, high = share_interval(share, len(a.length), level=self.level)
                row = keys | {"k": k, "answers": len(a.length), "mean_length": a.length.mean(), "share": share}
                row |= {"share_low": low, "share_high": high, "rbp_of_answer": np.exp(-measured)}
                row["share_independent"] = independent_share(a.length, measured)
                if law:
                    row["share_by_law"] = independent_share(a.length, float(law.predict(keys["S"])))
                rows.append(row)
        return rows


def _sentence(family: Family, rows: Sequence[dict[str, Any]]) -> str:
    largest = [r for r in rows if r["size"] == family.labels[-1]]
    if not largest:
        return "too few whole answers were scored for a comparison."
    parts = [
        f"in {r['share']:z.1%} ({r['share_low']:z.1%} to {r['share_high']:z.1%}) at k = {r['k']}, where "
        f"RBP_k^length predicts {r['share_independent']:z.1%}"
        for r in largest
    ]
    some = largest[0]
    return (
        f"{some['size']}: of {some['answers']} whole answers ({some['mean_length']:.1f} tokens on average), every "
        f"token has R <= k {'; '.join(parts)}."
    )


def _draw(table: pd.DataFrame) -> Figure:
    """The share of whole answers against S, k as colour."""
    datasets, ks, names = (sorted(set(table[column])) for column in ("dataset", "k", "family"))
    with style():
        figure, axes = grid_of(datasets, names, legend=1.6)
        for (dataset, name), ax in axes.items():
            mine = table[(table["dataset"] == dataset) & (table["family"] == name)]
            if not len(mine):
                ax.remove()
                continue
            for number, k in enumerate(ks):
                rows, (colour, _) = mine[mine["k"] == k], colour_and_marker(number)
                drawn = {"fmt": "o", "color": colour, "ms": 4, "label": f"k = {k}"}
                error_bars(ax, rows["S"], rows["share"], rows["share_low"], rows["share_high"], **drawn)
                ax.plot(rows["S"], rows["share_by_law"], "-", lw=1, color=colour)
                ax.plot(rows["S"], rows["share_independent"], ":", lw=1.4, color=colour)
            ax.plot([], [], "-", lw=1, color="0.3", label="RBP$_k^{length}$,\nRBP$_k$ by its law")
            ax.plot([], [], ":", lw=1.4, color="0.3", label="RBP$_k^{length}$,\nRBP$_k$ measured")
            ax.set(title=f"{name} on {dataset}", ylim=(-0.02, None), ylabel="whole answers with R ≤ k")
            size_axis(ax, mine["S"])
        legend_of_all(figure, legend=1.6)
        return figure
