"""Two sides to compare: families on the same texts, or one family on two datasets; their models and their laws."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, reduce
from itertools import combinations
from typing import Any

import numpy as np

from rbptrack.analysis.families import Family, families, read_families
from rbptrack.analysis.runs import Runs, Unreadable
from rbptrack.ranks import CE, DocumentCounts, rbp_name, se_name
from rbptrack.stats.bootstrap import BOOTSTRAP_SEED, document_weights
from rbptrack.stats.contrasts import Apart, at_equal, laws_apart
from rbptrack.stats.size_laws import LawValues, law_values

from .differences import (
    LOG_NATS,
    Difference,
    logged_difference,
    metric_errors,
    on_common_documents,
    paired_differences,
)
from .whole_words import TokenShapes, WordCounts

BITS = "bits per byte"
_SAME_BYTES = 0.005  # a first token that is not scored is longer in one tokenizer than in another


@dataclass(frozen=True)
class Side:
    """One family on one dataset, and its counts at each size, ascending in S; none where they were not kept."""

    family: Family
    counts: list[DocumentCounts]
    words: list[WordCounts]

    @property
    def path(self) -> str:
        """What the options a and b are patterns of: `pythia/wiki`."""
        return f"{self.family.name}/{self.family.dataset}"

    def model(self, i: int) -> str:
        """Return the i-th model: its family, whatever sets this part of it apart, and its size."""
        return f"{self.family.rows['family'].iloc[0]}-{self.family.labels[i]}"

    def num_bytes(self, i: int) -> float:
        """Return UTF-8 bytes of the text that the i-th model was scored on."""
        ce, tokens, bits = (self.family.column(name)[i] for name in (CE, "num_tokens", "bits_per_byte"))
        return float(ce * tokens / (np.log(2) * bits)) if bits > 0 else float("nan")

    def logged(self, i: int, ks: Sequence[int]) -> dict[str, tuple[float, float]]:
        """Return metric -> value and standard error of the i-th model, as logged if it has no ranks; NaN where it was
        not.
        """
        if self.counts:
            return metric_errors(self.counts[i])
        names = [CE, *map(rbp_name, ks)]
        pairs = {n: (self.family.column(n)[i], self.family.column(se_name(n))[i]) for n in names}
        return {n: pair for n, pair in pairs.items() if np.isfinite(pair[0])}

    @cached_property
    def values(self) -> LawValues | None:
        """What laws are fitted to; None where a law cannot be."""
        return law_values(self.counts) if self.counts and len(self.family.s) >= 3 else None

    @cached_property
    def word_values(self) -> LawValues | None:
        """The same of whole words."""
        if not self.words or len(self.family.s) < 3:
            return None
        weights = document_weights(len(self.words[0].document))
        metrics = (BITS, *(f"words_{k}" for k in self.words[0].ks))
        values = np.concatenate([size.values(np.ones((1, weights.shape[1]))) for size in self.words])
        return LawValues(metrics, values, np.stack([size.values(weights) for size in self.words]))


@dataclass(frozen=True)
class Pair:
    """Two sides that share a dataset, or a family."""

    a: Side
    b: Side

    @property
    def same_dataset(self) -> bool:
        """Whether two families are compared, not two datasets."""
        return self.a.family.dataset == self.b.family.dataset

    @property
    def same_family(self) -> bool:
        """Whether the two are one family in two precisions, or at two checkpoints, on one dataset."""
        names = [side.family.rows["family"].iloc[0] for side in (self.a, self.b)]
        return self.same_dataset and names[0] == names[1]

    @cached_property
    def other_tokens(self) -> bool:
        """Whether the same texts were cut into other tokens."""
        columns = ("vocab_size", "num_tokens")
        a, b = ([{*side.family.rows[name].dropna()} for name in columns] for side in (self.a, self.b))
        return self.a.family.shares_texts(self.b.family) and a != b

    @property
    def keys(self) -> dict[str, Any]:
        """What the two differ in, and what they share."""
        a = self.a.family
        b = self.b.family
        if self.same_dataset:
            return {"A": a.name, "B": b.name, "on": a.dataset}
        return {"A": a.dataset, "B": b.dataset, "on": a.name}

    def case(self, metric: str) -> dict[str, str]:
        """Return the keys of a finding."""
        shared = "dataset" if self.same_dataset else "family"
        return {"a": self.keys["A"], "b": self.keys["B"], shared: self.keys["on"], "metric": metric}

    def equal_sizes(self, within: float) -> Iterator[tuple[int, int]]:
        """Yield places of sizes that count as equal, at most a factor `within` apart: each of A with the nearest of
        B.
        """
        for i, s in enumerate(self.a.family.s):
            apart = np.abs(np.log(self.b.family.s / s))
            if apart.min() <= np.log(within):
                yield i, int(apart.argmin())

    def differences(
        self, i: int, j: int, ks: Sequence[int], *, replicates: int
    ) -> Iterator[tuple[str, Difference, dict[str, Any]]]:
        """Yield metric, difference, and how it was made, of the i-th model of A and the j-th of B on the same texts."""
        a = self.a
        b = self.b
        if not (a.counts and b.counts):
            left = a.logged(i, ks)
            right = b.logged(j, ks)
            for number, metric in enumerate(m for m in left if m in right):
                seed = BOOTSTRAP_SEED + 1000 * (i + 1) + number
                x, x_se = left[metric]
                y, y_se = right[metric]
                yield metric, logged_difference(x, y, x_se, y_se, replicates=replicates, seed=seed), {}
            return
        left_counts, right_counts = on_common_documents(a.counts[i], b.counts[j])
        differences = paired_differences(left_counts, right_counts, replicates=replicates, seed=BOOTSTRAP_SEED)
        if not abs(a.num_bytes(i) / b.num_bytes(j) - 1) <= _SAME_BYTES:
            del differences[LOG_NATS]
        how = {
            "paired": True,
            "documents": len(left_counts.document),
            "same_tokens": bool(left_counts.tokens.sum() == right_counts.tokens.sum()),
        }
        for metric, difference in differences.items():
            yield metric, difference, how

    def laws(self, *, at_equal_ce: bool, level: float) -> Iterator[tuple[str, Apart]]:
        """Yield metric, and the laws of both against each other: in S, or in CE (bits per byte) where the ranges
        overlap.
        """
        words = self.same_dataset and self.other_tokens
        values_a, values_b = (side.word_values if words else side.values for side in (self.a, self.b))
        if values_a is None or values_b is None:
            return
        same = self.a.family.shares_texts(self.b.family)
        if words:  # else replicates are of other documents
            same = np.array_equal(self.a.words[0].document, self.b.words[0].document)
        a = (self.a.family.s, values_a)
        b = (self.b.family.s, values_b)
        if at_equal_ce:
            a, b = (at_equal(values, BITS if words else CE) for values in (values_a, values_b))
            if max(a[0].min(), b[0].min()) >= min(a[0].max(), b[0].max()):
                return
        for metric in (metric for metric in a[1].metrics if metric in b[1].metrics):
            if apart := laws_apart(a, b, metric, same_texts=same, level=level):
                yield metric, apart


def read_sides(runs: Runs, ks: Sequence[int], notes: list[str]) -> list[Side]:
    """Return every family on every dataset with its counts; without them where it came without ranks."""

    def load(family: Family, run_id: str) -> DocumentCounts:
        family.require_ranks()
        return runs.document_counts(run_id, [k for k in ks if k <= family.vocab_size])

    sides = [Side(family, counts, []) for family, counts in read_families(runs, load, notes)]
    read = {side.path for side in sides}
    rest = [Side(family, [], []) for family in families(runs, [])]
    return sides + [
        side
        for side in rest
        if side.path not in read and (np.isfinite(side.family.column(CE)).any() or side.family.logged_ks)
    ]


def pairs_of(sides: Sequence[Side], a: str = "*", b: str = "*") -> Iterator[Pair]:
    """Yield every two that share texts, or a family; of the first named by pattern a, the second by b
    (`pythia/wiki`).
    """
    for first, second in combinations(sides, 2):
        if first.family.candidates != second.family.candidates:  # ranks and CE are other quantities there
            continue
        imported = not (first.counts and second.counts)  # what texts an import read is often not known
        if first.family.dataset == second.family.dataset:
            shared = first.family.shares_texts(second.family) or imported
        else:
            shared = first.family.name == second.family.name
        for left, right in ((first, second), (second, first)):
            if shared and fnmatchcase(left.path, a) and fnmatchcase(right.path, b):
                yield Pair(left, right)
                break


def with_words(runs: Runs, pairs: Iterator[Pair], ks: Sequence[int]) -> list[Pair]:
    """Return the pairs, with whole words counted where tokenizers differ and the texts of tokens were kept."""
    every = list(pairs)
    differ = {side.path: side for pair in every if pair.other_tokens for side in (pair.a, pair.b)}
    sides = {path: replace(side, words=_count_words(runs, side.family, sorted(ks))) for path, side in differ.items()}
    return [Pair(sides.get(pair.a.path, pair.a), sides.get(pair.b.path, pair.b)) for pair in every]


def _count_words(runs: Runs, family: Family, ks: Sequence[int]) -> list[WordCounts]:
    def count(run_id: str) -> WordCounts:
        return WordCounts.concatenate(
            [WordCounts.of(piece, shapes, ks) for piece in runs.rank_pieces(run_id, version=1)]
        )

    texts = runs.vocabulary(family.run_ids[0][0])  # its models share a vocabulary
    shapes = TokenShapes.of(texts)
    try:
        return [reduce(operator.add, map(count, ids)) for ids in family.run_ids] if texts else []
    except Unreadable:
        return []
