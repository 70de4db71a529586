"""Test whether N tokens in a row succeed as often as they would if tokens were independent.

A window is N consecutive scored tokens of one document. It succeeds if all of them have R <= k. p_N is the share of
windows that succeed. If tokens were independent, p_N = RBP_k^N and -ln p_N = N A S^-alpha (arXiv 2510.20387, eqs. 6 to
8). p_N is computed from the lengths L of runs. It is the sum of max(L - N + 1, 0) over runs of hits, divided by the sum
of max(L - N + 1, 0) over stretches of scored tokens. A masked token or the end of a document ends a stretch. RBP_k is
computed from the stretches with room for a window. Both numbers then describe one text: short documents may be easier
or harder. N_eff = ln p_N / ln RBP_k is the number of independent tokens that a window is worth.

Documents differ, and this alone makes p_N exceed RBP_k^N: easy documents have most of the windows that succeed. The
analyzer therefore also reports the mixture over documents: the value of p_N if the tokens of each document were
independent. Only the excess over the mixture is clustering within documents.

A whole answer is a document's last field, every token of which was scored; k = 1 is the greedy exact match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import PositiveInt

from rbptrack.analysis import Analyzer, Family, Report, Runs, Term, read_families, sentence, spanned, verdicts
from rbptrack.figures import facets
from rbptrack.ranks import HEADLINE_KS, DocumentSums, FloatArray, RankTable, metric_label, rbp_name
from rbptrack.stats import MIN_UNITS, estimate, laws

# Columns of counts of windows.
WINDOWS = 0
SUCCEEDED = 1
TOKENS = 2  # of stretches that have a window
HITS = 3  # those of them with R <= k
RUNS = 4  # distinct runs of hits that are at least N long
MIXTURE = 5  # windows that would succeed if the document's hits were in random order


@dataclass(frozen=True)
class Successes(DocumentSums):
    """Number of windows and whole answers, and of those that succeed, by document.

    Attributes:
        windows: the columns above at each k and N, (documents, ks, lengths, 6).
        answers: whole answers that succeed, hits of their tokens, and answers of each length, (documents, ks, 2 +
            answer_lengths).
        answer_lengths: the numbers of tokens that answers have, ascending.

    """

    SUMMED = ("windows", "answers")

    windows: FloatArray
    answers: FloatArray
    answer_lengths: FloatArray


def count_windows(piece: RankTable, ks: Sequence[int], lengths: Sequence[int]) -> FloatArray:
    """Count windows and hits in whole documents, (documents, ks, lengths, 6). Rows must be in text order.

    Source: arXiv 2510.20387, eqs. 6 to 8.
    """
    present, document = piece.documents
    counts = np.zeros((len(present), len(ks), len(lengths), 6))
    begins = _begins(piece)
    stretches = np.flatnonzero(begins)
    stretch_length = np.diff(stretches, append=len(piece))
    for i, k in enumerate(ks):
        hit = piece.rank <= k
        stretch_hits = np.add.reduceat(hit, stretches, dtype=np.int64)
        turns = begins.copy()  # where hits turn into misses or back; stretches are never joined
        turns[1:] |= hit[1:] != hit[:-1]
        hit_runs = np.flatnonzero(turns)
        run_length = np.diff(hit_runs, append=len(piece))[hit[hit_runs]]
        hit_runs = hit_runs[hit[hit_runs]]
        for j, n in enumerate(lengths):
            long = stretch_length >= n
            sums = partial(np.bincount, document[stretches[long]], minlength=len(present))
            counts[:, i, j, WINDOWS] = sums(weights=stretch_length[long] - n + 1)
            counts[:, i, j, TOKENS] = sums(weights=stretch_length[long])
            counts[:, i, j, HITS] = sums(weights=stretch_hits[long])
            long = run_length >= n
            sums = partial(np.bincount, document[hit_runs[long]], minlength=len(present))
            counts[:, i, j, SUCCEEDED] = sums(weights=run_length[long] - n + 1)
            counts[:, i, j, RUNS] = sums()
            in_a_row = all_hits(counts[:, i, j, HITS], counts[:, i, j, TOKENS], n)
            counts[:, i, j, MIXTURE] = counts[:, i, j, WINDOWS] * in_a_row
    return counts


def all_hits(hits: FloatArray, tokens: FloatArray, n: int) -> FloatArray:
    """The probability that n tokens of a document are all hits, C(hits, n) / C(tokens, n), (documents,).

    It is RBP_k^n of the document without the bias that a power of a measured share has.
    """
    probability = np.ones(len(hits))
    for taken in range(n):
        probability *= np.maximum(hits - taken, 0) / np.maximum(tokens - taken, 1)
    return probability


def _begins(piece: RankTable) -> npt.NDArray[np.bool_]:
    """Whether a token begins a stretch of consecutive scored tokens of one document, (tokens,)."""
    document = piece.column("document")
    position = piece.column("position")
    begins = np.ones(len(piece), dtype=np.bool_)
    begins[1:] = (document[1:] != document[:-1]) | (position[1:] != position[:-1] + 1)
    return begins


def whole_answers(piece: RankTable, ks: Sequence[int], last_field: int, cut_at: float) -> FloatArray:
    """Count the tokens of each document's answer, and those with R <= k, (documents, 1 + ks).

    An answer is the last of at least two fields. It is whole if no token is missing before or inside it, and if it ends
    before `cut_at`, the number of tokens that documents were cut to. A document without a whole answer has zeros.
    """
    present, document = piece.documents
    field = piece.column("field")
    answer = (field == last_field) & (field > 0)
    gaps = piece.sum_by_document(answer & _begins(piece))
    end = np.zeros(len(present))
    np.maximum.at(end, document[answer], piece.column("position")[answer])
    whole = (gaps == 0) & (end < cut_at - 1)
    counts = [piece.sum_by_document(answer)]
    for k in ks:
        counts.append(piece.sum_by_document(answer & (piece.rank <= k)))
    return np.where(whole[:, None], np.column_stack(counts), 0.0)


def neg_log_p(totals: FloatArray) -> FloatArray:
    """Return -ln p_N from counts of windows, (..., 6) -> (...)."""
    return np.asarray(-np.log(totals[..., SUCCEEDED] / totals[..., WINDOWS]))


def n_eff(totals: FloatArray) -> FloatArray:
    """Return N_eff = ln p_N / ln RBP_k from counts of windows, (..., 6) -> (...)."""
    return np.asarray(-neg_log_p(totals) / np.log(totals[..., HITS] / totals[..., TOKENS]))


def ln_n_eff(totals: FloatArray) -> FloatArray:
    """Return ln N_eff from counts of windows, (..., 6) -> (...)."""
    return np.asarray(np.log(n_eff(totals)))


def ln_against_mixture(totals: FloatArray) -> FloatArray:
    """Return ln of p_N over the mixture of documents, from counts of windows, (..., 6) -> (...)."""
    return np.asarray(np.log(totals[..., SUCCEEDED] / totals[..., MIXTURE]))


def expected(lengths: FloatArray, totals: FloatArray) -> FloatArray:
    """Return how many whole answers would succeed if tokens were independent: the sum of RBP_k^length, (...).

    Source: arXiv 2510.20387, eq. 6, with a whole answer as the window.

    Args:
        lengths: lengths of answers, (lengths,).
        totals: answers that succeed, hits of the answers' tokens, and answers of each length, (..., 2 + lengths).

    """
    of_length = totals[..., 2:]
    rbp = totals[..., 1:2] / (of_length @ lengths)[..., None]
    return np.asarray((of_length * rbp**lengths).sum(axis=-1))


def ln_against_expected(lengths: FloatArray, totals: FloatArray) -> FloatArray:
    """Return ln of the number of whole answers that succeed over the number that `expected` gives, (...)."""
    return np.asarray(np.log(totals[..., 0] / expected(lengths, totals)))


GLOSSARY = {
    "N": Term("consecutive scored tokens of one document", "N"),
    "n_eff": Term("ln p_N / ln RBP_k at the largest size: how many independent tokens the window counts as", "N_eff"),
    "clustering": Term(
        "p_N / the mixture at the largest size: above 1 if right tokens cluster within documents",
        "p_N / mixture",
    ),
    "mixture": Term(
        "mean over windows of RBP_k(document)^N: p_N if tokens were independent within each document",
        "if documents alone differ",
        ".3g",
    ),
    "n_eff_mixture": Term("ln mixture / ln RBP_k: N_eff if only documents differed", "N_eff of mixture"),
    "alpha_n": Term("exponent of -ln p_N = C S^-alpha_N, fitted freely for this N", "α_N"),
    "delta_n": Term(
        "alpha_N minus alpha of single tokens, by the law of N_eff; 0 if tokens are independent", "α_N - α"
    ),
    "whole_answers": Term(
        "share of whole answers that succeed / mean over answers of RBP_k^length", "against independent"
    ),
    "p_n": Term("share of windows in which all tokens have R <= k; empty if too few runs are that long", "p_N"),
    "independent": Term(
        "RBP_k^N, which independent tokens give; of answers the mean of RBP_k^length", "if independent", ".3g"
    ),
    "runs": Term("distinct runs of at least N hits"),
    "documents": Term("documents, or groups, that have one"),
    "answers": Term("documents with a whole answer"),
    "succeeded": Term("share of answers in which all tokens have R <= k", form=".1%"),
    "rbp_of_answers": Term("RBP_k of the answers' tokens", "RBP_k of answers"),
    "C": Term("factor of the law"),
    "R2": Term("of the law in logarithms", "R²"),
    "sizes": Term("number of sizes with enough runs of hits, which the law goes through"),
}


class Emergence(Analyzer):
    """Do N tokens in a row succeed as often as if tokens were independent? Windows, their law, and whole answers."""

    cost: ClassVar[int] = 3
    ks: tuple[PositiveInt, ...] = HEADLINE_KS
    """a token succeeds if its rank is at most k"""

    lengths: tuple[PositiveInt, ...] = (1, 2, 4, 8, 16, 32, 64)
    """the N of windows; 1 is always among them"""

    min_runs: PositiveInt = 10
    """the fewest runs of at least N hits; an N with fewer is left out"""

    min_documents: PositiveInt = 5
    """the fewest documents that these runs come from; an N with fewer is left out"""

    def analyze(self, runs: Runs) -> Report:
        """Count windows and answers of every measurement. Laws need 2 sizes; their intervals need 3."""
        report = Report(GLOSSARY)
        lengths = sorted({1, *self.lengths})
        windows: list[dict[str, Any]] = []
        answers: list[dict[str, Any]] = []

        def load(family: Family, run_id: str) -> Successes:
            return self._read(runs, family, run_id, lengths)

        reading = read_families(runs, load)
        for family, sizes in reading:
            ks = family.ks_below_vocab(self.ks)
            fewest = min(len(size.windows) for size in sizes)
            if fewest < MIN_UNITS:
                few = f"{fewest} documents or groups, and at least {MIN_UNITS} are needed"
                report.notes.append(f"{family}: no intervals: {few}.")
            if not ks:
                report.notes.append(f"{family}: no window can fail, because no k is below |V| = {family.vocab_size}.")
            for i, k in enumerate(ks):
                for j, n in enumerate(lengths):
                    windows += self._add_windows(report, family, k, n, [size.windows[:, i, j] for size in sizes])
                answers += self._add_answers(report, family, sizes, i, k)
        report.notes += reading.notes
        if not windows:
            report.notes.append("No measurement has ranks in which windows can be counted.")
            return report
        report.tables["windows"] = pd.DataFrame(windows)
        if answers:
            report.tables["answers"] = pd.DataFrame(answers)
        if report.tables["windows"]["p_n"].isna().any():
            few = f"fewer than {self.min_runs} runs of hits are at least N long, or if they come from fewer than"
            report.notes.append(f"p_N is left out if {few} {self.min_documents} documents.")
        report.headline = _headline(report)
        _draw(report)
        return report

    def _read(self, runs: Runs, family: Family, run_id: str, lengths: Sequence[int]) -> Successes:
        """The counts of one run."""
        ks = family.ks_below_vocab(self.ks)
        last_field = max(int(piece.column("field").max(initial=0)) for piece in runs.rank_pieces(run_id, ["field"]))
        cut = family.rows["sequence"].eq("truncate").fillna(False).any()
        cut_at = float(family.column("seq_len")[0]) if cut else np.inf
        windows = []
        answers = []
        for piece in runs.rank_pieces(run_id, ["document", "position", "field", "rank"]):
            windows.append(count_windows(piece, ks, lengths))
            answers.append(whole_answers(piece, ks, last_field, cut_at))
        length, hits = np.split(np.concatenate(answers), [1], axis=1)
        answer_lengths = np.unique(length[length > 0])
        counts = np.zeros((len(length), len(ks), 2 + len(answer_lengths)))
        counts[..., 0] = (hits == length) & (length > 0)
        counts[..., 1] = hits
        counts[..., 2:] = (length == answer_lengths)[:, None]
        return Successes(np.concatenate(windows), counts, answer_lengths)

    def _add_windows(
        self, report: Report, family: Family, k: int, n: int, counts: Sequence[FloatArray]
    ) -> list[dict[str, Any]]:
        """Add N_eff of the largest size and the law of sizes with enough runs. Return rows of windows at one k and N.

        counts: of each size, (documents, 6).
        """
        rows = []
        for label, s, of_size in zip(family.labels, family.s, counts, strict=True):
            rows.append({**family.keys, "size": label, "S": s, "k": k, "N": n, **self._success(of_size, n)})
        keys: dict[str, Any] = {**family.keys, "metric": rbp_name(k), "N": n}
        largest = rows[-1]
        if n > 1 and np.isfinite(largest["n_eff"]):
            beside = {name: largest[name] for name in ("S", "p_n", "independent", "runs", "documents")}
            report.add("n_eff", estimate(counts[-1], ln_n_eff), null=np.log(n), show=np.exp, beside=beside, **keys)
            beside = {name: largest[name] for name in ("S", "p_n", "mixture", "n_eff_mixture")}
            ratio = estimate(counts[-1], ln_against_mixture)
            report.add("clustering", ratio, null=0.0, show=np.exp, beside=beside, **keys)
        usable = [m for m, row in enumerate(rows) if np.isfinite(row["p_n"])]
        if len(usable) > 1:
            s = family.s[usable]
            usable_counts = [counts[m] for m in usable]
            [law] = laws(s, usable_counts, neg_log_p)
            if law:
                report.add("alpha_n", law.alpha, beside={"C": law.a, "R2": law.r2, "sizes": law.sizes}, **keys)
            [law_of_n_eff] = laws(s, usable_counts, n_eff)
            if law_of_n_eff and n > 1:
                report.add("delta_n", law_of_n_eff.alpha, null=0.0, **keys)
        return rows

    def _success(self, counts: FloatArray, n: int) -> dict[str, float]:
        """How often windows of N succeed, and how often they would; NaN where too few runs of hits are as long."""
        windows, succeeded, tokens, hits, runs, mixed = counts.sum(axis=0)
        documents = int((counts[:, RUNS] > 0).sum())
        p_n = low = high = independent = mixture = independent_tokens = mixture_tokens = np.nan
        if tokens:
            independent = (hits / tokens) ** n
            mixture = mixed / windows
        if runs >= self.min_runs and documents >= self.min_documents:
            p_n = succeeded / windows
            if hits < tokens:
                independent_tokens = float(n_eff(counts.sum(axis=0)))
                mixture_tokens = float(np.log(mixture) / np.log(hits / tokens))
                ln_missed = estimate(counts, lambda totals: np.log(neg_log_p(totals)))
                high, low = np.exp(-np.exp(ln_missed.interval())).tolist()
        return {
            "p_n": p_n,
            "low": low,
            "high": high,
            "n_eff": independent_tokens,
            "independent": independent,
            "mixture": mixture,
            "n_eff_mixture": mixture_tokens,
            "runs": int(runs),
            "documents": documents,
        }

    def _add_answers(
        self, report: Report, family: Family, sizes: Sequence[Successes], i: int, k: int
    ) -> list[dict[str, Any]]:
        """Add the test of the largest size if enough answers succeed. Return rows of whole answers at the i-th k."""
        rows = []
        for label, s, size in zip(family.labels, family.s, sizes, strict=True):
            totals = size.answers[:, i].sum(axis=0)
            answers = totals[2:].sum()
            if answers < self.min_runs:
                continue
            row = {**family.keys, "size": label, "S": s, "k": k, "answers": int(answers)}
            row["rbp_of_answers"] = totals[1] / (totals[2:] @ size.answer_lengths)
            row["succeeded"] = totals[0] / answers
            row["independent"] = float(expected(size.answer_lengths, totals)) / answers
            rows.append(row)
        counts = sizes[-1].answers[:, i]
        lengths = sizes[-1].answer_lengths
        if counts[:, 0].sum() >= self.min_runs:
            ratio = estimate(counts, partial(ln_against_expected, lengths))
            beside = {name: rows[-1][name] for name in ("S", "answers", "succeeded", "independent")}
            keys: dict[str, Any] = {**family.keys, "metric": rbp_name(k)}
            report.add("whole_answers", ratio, null=0.0, show=np.exp, beside=beside, **keys)
        return rows


def _headline(report: Report) -> str:
    """N_eff of the longest windows, what documents alone make of it, and whether right tokens cluster beyond that."""
    if "n_eff" not in report.questions:
        return ""
    rows = report.frame("n_eff")
    metric = str(rows["metric"].iat[0])
    longest = rows[rows["metric"] == metric]["N"].max()
    clustering = report.frame("clustering")
    n_effs, ratios = (rows[(rows["metric"] == metric) & (rows["N"] == longest)] for rows in (rows, clustering))
    count = f"{longest} tokens in a row count as {spanned(n_effs['n_eff'], '.1f')} independent ones"
    mixture = f"differences between documents alone give {spanned(ratios['n_eff_mixture'], '.1f')}"
    said = {"above": "right tokens cluster within documents", "below": "right tokens spread out within documents"}
    tested = verdicts(clustering, said, noun="case", none="no clustering within documents was found")
    return sentence(f"{metric_label(metric)}: {count}", mixture, tested or "too few documents to test clustering")


def _draw(report: Report) -> None:
    """Draw p_N against S as figure 7 of the paper does, alpha_N against N, and whole answers."""
    windows = report.tables["windows"]
    keys = ["family", "dataset", "size", "S", "k", "N"]
    measured = windows.assign(by="as measured")
    alone = windows[windows["independent"] > 1e-7].assign(
        p_n=windows["independent"], low=np.nan, high=np.nan, by="if independent: RBP_k^N"
    )
    mixed = windows[windows["mixture"] > 1e-7].assign(
        p_n=windows["mixture"], low=np.nan, high=np.nan, by="if documents alone differ"
    )
    both = pd.concat([measured, alone, mixed])[[*keys, "p_n", "low", "high", "by"]].dropna(subset=["p_n"])
    both["panel"] = both["family"] + " on " + both["dataset"] + ", k = " + both["k"].astype(str)
    both["length"] = "N = " + both["N"].astype(str)
    title = "windows that succeed"
    both = both.rename(columns={"p_n": title})
    report.figures["success"] = facets(both, x="S", y=title, colour="length", facet="panel", dash="by", log="xy")
    if "alpha_n" in report.questions:
        laws = report.frame("alpha_n")
        laws["panel"] = laws["dataset"] + ", " + laws["metric"].map(metric_label)
        report.figures["alpha_n"] = facets(laws.rename(columns={"alpha_n": "α_N"}), x="N", y="α_N", facet="panel")
    if "answers" in report.tables:
        answers = report.tables["answers"].rename(columns={"succeeded": "as measured", "independent": "if independent"})
        title = "whole answers that succeed"
        long = answers.melt(keys[:-1], ["as measured", "if independent"], "by", title).dropna()
        long["panel"] = long["dataset"] + ", k = " + long["k"].astype(str)
        report.figures["answers"] = facets(long, x="S", y=title, facet="panel", dash="by")
