"""Families with different vocabularies, compared by what does not depend on the tokenizer: whole words, bits per byte.

A word is a run of characters without white space, with the white space before it; it succeeds where every token that
reaches into it has R <= k. A tokenizer with longer tokens needs fewer successes for a word, and each is harder: RBP_k
of its tokens does not compare, the share of whole words does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure

from rbptrack.analysis import (
    Analyzer,
    Drawing,
    Family,
    Report,
    Runs,
    Unreadable,
    dataset_panels,
    family_legends,
    interval_columns,
    log_axis,
    read_families,
    shared_columns,
    short_number,
    size_axis,
    spread,
    style,
)
from rbptrack.stats import (
    FloatArray,
    LawValues,
    PowerLawFit,
    TokenShapes,
    WordCounts,
    document_weights,
    holm,
    laws_apart,
)

BITS = "bits per byte"
SURE = "scatter between models and documents"
COLUMNS = {
    "summary": {
        **shared_columns("dataset", "family"),
        "size": "its largest size",
        "tokens per word": "scored tokens over whole words",
        BITS: "bits that the model spends per byte of scored text: lower is better",
        "whole words": "share of words whose every token has R <= the smallest k",
        "alpha": "exponent of -ln of that share, and its interval",
    },
    "laws": {
        **shared_columns("dataset", "family"),
        "metric": f"{BITS}, or words_k: -ln of the share of words whose every token has R <= k",
        **interval_columns("alpha", "exponent of its law in S", SURE),
        "r2": "R^2 of that law on logarithms",
        "smallest": "bits per byte, or share of whole words, at the smallest size",
        "largest": "at the largest",
    },
    "families": {
        "dataset": "the dataset",
        "A": "one family",
        "B": "the other",
        "metric": f"{BITS}, or words_k",
        "at S": "the size at which their laws are compared",
        **interval_columns("ratio", "A's value over B's there: below 1, A is better", SURE),
        "p_families": "p of a ratio of 1, corrected for the number of pairs (Holm)",
        **interval_columns("difference", "A's exponent less B's", SURE),
        "p_exponents": "p of equal exponents, corrected likewise",
        "verdict": "the better family, or cannot tell",
    },
}


@dataclass(frozen=True)
class Measured:
    """One family on one dataset: its counts by size, and what laws are fitted to."""

    family: Family
    counts: list[WordCounts]
    values: LawValues

    def law(self, metric: str, level: float) -> PowerLawFit | None:
        """The law of one metric; None of fewer than 3 sizes."""
        return self.values.fit(metric, self.family.s, level=level) if len(self.family.s) >= 3 else None


@dataclass(kw_only=True)
class Words(Analyzer):
    """Families across tokenizers: success of whole words and bits per byte, their laws in S, and which family is ahead.

    Attributes:
        ks: the k.
        level: nominal coverage of the intervals; tests have size 1 - level.
        replicates: document bootstraps, drawn jointly for all families that read the same texts.

    """

    name: ClassVar[str] = "words"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Count whole words in every measurement that keeps the texts of its tokens."""
        report = Report(summary="summary")
        ks = sorted(self.ks)

        shapes: dict[str, TokenShapes] = {}  # by family: its models share a vocabulary

        def load(family: Family, run_id: str) -> WordCounts:
            texts, parts = runs.vocabulary(run_id), list[WordCounts]()
            if not texts and runs.histogram(run_id):  # a histogram that is missing says more
                raise Unreadable("the texts of its tokens were not kept")
            for piece in runs.rank_pieces(run_id):
                if not len(piece) or int(piece.column("token").min()) < 0:
                    raise Unreadable("the texts of its tokens were not kept")
                if family.path not in shapes:
                    shapes[family.path] = TokenShapes.of(texts)
                parts.append(WordCounts.of(piece, shapes[family.path], ks))
            return WordCounts.concatenate(parts)

        measured = [
            Measured(f, counts, self._values(counts, ks)) for f, counts in read_families(runs, load, report.notes)
        ]
        if not measured:
            raise report.nothing_found("no measurement keeps the texts of its tokens")
        laws = [row for one in measured for row in self._law_rows(one)]
        pairs = self._corrected([row for a, b in combinations(measured, 2) for row in self._pair_rows(a, b)])
        report.add_table("summary", (self._summary(one, ks[0]) for one in measured), COLUMNS["summary"])
        report.add_table("laws", laws, COLUMNS["laws"])
        report.add_table("families", pairs, COLUMNS["families"])
        report.add_metrics("alpha_of_words/{family}/{dataset}/{metric}", laws, "alpha")
        sentences = [*self._pairs_in_words(pairs), *(self._in_words(one, ks[0]) for one in measured)]
        report.notes[:0] = sentences
        report.headline = self._headline(laws, ks[0]) or sentences[0].removesuffix(".")
        caption = f"Words whose every token has R <= {ks[0]}, whatever the tokenizer; lines: -ln share = A S^-alpha."
        report.drawings["whole_words"] = Drawing(self._draw(measured, f"words_{ks[0]}"), caption)
        return report

    def _values(self, counts: list[WordCounts], ks: list[int]) -> LawValues:
        weights = document_weights(len(counts[0].document), replicates=self.replicates)
        once = np.ones((1, weights.shape[1]))
        return LawValues(
            metrics=(BITS, *(f"words_{k}" for k in ks)),
            values=np.concatenate([one.values(once) for one in counts]),
            draws=np.stack([one.values(weights) for one in counts]),
        )

    def _law_rows(self, one: Measured) -> Iterator[dict[str, Any]]:
        for metric in one.values.metrics:
            if law := one.law(metric, self.level):
                first, last = _shown(metric, one.values.of(metric)[0])[[0, -1]]
                row = one.family.keys | {"metric": metric, "smallest": float(first), "largest": float(last)}
                yield row | {"alpha": law.alpha, "alpha_low": law.low, "alpha_high": law.high, "r2": law.r2}

    def _pair_rows(self, a: Measured, b: Measured) -> Iterator[dict[str, Any]]:
        together = a.family.dataset == b.family.dataset and a.family.shares_texts(b.family)
        if not together or min(len(a.family.s), len(b.family.s)) < 3:
            return
        same = np.array_equal(a.counts[0].document, b.counts[0].document)  # else draws are of other documents
        for metric in a.values.metrics:
            sides = ((a.family.s, a.values), (b.family.s, b.values))
            found = laws_apart(*sides, metric, same_texts=same, level=self.level)
            if found is None:
                continue
            half, level_half = found.alpha_spread.half(self.level), found.level_spread.half(self.level)
            ends = np.exp([found.level, found.level - level_half, found.level + level_half])
            row: dict[str, Any] = {
                "dataset": a.family.dataset,
                "A": a.family.name,
                "B": b.family.name,
                "metric": metric,
            }
            row |= {"at S": found.at} | dict(zip(("ratio", "ratio_low", "ratio_high"), map(float, ends), strict=True))
            row |= {"p_families": found.level_spread.p(found.level), "p_exponents": found.alpha_spread.p(found.alpha)}
            row |= {"difference": found.alpha, "difference_low": found.alpha - half}
            yield row | {"difference_high": found.alpha + half}

    def _corrected(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows with p corrected for the number of pairs of their metric, and a verdict."""
        for metric in dict.fromkeys(row["metric"] for row in rows):
            mine = [row for row in rows if row["metric"] == metric]
            for name in ("p_families", "p_exponents"):
                for row, p in zip(mine, holm([row[name] for row in mine]), strict=True):
                    row[name] = float(p)
        for row in rows:
            better = row["A"] if row["ratio"] < 1 else row["B"]
            row["verdict"] = better if row["p_families"] < 1 - self.level else "cannot tell"
        return rows

    def _summary(self, one: Measured, k: int) -> dict[str, Any]:
        last, law = one.counts[-1], one.law(f"words_{k}", self.level)
        row = one.family.keys | {"size": one.family.labels[-1]}
        row |= {"tokens per word": f"{last.tokens.sum() / max(last.words.sum(), 1):.2f}"}
        row |= {BITS: f"{one.values.of(BITS)[0][-1]:.3f}"}
        row |= {"whole words": f"{np.exp(-one.values.of(f'words_{k}')[0][-1]):.1%}"}
        return row | {"alpha": f"{law.alpha:.3f} ({law.low:.3f} to {law.high:.3f})" if law else ""}

    def _headline(self, laws: list[dict[str, Any]], k: int) -> str:
        mine = [row for row in laws if row["metric"] == f"words_{k}"]
        if not mine:
            return ""
        said = spread([row["alpha"] for row in mine], ".3f", [f"{row['family']} on {row['dataset']}" for row in mine])
        return f"-ln of the share of words whose every token has R <= {k} falls with S by an exponent of {said}"

    def _in_words(self, one: Measured, k: int) -> str:
        share = np.exp(-one.values.of(f"words_{k}")[0])
        last, law = one.counts[-1], one.law(f"words_{k}", self.level)
        text = (
            f"{one.family}: {share[-1]:z.1%} of words are ranked whole at k = {k} ({one.family.labels[-1]}; "
            f"{last.tokens.sum() / max(last.words.sum(), 1):.2f} tokens per word)"
        )
        if law is None:
            return f"{text}; a law needs 3 sizes in which some words succeed and some fail."
        return f"{text}; -ln of that share falls with alpha = {law.alpha:.3f} ({law.low:.3f} to {law.high:.3f})."

    def _pairs_in_words(self, rows: list[dict[str, Any]]) -> Iterator[str]:
        for dataset, a, b in dict.fromkeys((row["dataset"], row["A"], row["B"]) for row in rows):
            mine = [row for row in rows if (row["dataset"], row["A"], row["B"]) == (dataset, a, b)]
            parts = [
                f"{row['metric']} {row['ratio']:.3f} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f}; "
                f"{'better: ' + row['verdict'] if row['verdict'] != 'cannot tell' else 'cannot tell'})"
                for row in mine
            ]
            yield f"{a} over {b} on {dataset}, at S = {short_number(mine[0]['at S'])}: {', '.join(parts)}."

    def _draw(self, measured: list[Measured], metric: str) -> Figure:
        """The share of whole words against S: a panel per dataset, families as colours."""
        with style():
            figure, panels = dataset_panels((one.family.name, one.family.dataset) for one in measured)
            for ax, dataset, styles in panels:
                here = {one.family.name: one for one in measured if one.family.dataset == dataset}
                for name, colour, marker, *_ in styles:
                    one = here[name]
                    y = one.values.of(metric)[0]
                    ax.plot(one.family.s, np.exp(-y), marker, ms=4.5, color=colour, label=name)
                    if law := one.law(metric, self.level):
                        x = np.geomspace(one.family.s.min(), one.family.s.max(), 40)
                        ax.plot(x, np.exp(-law.predict(x)), lw=1.2, color=colour)
                every = np.concatenate([one.family.s for one in here.values()])
                size_axis(ax, every)
                shares = np.concatenate([np.exp(-one.values.of(metric)[0]) for one in here.values()])
                log_axis(ax.yaxis, low=max(float(shares.min()), 1e-5) / 1.4, high=min(float(shares.max()) * 1.4, 1.2))
                ax.set_ylabel("share of whole words")
            names = (one.family.name for one in measured)
            family_legends(figure, [ax for ax, *_ in panels], names, loc="best", fontsize=8)
            return figure


def _shown(metric: str, values: FloatArray) -> FloatArray:
    return values if metric == BITS else np.exp(-values)
