"""Find statistics of known answers that order models as their scores in a task do (after arXiv 2605.18607).

A proxy is a statistic of the tokens of known answers (a dataset's last field). It is averaged within each answer and
then over answers. There are 24 proxies: eight statistics with three weightings of the tokens each. Kendall's tau
compares the order of the models by a proxy with their order by imported scores.

The best of 24 proxies looks too good on the models that were used to choose it. The analyzer therefore leaves out two
families, chooses the proxy on the other families, and judges it on the pairs with one model from each of the two.
Models of one family share a recipe and are not independent, so there are no tests and no intervals.

The report also shows the largest tau that chance gives. The analyzer assigns the scores to the models at random 1,000
times, and computes the largest tau of all proxies each time. The 95th percentile of these values is the value to beat.
It treats all models as exchangeable. If families differ, it is too low, and proxies look too good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from math import nan
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field, PositiveInt

from rbptrack.analysis import (
    POINT_COLUMNS,
    Analyzer,
    Glossary,
    Report,
    Runs,
    Term,
    Unreadable,
    counted,
    differing_facts,
    format_number,
    listed,
    split_by_facts,
    without_conflicts,
    without_repeats,
)
from rbptrack.figures import facets
from rbptrack.ranks import FloatArray, RankTable, rbp_name, sum_by
from rbptrack.stats import all_equal, first_largest, significant

from .scores import join_scores, last_checkpoints, unused_scores

GLOSSARY: Glossary = {
    "tau": Term("Kendall's tau of the scores and the proxy, with the sign that makes higher better", "τ", "+.2f"),
    "left_out": Term(
        "share of the pairs of models of two families that the proxy, chosen without them, orders as the scores do",
        "pairs right",
        ".0%",
    ),
    "fixed": Term("share of these pairs that this proxy orders as the scores do", "pairs right", ".0%"),
    "by_ce": Term("share of these pairs that cross-entropy orders as the scores do", "pairs right by CE", ".0%"),
    "metric": "the statistic of the answers' tokens, and its weighting; first: R = 1, rbp: R <= k",
    "task": "the task of the imported scores",
    "models": "number of models with a score",
    "families": "number of families with a score",
    "best_tau": Term("the largest tau of all proxies", "largest τ", "+.2f"),
    "by_chance": Term(
        "95th percentile of the largest tau of all proxies if scores are assigned to models at random",
        "by chance",
        "+.2f",
    ),
    "best": "the proxy with the largest tau",
    "chosen": "the proxies that were chosen, each time without two families",
    "score": Term("the imported score, a share of the task's items", form=".3f"),
    "proxy": Term("value of the proxy with the largest tau, which was chosen on these same models", form=".4g"),
}
STATISTICS = {
    "p": 1,  # p(target)
    "ce": -1,  # -ln p(target)
    "entropy": -1,  # entropy of the model's distribution
    "rbp": 1,  # R <= k
    "log_rank": -1,  # ln R
    "inverse_rank": 1,  # 1 / R
    "margin": -1,  # ln p(top) - ln p(target)
    "first": 1,  # R = 1
}
"""Statistics of a token with their signs: 1 if a better model should have a higher value, -1 if a lower one."""
WEIGHTINGS = ("", "entropy", "position")
"""Weights of the tokens of an answer: equal, the model's entropy, or the position in the answer (1, 2, ...)."""
PROXIES = list(product(STATISTICS, WEIGHTINGS))
SIGNS = np.array([STATISTICS[statistic] for statistic, _ in PROXIES])
ASSIGNMENTS = 1000
"""The number of random assignments of scores to models."""

CE_PROXY = PROXIES.index(("ce", ""))
_COLUMNS = ["document", "field", "rank", "logprob", "entropy", "top_logprob"]  # of the rank table


class Proxies(Analyzer):
    """Statistics of known answers, compared by how well they order models as their scores in a task do."""

    k: PositiveInt = 10
    """the k of RBP_k"""

    min_models: Annotated[int, Field(ge=3)] = 5
    """the smallest number of models with a score; a task with fewer models is left out"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        scores = runs.scores()
        if not len(scores):
            report.notes.append("The store has no scores of tasks. The command rbptrack import FILE imports them.")
            return report
        tables = []
        frame = without_repeats(runs.frame[runs.frame["vocab_size"].notna() & ~runs["without_ranks"].fillna(False)])
        for dataset, rows in _comparable_groups(frame):
            kept, conflicts = without_conflicts(rows)
            proxies, notes = self._read_proxies(runs, kept)
            report.notes += [*(f"{dataset}: {note}" for note in conflicts), *notes]
            if not proxies:
                continue
            with_proxies = kept[kept["run_id"].isin(list(proxies))]
            for task, scored in join_scores(with_proxies, scores).groupby("task", sort=True):
                models = last_checkpoints(scored)
                values = np.stack([proxies[run_id] for run_id in models["run_id"]])
                table = self._add_task(report, dataset, str(task), models, values)
                if table is not None:
                    tables.append(table)
        if not tables and not report.notes:
            report.notes.append("No dataset with answers (two fields or more) has models with scores.")
        report.notes += unused_scores(runs.frame, scores)
        if not tables:
            return report
        report.tables["models"] = pd.concat(tables, ignore_index=True)
        panels = report.tables["models"]
        panels = panels.assign(panel=panels["task"] + ", " + panels["dataset"] + ": " + panels["metric"])
        report.figures["best_proxy"] = facets(panels, x="proxy", y="score", facet="panel", log="", line=False)
        report.headline = _headline(report)
        return report

    def _read_proxies(self, runs: Runs, rows: pd.DataFrame) -> tuple[dict[str, FloatArray], list[str]]:
        """Compute the proxies of each measurement whose texts have answers.

        Returns:
            Values of the proxies by run ID, (proxies,), with the sign that makes higher better; and notes on
            measurements that are left out.

        """
        proxies: dict[str, FloatArray] = {}
        notes = []
        without_answers = []
        for _, row in rows.iterrows():
            name = f"{row['model']} on {row['dataset']}"
            try:
                pieces = runs.rank_pieces(row, ["document", "field"])
                last_field = max((int(piece.column_or("field", 0).max(initial=0)) for piece in pieces), default=0)
                if not last_field:
                    without_answers.append(name)
                    continue
                answers = [proxies_of_answers(piece, last_field, k=self.k) for piece in runs.rank_pieces(row, _COLUMNS)]
            except Unreadable as error:
                notes.append(f"{name} is left out: {error}.")
                continue
            values = np.concatenate(answers).mean(axis=0)
            unknown = [_label(PROXIES[i], self.k) for i in np.flatnonzero(np.isnan(values))]
            if unknown:
                notes.append(f"{name}: some proxies cannot be computed: {listed(unknown)}.")
            proxies[str(row["run_id"])] = SIGNS * values
        if without_answers and len(without_answers) < len(rows):  # a dataset without any answers needs no note
            notes.append(f"Left out, because their texts have no answers: {listed(without_answers)}.")
        return proxies, notes

    def _add_task(
        self, report: Report, dataset: str, task: str, models: pd.DataFrame, values: FloatArray
    ) -> pd.DataFrame | None:
        """Add the results of one task, and return a table with the score and the best proxy of each model.

        The result is None if too few models have a score, if all models have one score, or if no proxy distinguishes
        the models. A note then says so.

        Args:
            report: the report.
            dataset: the name of the dataset, with the conditions that distinguish these measurements from others of it.
            task: the name of the task.
            models: measurements of one dataset, one for each model, with the model's `score` in this task.
            values: the proxies of these models, (models, proxies), with the sign that makes higher better.

        """
        scores = models["score"].to_numpy(np.float64)
        if len(scores) < self.min_models:
            report.notes.append(
                f"{task}: {counted(len(scores), 'model')} with a score on {dataset}, but {self.min_models} are needed."
            )
            return None
        if all_equal(scores):
            report.notes.append(f"{task}: all {len(scores)} models on {dataset} have the same score.")
            return None
        families = models["family"].astype(str).to_numpy()
        taus = [kendall_tau(proxy, scores) for proxy in values.T]
        if np.isnan(taus).all():
            report.notes.append(f"{task}: no proxy is known for all models on {dataset} and distinguishes them.")
            return None
        best = first_largest(taus)
        left_out = leave_families_out(values, scores, families)
        keys: dict[str, Any] = {"family": "all", "dataset": dataset, "task": task}
        sizes = {"models": len(models), "families": len(set(families))}
        labels = [_label(proxy, self.k) for proxy in PROXIES]
        beside = sizes | {"by_chance": largest_by_chance(values, scores), "best": labels[best]}
        report.add("best_tau", taus[best], **keys, beside=beside)
        for i, tau in enumerate(taus):
            fixed = left_out.right_shares[i] if left_out else nan
            report.add("tau", tau, **keys, metric=labels[i], beside=sizes | {"fixed": fixed})
        if left_out:
            chosen = listed([labels[i] for i in left_out.chosen])
            beside = sizes | {"by_ce": left_out.right_shares[CE_PROXY], "chosen": chosen}
            report.add("left_out", left_out.right_share, **keys, beside=beside)
        else:
            report.notes.append(
                f"{task} on {dataset}: no proxy is judged on families that did not choose it. This needs two families "
                "whose models have different scores, and two models with different scores in the other families."
            )
        return pd.DataFrame(
            {
                "dataset": dataset,
                "task": task,
                "family": families,
                "model": models["model"],
                "score": scores,
                "metric": labels[best],
                "proxy": SIGNS[best] * values[:, best],
            }
        )


@dataclass(frozen=True)
class LeftOut:
    """How well proxies order models of families that were not used to choose them.

    Attributes:
        right_share: share of pairs of models of two families that are ordered rightly by the proxy that the other
            families choose.
        right_shares: share of the same pairs that each proxy orders rightly, (proxies,).
        chosen: indices in `PROXIES` of the proxies that were chosen, ascending.

    """

    right_share: float
    right_shares: FloatArray
    chosen: list[int]


def leave_families_out(values: FloatArray, scores: FloatArray, families: Any) -> LeftOut | None:
    """Choose the best proxy without two families, and judge it on pairs with one model from each of the two.

    Both models of a pair must be left out of the choice. If one of them took part, even proxies of pure noise would
    order 58% of the pairs rightly (24 proxies, and 16 models of four families). Ties count as half.

    Args:
        values: the proxies, (models, proxies), with the sign that makes higher better. NaN if unknown.
        scores: the scores in a task, (models,).
        families: the family of each model, (models,).

    Returns:
        The shares of pairs. None if there are fewer than three families, or if no two families can be left out: the
        models of both must have different scores, and among the other families two models must have different scores.

    """
    values = significant(values)
    scores = significant(scores)
    first, second = np.triu_indices(len(scores), k=1)
    has_order = scores[first] != scores[second]
    first = first[has_order]
    second = second[has_order]
    agreement = np.sign(values[first] - values[second]) * np.sign(scores[first] - scores[second])[:, None]
    right = (agreement + 1) / 2  # (pairs, proxies); 1 if the proxy has the order of the scores, 0.5 for a tie
    usable = np.flatnonzero(np.isfinite(values).all(axis=0))
    chosen: set[int] = set()
    right_of_chosen: list[float] = []
    is_judged = np.zeros(len(first), dtype=bool)
    for family, other_family in combinations(dict.fromkeys(families), 2):
        is_left_out = (families == family) | (families == other_family)
        chooses = ~is_left_out[first] & ~is_left_out[second]
        judges = is_left_out[first] & is_left_out[second] & (families[first] != families[second])
        if chooses.any() and judges.any():
            best = int(usable[first_largest(right[chooses][:, usable].mean(axis=0))])
            chosen.add(best)
            right_of_chosen += right[judges, best].tolist()
            is_judged |= judges
    if not right_of_chosen:
        return None
    return LeftOut(float(np.mean(right_of_chosen)), right[is_judged].mean(axis=0), sorted(chosen))


def largest_by_chance(values: FloatArray, scores: FloatArray) -> float:
    """Return the 95th percentile of the largest tau of all proxies, if scores are assigned to models at random.

    Tau is Kendall's tau-b.

    Args:
        values: the proxies, (models, proxies), with the sign that makes higher better. NaN if unknown.
        scores: the scores in a task, (models,).

    """
    is_usable = np.isfinite(values).all(axis=0) & ~np.array([all_equal(proxy) for proxy in values.T])
    usable_values = significant(values[:, is_usable])
    scores = significant(scores)
    first, second = np.triu_indices(len(scores), k=1)
    orders = np.sign(usable_values[first] - usable_values[second])  # (pairs, proxies)
    divisors = np.sqrt((orders**2).sum(axis=0) * np.count_nonzero(scores[first] != scores[second]))  # of tau-b
    rng = np.random.default_rng(0)
    largest_taus = []
    for _ in range(ASSIGNMENTS):
        assigned = rng.permutation(scores)
        largest_taus.append(float((np.sign(assigned[first] - assigned[second]) @ orders / divisors).max()))
    return float(np.quantile(largest_taus, 0.95))


def proxies_of_answers(table: RankTable, field: int, *, k: int) -> FloatArray:
    """Compute the proxies of each answer in a rank table of whole documents.

    Args:
        table: the rank table.
        field: the number of the field that holds answers.
        k: the k of RBP_k.

    Returns:
        Values in the order of `PROXIES`, (answers, proxies). NaN if the table lacks a column that a proxy needs.

    """
    in_answer = table.column_or("field", 0) == field
    if not in_answer.any():
        return np.empty((0, len(PROXIES)))
    document = table.column("document")[in_answer]
    rank = table.rank[in_answer].astype(np.float64)
    logprob = table.column("logprob")[in_answer].astype(np.float64)
    entropy = table.column_or("entropy", nan)[in_answer].astype(np.float64)
    top_logprob = table.column_or("top_logprob", nan)[in_answer].astype(np.float64)
    length = np.unique(document, return_counts=True)[1]
    start = np.repeat(np.cumsum(length) - length, length)  # the index of the first token of each token's answer
    statistics = {
        "p": np.exp(logprob),
        "ce": -logprob,
        "entropy": entropy,
        "rbp": rank <= k,
        "log_rank": np.log(rank),
        "inverse_rank": 1 / rank,
        "margin": top_logprob - logprob,
        "first": rank == 1,
    }
    weights = {"": np.ones(len(rank)), "entropy": entropy, "position": np.arange(len(rank)) - start + 1}
    terms = np.column_stack([weights[weighting] * statistics[statistic] for statistic, weighting in PROXIES])
    totals = np.column_stack([weights[weighting] for _, weighting in PROXIES])
    with np.errstate(invalid="ignore", divide="ignore"):  # if all entropies of an answer are 0, its weights add up to 0
        return np.asarray(sum_by(document, terms) / sum_by(document, totals))


def _comparable_groups(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield groups of comparable measurements of one dataset, each with its name."""
    for dataset, rows in frame.groupby("dataset", sort=True):
        # Models may differ in these columns: tokenizers and chat templates differ, and the last checkpoint is used.
        may_differ = ("num_tokens", "chat_template", *POINT_COLUMNS)
        keys = [key for key in differing_facts(rows) if key not in may_differ]
        yield from split_by_facts(str(dataset), rows, keys)


def kendall_tau(values: FloatArray, scores: FloatArray) -> float:
    """Return Kendall's tau-b of a proxy and the scores, (models,) each. NaN if a value is unknown or all are equal."""
    if not np.isfinite(values).all() or all_equal(values):
        return nan
    from scipy.stats import kendalltau  # takes 0.3 s, so it is imported only if there are scores

    return float(kendalltau(significant(values), significant(scores)).statistic)


def _label(proxy: tuple[str, str], k: int) -> str:
    """Return the name of a proxy, such as `rbp_10` or `ce by entropy`."""
    statistic, weighting = proxy
    name = rbp_name(k) if statistic == "rbp" else statistic
    return f"{name} by {weighting}" if weighting else name


def _headline(report: Report) -> str:
    """Return a sentence on how well the chosen proxy orders models, compared with chance."""
    if "left_out" in report.questions:
        row = report.frame("left_out").iloc[0]
        best = report.frame("best_tau")
        best = best[(best["task"] == row["task"]) & (best["dataset"] == row["dataset"])].iloc[0]
        right = format_number(row["left_out"], ".0%")
        by_ce = format_number(row["by_ce"], ".0%")
        chance = "" if best["best_tau"] > best["by_chance"] else "; no τ is larger than chance gives"
        return (
            f"{row['task']} by answers of {row['dataset']}: proxies that were chosen on other families order {right} "
            f"of the pairs of models rightly, cross-entropy {by_ce}{chance}."
        )
    row = report.frame("best_tau").iloc[0]
    tau, by_chance = format_number(row["best_tau"], "+.2f"), format_number(row["by_chance"], "+.2f")
    return (
        f"{row['task']}: of {len(PROXIES)} proxies, {row['best']} orders these same models best (τ = {tau}); "
        f"chance gives up to {by_chance}."
    )
