"""Test whether N tokens in a row succeed as often as they would if tokens were independent.

A hit is a token with R <= k. A window is N consecutive scored tokens of one document. It succeeds if all of its tokens
are hits. p_N is the share of windows that succeed. If tokens were independent, p_N would be RBP_k^N, and -ln p_N would
be N A S^-alpha (arXiv 2510.20387, eqs. 6 to 8). N_eff = ln p_N / ln RBP_k is the number of independent tokens that
would all be hits with the probability p_N.

A stretch is a series of consecutive scored tokens. A masked token or the end of a document ends it. A run is a series
of hits within a stretch. A series of L tokens contains max(L - N + 1, 0) windows. p_N is the number of windows in all
runs divided by the number in all stretches. RBP_k is computed only from stretches of at least N tokens, because shorter
stretches have no windows and may be easier or harder.

Some documents are easier than others, and easy documents have most of the windows that succeed. This alone makes p_N
larger than RBP_k^N. The analyzer therefore also reports the mixture over documents. This is the value that p_N would
have if the tokens within each document were independent. If p_N is above the mixture, hits cluster within documents.

The analyzer also tests whole answers. A whole answer is the last field of a document if all of its tokens were scored.
With k = 1, an answer succeeds if greedy decoding produces it exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import PositiveInt

from rbptrack.analysis import (
    Analyzer,
    Family,
    Glossary,
    Report,
    Runs,
    Term,
    counted,
    join_clauses,
    range_text,
    read_families,
    verdict_clause,
)
from rbptrack.figures import facets
from rbptrack.ranks import HEADLINE_KS, FloatArray, metric_label, rbp_name
from rbptrack.stats import MIN_UNITS, Estimate, estimate, few_documents_clause, laws, why_no_interval

from .counts import (
    ANSWER_HITS,
    ANSWER_SUCCEEDED,
    ANSWER_TOKENS,
    BY_LENGTH,
    RUNS,
    Successes,
    count_whole_answers,
    count_windows,
    expected_successes,
    ln_against_expected,
    ln_against_mixture,
    ln_n_eff,
    n_eff,
    neg_log_p,
)

MIN_DOCUMENTS_OF_N_EFF = 60
"""The fewest documents for intervals of p_N and N_eff.

A few documents hold most of the windows that succeed. In simulations, 95% intervals of N_eff contain the true value in
79 to 83% of the draws with 20 documents of different lengths.
"""

GLOSSARY: Glossary = {
    "N": Term("number of consecutive scored tokens in a window", "N"),
    "n_eff": Term(
        "number of independent tokens that would all be hits with the probability p_N, at the largest size", "N_eff"
    ),
    "clustering": Term("p_N / mixture at the largest size; above 1 if hits cluster within documents", "p_N / mixture"),
    "mixture": Term(
        "p_N if tokens were independent within each document: the mean of RBP_k(document)^N over windows",
        "if only documents differ",
        ".3g",
    ),
    "n_eff_mixture": Term("N_eff if documents differed in difficulty only: ln mixture / ln RBP_k", "N_eff of mixture"),
    "alpha_n": Term("exponent of the law -ln p_N = C S^-alpha_N, which is fitted for each N", "α_N"),
    "delta_n": Term(
        "alpha_N minus alpha of single tokens; 0 if tokens are independent, below 0 if N_eff grows with size", "α_N - α"
    ),
    "whole_answers": Term(
        "share of whole answers that succeed, divided by that of independent tokens (the mean of RBP_k^length)",
        "against independent",
    ),
    "p_n": Term("share of windows in which all tokens have R <= k; empty if too few runs have N hits", "p_N"),
    "independent": Term(
        "p_N if tokens were independent, RBP_k^N; for whole answers the mean of RBP_k^length", "if independent", ".3g"
    ),
    "runs": Term("number of runs of at least N hits", "runs of hits"),
    "documents": Term("number of documents, or groups, with at least one run of N or more hits"),
    "answers": Term("number of documents with a whole answer"),
    "succeeded": Term("share of answers in which all tokens have R <= k", form=".1%"),
    "rbp_of_answers": Term("RBP_k of the answers' tokens", "RBP_k of answers"),
    "C": Term("factor of the law: -ln p_N at S = 1"),
    "sizes": Term("number of sizes with enough runs of hits; the law is fitted to them"),
}


class Emergence(Analyzer):
    """The success of N tokens in a row and of whole answers, compared with independent tokens, and its law in size."""

    cost: ClassVar[int] = 3
    k: tuple[PositiveInt, ...] = HEADLINE_KS
    """a token succeeds if its rank is at most k"""

    lengths: tuple[PositiveInt, ...] = (1, 2, 4, 8, 16, 32, 64)
    """the numbers N of tokens of a window; 1 is always included"""

    min_runs: PositiveInt = 10
    """leave out an N if fewer runs than this have at least N hits"""

    def analyze(self, runs: Runs) -> Report:
        """Count windows and answers of every measurement. Laws need 2 sizes; their intervals need 3."""
        report = Report(GLOSSARY)
        lengths = sorted({1, *self.lengths})
        windows: list[dict[str, Any]] = []
        answers: list[dict[str, Any]] = []

        def load(family: Family, run_id: str) -> Successes:
            return self._count_successes(runs, family, run_id, lengths)

        reading = read_families(runs, load)
        for family, sizes in reading:
            ks = family.ks_below_vocab(self.k)
            report.notes += [f"{family}: {reason}." for reason in _reasons_without_interval(family, sizes, ks)]
            for i, k in enumerate(ks):
                for j, n in enumerate(lengths):
                    counts = [_nonempty_rows(size.windows[:, i, j]) for size in sizes]
                    windows += self._add_windows(report, family, k, n, counts)
                answers += self._add_answers(report, family, sizes, i, k)
        report.notes += reading.notes
        if not windows:
            return report
        report.tables["windows"] = pd.DataFrame(windows)
        if answers:
            report.tables["answers"] = pd.DataFrame(answers)
        if report.tables["windows"]["p_n"].isna().any():
            report.notes.append(
                f"p_N is left out if fewer than {self.min_runs} runs have at least N hits, or if these runs come from "
                f"fewer than {MIN_UNITS} documents."
            )
        report.headline = _headline(report)
        _draw(report)
        return report

    def _count_successes(self, runs: Runs, family: Family, run_id: str, lengths: Sequence[int]) -> Successes:
        ks = family.ks_below_vocab(self.k)
        last_field = max(int(piece.column("field").max(initial=0)) for piece in runs.rank_pieces(run_id, ["field"]))
        is_truncated = family.rows["sequence"].eq("truncate").fillna(False).any()
        cut_at = float(family.column("seq_len")[0]) if is_truncated else np.inf
        windows = []
        answers = []
        for piece in runs.rank_pieces(run_id, ["document", "position", "field", "rank"]):
            windows.append(count_windows(piece, ks, lengths))
            answers.append(count_whole_answers(piece, ks, last_field, cut_at))
        length, hits = np.split(np.concatenate(answers), [1], axis=1)
        answer_lengths = np.unique(length[length > 0])
        counts = np.zeros((len(length), len(ks), 3 + len(answer_lengths)))
        counts[..., ANSWER_TOKENS] = length
        counts[..., ANSWER_SUCCEEDED] = (hits == length) & (length > 0)
        counts[..., ANSWER_HITS] = hits
        counts[..., BY_LENGTH] = (length == answer_lengths)[:, None]
        return Successes(np.concatenate(windows), counts, answer_lengths)

    def _add_windows(
        self, report: Report, family: Family, k: int, n: int, counts: Sequence[FloatArray]
    ) -> list[dict[str, Any]]:
        """Add the results of windows at one k and N, and return a row of the table of windows for each size.

        The results are N_eff and clustering at the largest size, and the laws through the sizes with enough runs.
        `counts` are the counts of windows of each size, m arrays of (documents, 6).
        """
        rows = []
        for label, s, size_counts in zip(family.labels, family.s, counts, strict=True):
            rows.append({**family.keys, "size": label, "S": s, "k": k, "N": n, **self._success_rates(size_counts, n)})
        keys: dict[str, Any] = {**family.keys, "metric": rbp_name(k), "N": n}
        largest = rows[-1]
        if n > 1 and np.isfinite(largest["n_eff"]):
            rates = {name: largest[name] for name in ("S", "p_n", "independent", "runs", "documents")}
            number = estimate_from_many_documents(counts[-1], ln_n_eff)
            report.add("n_eff", number, null=np.log(n), show=np.exp, beside=rates, **keys)
            mixture = {name: largest[name] for name in ("S", "p_n", "mixture", "n_eff_mixture")}
            ratio = estimate(counts[-1], ln_against_mixture)
            report.add("clustering", ratio, null=0.0, show=np.exp, beside=mixture, **keys)
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

    def _success_rates(self, counts: FloatArray, n: int) -> dict[str, float]:
        """Return p_N with its interval, p_N if tokens were independent, and the other columns of the table of windows.

        p_N and N_eff are NaN if there are too few runs of at least n hits. `counts` are the counts of windows of n
        tokens of one size, (documents, 6).
        """
        totals = counts.sum(axis=0)
        windows, succeeded, tokens, hits, runs, expected = totals
        unknown = ("p_n", "low", "high", "n_eff", "independent", "mixture", "n_eff_mixture")
        rates: dict[str, float] = dict.fromkeys(unknown, np.nan)
        rates |= {"runs": int(runs), "documents": int(np.count_nonzero(counts[:, RUNS]))}
        if tokens:
            rates["independent"] = (hits / tokens) ** n
            rates["mixture"] = expected / windows
        if self.has_enough_runs(counts):
            rates["p_n"] = succeeded / windows
            if hits < tokens:
                rates["n_eff"] = float(n_eff(totals))
                rates["n_eff_mixture"] = float(np.log(rates["mixture"]) / np.log(hits / tokens))
                ln_neg_log_p = estimate_from_many_documents(counts, lambda sums: np.log(neg_log_p(sums)))
                rates["high"], rates["low"] = np.exp(-np.exp(ln_neg_log_p.interval())).tolist()
        return rates

    def has_enough_runs(self, counts: FloatArray) -> bool:
        """Return whether enough runs of hits occur to compute p_N. counts: the counts of windows, (documents, 6)."""
        runs = counts[:, RUNS]
        return bool(runs.sum() >= self.min_runs and np.count_nonzero(runs) >= MIN_UNITS)

    def _add_answers(
        self, report: Report, family: Family, sizes: Sequence[Successes], i: int, k: int
    ) -> list[dict[str, Any]]:
        """Add the test of whole answers at the largest size, and return a row of the table of answers for each size.

        The test is left out if fewer than `min_runs` answers succeed, or if no token of an answer fails. A size with
        fewer answers has no row. `i` is the index of k in the counts.
        """
        rows = []
        for label, s, size in zip(family.labels, family.s, sizes, strict=True):
            totals = size.answers[:, i].sum(axis=0)
            answers = totals[BY_LENGTH].sum()
            if answers < self.min_runs:
                continue
            row = {**family.keys, "size": label, "S": s, "k": k, "answers": int(answers)}
            row["rbp_of_answers"] = totals[ANSWER_HITS] / totals[ANSWER_TOKENS]
            row["succeeded"] = totals[ANSWER_SUCCEEDED] / answers
            row["independent"] = float(expected_successes(size.answer_lengths, totals)) / answers
            rows.append(row)
        counts = _nonempty_rows(sizes[-1].answers[:, i])
        lengths = sizes[-1].answer_lengths
        totals = counts.sum(axis=0)
        if totals[ANSWER_SUCCEEDED] >= self.min_runs and totals[ANSWER_HITS] < totals[ANSWER_TOKENS]:
            ratio = estimate(counts, partial(ln_against_expected, lengths))
            beside = {name: rows[-1][name] for name in ("S", "answers", "succeeded", "independent")}
            keys: dict[str, Any] = {**family.keys, "metric": rbp_name(k)}
            report.add("whole_answers", ratio, null=0.0, show=np.exp, beside=beside, **keys)
        return rows


def _reasons_without_interval(family: Family, sizes: Sequence[Successes], ks: Sequence[int]) -> Iterator[str]:
    """Yield clauses that say which numbers of a family have no interval or cannot be computed, and why."""
    windows = [size.windows for size in sizes]
    fewest = min(windows, key=len)  # the size with the fewest documents
    if len(fewest) < MIN_DOCUMENTS_OF_N_EFF:
        yield (
            f"no intervals of p_N and N_eff: there are {counted(len(fewest), 'document')}, and at least "
            f"{MIN_DOCUMENTS_OF_N_EFF} are needed"
        )
    if len(sizes) == 2:
        yield f"no intervals of α_N: {why_no_interval(windows)}"
    elif clause := few_documents_clause(windows):
        yield clause
    if not ks:
        yield f"no window can fail, because no k is below |V| = {family.vocab_size}"


def estimate_from_many_documents(counts: FloatArray, statistic: Callable[[FloatArray], FloatArray]) -> Estimate:
    """Return the estimate of a statistic, without its error if there are fewer than `MIN_DOCUMENTS_OF_N_EFF` documents.

    Args:
        counts: counts of windows, (documents, 6).
        statistic: a function of such counts.

    """
    number = estimate(counts, statistic)
    return number if len(counts) >= MIN_DOCUMENTS_OF_N_EFF else number.without_error()


def _nonempty_rows(counts: FloatArray) -> FloatArray:
    """Return the rows of documents that have a window or a whole answer. counts: (documents, columns)."""
    return counts[counts[:, 0] > 0]


def _headline(report: Report) -> str:
    """Return the headline: N_eff of the longest windows, N_eff of the mixture, and the verdict on clustering."""
    if "n_eff" not in report.questions:
        return ""
    rows = report.frame("n_eff")
    metric = str(rows["metric"].iat[0])
    rows = rows[rows["metric"] == metric]
    longest = rows["N"].max()
    measured = range_text(rows[rows["N"] == longest]["n_eff"], ".1f")
    clustering = report.frame("clustering")
    longest_rows = clustering[(clustering["metric"] == metric) & (clustering["N"] == longest)]
    mixture = range_text(longest_rows["n_eff_mixture"], ".1f")
    comparison = f"{longest} tokens in a row succeed as often as {measured} independent tokens"
    texts = {"above": "right tokens cluster within documents", "below": "right tokens spread out within documents"}
    tested = verdict_clause(clustering, texts, noun="case", none="no clustering within documents was found")
    return join_clauses(
        f"{metric_label(metric)}: {comparison} ({mixture} if only documents differed)",
        tested or "there are too few documents to test clustering",
    )


def _draw(report: Report) -> None:
    """Draw p_N against S (figure 7 of the paper), alpha_N against N, and the share of whole answers that succeed."""
    windows = report.tables["windows"]
    keys = ["family", "dataset", "size", "S", "k", "N"]
    curves = [windows.assign(by="as measured")]
    for column, label in {"independent": "if independent: RBP_k^N", "mixture": "if only documents differ"}.items():
        visible = windows[windows[column] > 1e-7]
        curves.append(visible.assign(p_n=visible[column], low=np.nan, high=np.nan, by=label))
    points = pd.concat(curves)[[*keys, "p_n", "low", "high", "by"]].dropna(subset=["p_n"])
    points["panel"] = points["family"] + " on " + points["dataset"] + ", k = " + points["k"].astype(str)
    points["length"] = "N = " + points["N"].astype(str)
    title = "windows that succeed"
    points = points.rename(columns={"p_n": title})
    report.figures["success"] = facets(points, x="S", y=title, colour="length", facet="panel", dash="by", log="xy")
    if "alpha_n" in report.questions:
        laws = report.frame("alpha_n")
        laws["panel"] = laws["dataset"] + ", " + laws["metric"].map(metric_label)
        report.figures["alpha_n"] = facets(laws.rename(columns={"alpha_n": "α_N"}), x="N", y="α_N", facet="panel")
    if "answers" in report.tables:
        answers = report.tables["answers"].rename(columns={"succeeded": "as measured", "independent": "if independent"})
        title = "whole answers that succeed"
        shares = answers.melt(keys[:-1], ["as measured", "if independent"], "by", title).dropna()
        shares["panel"] = shares["dataset"] + ", k = " + shares["k"].astype(str)
        report.figures["answers"] = facets(shares, x="S", y=title, facet="panel", dash="by")
