"""Compare two measurements of the same tokens: how often they agree, what changed, and which tokens changed most.

Examples are a quantised or pruned model and its base, a fine-tuned model and its start, two successive checkpoints, or
bfloat16 and float32. The analyzer compares the two measurements at each token. This shows differences that two separate
averages cannot show. `rbptrack compare A B` prints this comparison for one pair.
"""

from __future__ import annotations

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

    Without the options a and b, the analyzer pairs measurements of one model (family, size and seed). It pairs each
    checkpoint with the next one of the same precision, and every other precision or revision of a checkpoint with the
    first one.
    Measurements with and without a reference count as one measurement.
    """

    a: str = ""
    """pattern of the first measurement's name, such as pythia-1b* (the start, the base or the teacher)"""

    b: str = ""
    """pattern of the second measurement's name"""

    ks: tuple[PositiveInt, ...] = HEADLINE_KS
    """the k to compare at"""

    worst: NonNegativeInt = 10
    """how many tokens to show for each pair"""

    max_pairs: PositiveInt = 100
    """the largest number of pairs to read"""

    def analyze(self, runs: Runs) -> Report:
        report = Report(CHANGES_GLOSSARY)
        pairs = list(self._pairs(runs.frame))
        if not pairs:
            note = "No model was measured twice (precision, checkpoint) on the same tokens."
            if self.a or self.b:
                note = f"No two measurements of the same tokens match a={self.a or '*'} b={self.b or '*'}."
            report.notes.append(note)
            return report
        if len(pairs) > self.max_pairs:
            raise BadInput(f"{len(pairs)} pairs, and max_pairs={self.max_pairs}: choose with a= and b=")
        tables = []
        for name, (first, second) in zip(_pair_names(pairs), pairs, strict=True):
            try:
                changes = compare_runs(runs, first, second, ks=self.ks, worst=self.worst)
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
        without_ends = ce_changes[ce_changes["low"].isna()]
        if len(without_ends):
            cases = [f"{pair} on {dataset}" for pair, dataset in without_ends[["pair", "dataset"]].to_numpy().tolist()]
            report.notes.append(
                f"{listed(cases)}: no intervals, because fewer than {MIN_UNITS} documents were measured."
            )
        title = "CE of the second minus the first, nats"
        drawn = ce_changes.rename(columns={"change": title})
        report.figures["change"] = intervals(drawn, x=title, y="pair", null=0.0)
        report.headline = _headline(report, ce_changes)
        return report

    def _pairs(self, frame: pd.DataFrame) -> Iterator[Pair]:
        ranked = without_repeats(frame[~frame["without_ranks"].fillna(False)])
        for rows in same_tokens(ranked):
            if self.a or self.b:
                yield from self._named(rows)
            else:
                model = rows["model"].str.partition("@")[0]  # without its checkpoint
                for _, same_model in rows.groupby(["family", model], sort=True):
                    if len(same_model) > 1:
                        yield from _pairs_of_model(same_model)

    def _named(self, rows: pd.DataFrame) -> Iterator[Pair]:
        """Yield the pairs with names that match both patterns. A pair that matches in both orders is yielded once."""
        measurements = [row for _, row in rows.iterrows()]
        for left, right in combinations(measurements, 2):
            if _matches(left, self.a) and _matches(right, self.b):
                yield left, right
            elif _matches(right, self.a) and _matches(left, self.b):
                yield right, left


def _pairs_of_model(rows: pd.DataFrame) -> Iterator[Pair]:
    """Yield pairs of measurements of one model that differ only in the checkpoint, the revision or the precision."""
    ordered = rows.sort_values(["dtype", "run_id"], ascending=[False, True])
    ordered = ordered.sort_values("dtype", key=lambda dtype: dtype.ne("float32"), kind="stable")  # float32 comes first
    for _, same_precision in ordered.groupby("dtype", dropna=False, sort=False):
        checkpoints = [checkpoint for _, checkpoint in same_precision.groupby("training_tokens", dropna=False)]
        yield from pairwise(checkpoint.iloc[0] for checkpoint in checkpoints)
        for checkpoint in checkpoints:
            yield from _with_the_first(checkpoint)
    for _, same_weights in ordered.groupby(["training_tokens", "revision", "commit"], dropna=False):
        yield from _with_the_first(same_weights.drop_duplicates("dtype"))


def _with_the_first(rows: pd.DataFrame) -> Iterator[Pair]:
    for i in range(1, len(rows)):
        yield rows.iloc[0], rows.iloc[i]


def _pair_names(pairs: Sequence[Pair]) -> list[str]:
    """Return a unique name for each pair. It says what differs in the pair, or consists of both whole names."""
    names = [pair_name(first, second) for first, second in pairs]
    count = Counter((first["dataset"], name) for name, (first, _) in zip(names, pairs, strict=True))
    unique = []
    for name, (first, second) in zip(names, pairs, strict=True):
        unique.append(name if count[first["dataset"], name] == 1 else f"{_short(first)} / {_short(second)}")
    return unique


def _matches(row: pd.Series[Any], pattern: str) -> bool:
    names = (str(row["name"]), _short(row), str(row["model"]))
    return not pattern or any(fnmatchcase(name, pattern) for name in names)


def _short(row: pd.Series[Any]) -> str:
    """Return a measurement's name without the dataset, such as `nano-6k@bfloat16`."""
    model, _, marks = str(row["name"]).partition(f"/{row['dataset']}")
    return model + marks


def _headline(report: Report, changes: pd.DataFrame) -> str:
    if len(changes) == 1:  # there is one pair only
        row = changes.iloc[0]
        same_top = ""
        if "same_top" in report.questions:
            share = format_number(float(report.frame("same_top")["same_top"].sum()), ".1%")
            same_top = f"{share} of the tokens rank the same token first; "
        change = format_number(row["change"], "+.4f")
        return f"{row['pair']}: {same_top}CE changes by {change} nats ({row['verdict'] or 'no test'})."
    tested = verdict_clause(
        changes, {"differs": "CE differs"}, noun="pair", none="no difference in CE was found", power=True
    )
    return join_clauses(
        tested or f"{counted(len(changes), 'pair')} could not be tested, because there are too few documents"
    )
