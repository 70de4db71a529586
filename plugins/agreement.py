"""Compare two measurements of the same tokens, token by token.

Examples are a quantised or pruned model and its base, a fine-tuned model and its start, two successive checkpoints, or
bfloat16 and float32. The comparison of single tokens shows differences that are not visible in two averages.
`rbptrack compare A B` prints this comparison for one pair.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import combinations, pairwise
from typing import Any

import pandas as pd
from pydantic import NonNegativeInt, PositiveInt

from rbptrack.analysis import (
    BY_DOCUMENT,
    CHANGES_GLOSSARY,
    Analyzer,
    BadInput,
    Report,
    Runs,
    Unreadable,
    add_changes,
    compare_runs,
    counted,
    format_number,
    join_clauses,
    listed,
    natural_key,
    pair_name,
    same_tokens,
    verdict_clause,
    without_repeats,
    worst_tokens,
)
from rbptrack.figures import intervals
from rbptrack.ranks import CE, HEADLINE_KS
from rbptrack.stats import MIN_UNITS, OtherTokens

Pair = tuple[pd.Series, pd.Series]


class Agreement(Analyzer):
    """Agreement of two measurements of the same tokens, changes of CE and RBP_k, and the tokens that changed most.

    Without the options a and b, the analyzer pairs measurements of one model (family, size and seed):

    - each checkpoint with the next one by training tokens, or by name if these are unknown, in the same precision;
    - the other revisions of a checkpoint with the revision that was measured first, in the same precision;
    - the other precisions of the same weights with float32, or with float16 if float32 was not measured.

    If a model was measured with and without a reference on the same tokens, only one of the two measurements is used.
    """

    a: str = ""
    """pattern of the first measurement's name, such as pythia-1b*; changes are those from the first to the second"""

    b: str = ""
    """pattern of the second measurement's name"""

    k: tuple[PositiveInt, ...] = HEADLINE_KS
    """the k of RBP_k"""

    worst: NonNegativeInt = 10
    """the number of tokens to show for each pair: those with the largest fall in ln p"""

    max_pairs: PositiveInt = 100
    """the largest number of pairs; with more pairs, nothing is compared"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(CHANGES_GLOSSARY)
        pairs = list(self._select_pairs(runs.frame))
        if not pairs:
            note = "No model was measured on the same tokens in two precisions or at two checkpoints."
            if self.a or self.b:
                note = f"No two measurements of the same tokens match a={self.a or '*'} b={self.b or '*'}."
            report.notes.append(note)
            return report
        if len(pairs) > self.max_pairs:
            raise BadInput(
                f"there are {len(pairs)} pairs, but max_pairs={self.max_pairs}: select pairs with a= and b=, or set a "
                "larger max_pairs"
            )
        tables = []
        for name, (first, second) in zip(_pair_names(pairs), pairs, strict=True):
            try:
                changes = compare_runs(runs, first, second, ks=self.k, worst=self.worst)
            except (Unreadable, OtherTokens) as error:
                report.notes.append(f"{name} on {first['dataset']} is left out: {error}.")
                continue
            unread = runs.unread_groups.get(str(first["run_id"]))
            if unread:
                report.notes.append(f"{name} on {first['dataset']}: {unread}, {BY_DOCUMENT}.")
            add_changes(report, changes, family=str(first["family"]), dataset=str(first["dataset"]), pair=name)
            table = worst_tokens(runs, second, changes.worst_tokens)
            table.insert(0, "pair", name)
            table.insert(0, "dataset", first["dataset"])
            tables.append(table)
        if not tables:
            return report
        report.tables["worst_tokens"] = pd.concat(tables, ignore_index=True)
        ce_changes = report.frame("change")
        ce_changes = ce_changes[ce_changes["metric"] == CE]
        without_interval = ce_changes[ce_changes["low"].isna()]
        if len(without_interval):
            cases = (without_interval["pair"] + " on " + without_interval["dataset"]).tolist()
            report.notes.append(
                f"{listed(cases)}: no intervals, because fewer than {MIN_UNITS} documents or groups were measured."
            )
        title = "CE of the second minus the first, nats"
        drawn = ce_changes.rename(columns={"change": title})
        report.figures["change"] = intervals(drawn, x=title, y="pair", null=0.0)
        report.headline = _headline(report, ce_changes)
        return report

    def _select_pairs(self, frame: pd.DataFrame) -> Iterator[Pair]:
        """Yield the pairs of measurements to compare: those that match a and b, or else those of each model."""
        ranked = without_repeats(frame[~frame["without_ranks"].fillna(False)])
        for rows in same_tokens(ranked):
            if self.a or self.b:
                yield from self._pairs_by_name(rows)
            else:
                model = rows["model"].str.partition("@")[0]  # without its checkpoint
                for _, same_model in rows.groupby(["family", model], sort=True):
                    if len(same_model) > 1:
                        yield from _pairs_of_model(same_model)

    def _pairs_by_name(self, rows: pd.DataFrame) -> Iterator[Pair]:
        """Yield the pairs with names that match both patterns. A pair that matches in both orders is yielded once."""
        measurements = [row for _, row in rows.iterrows()]
        for first, second in combinations(measurements, 2):
            if _name_matches(first, self.a) and _name_matches(second, self.b):
                yield first, second
            elif _name_matches(second, self.a) and _name_matches(first, self.b):
                yield second, first


def _pairs_of_model(rows: pd.DataFrame) -> Iterator[Pair]:
    """Yield pairs of measurements of one model that differ only in the checkpoint, the revision or the precision."""
    by_age = rows.sort_values(["started", "run_id"], na_position="first")
    places = [_place_in_training(row) for _, row in by_age.iterrows()]
    in_training = by_age.iloc[sorted(range(len(places)), key=places.__getitem__)]
    ordered = in_training.sort_values("dtype", ascending=False, kind="stable")
    ordered = ordered.sort_values("dtype", key=lambda dtype: dtype.ne("float32"), kind="stable")  # float32 comes first
    # Revisions of one checkpoint may have different names if the number of training tokens is known.
    name = ordered["checkpoint"].where(ordered["training_tokens"].isna())
    for _, same_precision in ordered.groupby("dtype", dropna=False, sort=False):
        by_checkpoint = same_precision.groupby(["training_tokens", name], dropna=False, sort=False)
        checkpoints = [checkpoint for _, checkpoint in by_checkpoint]
        yield from pairwise(checkpoint.iloc[0] for checkpoint in checkpoints)
        for checkpoint in checkpoints:
            yield from _pairs_with_first(checkpoint)
    for _, same_weights in ordered.groupby(["training_tokens", "checkpoint", "commit"], dropna=False, sort=False):
        yield from _pairs_with_first(same_weights.drop_duplicates("dtype"))


def _place_in_training(row: pd.Series[Any]) -> tuple[float, bool, tuple[object, ...]]:
    """Return a key that sorts by training tokens, then by checkpoint. Unknown tokens and final weights come last."""
    tokens, checkpoint = row["training_tokens"], row["checkpoint"]
    return (
        math.inf if pd.isna(tokens) else float(tokens),
        pd.isna(checkpoint),
        () if pd.isna(checkpoint) else natural_key(str(checkpoint)),
    )


def _pairs_with_first(rows: pd.DataFrame) -> Iterator[Pair]:
    for i in range(1, len(rows)):
        yield rows.iloc[0], rows.iloc[i]


def _pair_names(pairs: Sequence[Pair]) -> list[str]:
    """Return a name for each pair, which no other pair on the same dataset has.

    The name says how the measurements differ. If two pairs would have the same name, it is both names of measurements.
    """
    names = [pair_name(first, second) for first, second in pairs]
    occurrences = Counter((first["dataset"], name) for name, (first, _) in zip(names, pairs, strict=True))
    unique_names = []
    for name, (first, second) in zip(names, pairs, strict=True):
        if occurrences[first["dataset"], name] > 1:
            name = f"{_name_without_dataset(first)} / {_name_without_dataset(second)}"
        unique_names.append(name)
    return unique_names


def _name_matches(row: pd.Series[Any], pattern: str) -> bool:
    """Return whether a measurement's name, with or without the dataset, or its model's name matches a pattern."""
    names = (str(row["name"]), _name_without_dataset(row), str(row["model"]))
    return not pattern or any(fnmatchcase(name, pattern) for name in names)


def _name_without_dataset(row: pd.Series[Any]) -> str:
    """Return a measurement's name without the dataset: `nano-6k@bfloat16` for `nano-6k/wiki@bfloat16`."""
    model, _, conditions = str(row["name"]).partition(f"/{row['dataset']}")
    return model + conditions


def _headline(report: Report, ce_changes: pd.DataFrame) -> str:
    if len(ce_changes) == 1:
        row = ce_changes.iloc[0]
        same_top = ""
        if "same_top" in report.questions:
            share = format_number(report.frame("same_top")["same_top"].item(), ".1%")
            same_top = f"both measurements rank the same token first at {share} of the tokens; "
        change = format_number(row["change"], "+.4f")
        return f"{row['pair']}: {same_top}CE changes by {change} nats ({row['verdict'] or 'not tested'})."
    texts = {"differs": "CE differs", "same": "CE is the same up to rounding"}
    tested = verdict_clause(ce_changes, texts, noun="pair", none="no difference in CE was found")
    return join_clauses(
        tested or f"{counted(len(ce_changes), 'pair')} could not be tested, because there are too few documents"
    )
