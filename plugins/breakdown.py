"""Where are models worse, and where does size help: CE, RBP_k and alpha by class of token, position, field and source.

Each class is set against the rest of the same tokens: the level at the largest size, and the exponent by the law of
their ratio, over the same models and documents. Classes of token are kinds (word, identifier, number, punctuation,
white space), whether a token begins a word, and how frequent it is in the dataset; they need token ids, and the first
two their texts. Positions are bins that double in width, in the documents that reach the last one, so that all bins
read the same documents. A source (`dataset.group`) is compared over its own documents; elsewhere sources are the units.
Tokens differ in length between sources and fields, so that CE per token does not say alone which text is harder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import PositiveInt

from rbptrack.analysis import Analyzer, Family, Report, Runs, Term, read_families, sentence, verdicts
from rbptrack.figures import intervals
from rbptrack.ranks import CE, FloatArray, IntArray, RankTable, metric_label, rbp_name, sum_by
from rbptrack.stats import (
    MIN_UNITS,
    Estimate,
    ce_and_missed,
    ce_and_rbp,
    first_largest,
    from_influences,
    influences,
    laws,
)

KINDS = ("word", "identifier", "number", "punctuation", "white space", "other")
DECADES = ("1e-2 and more", "1e-3 to 1e-2", "1e-4 to 1e-3", "1e-5 to 1e-4", "below 1e-5")
POSITION = "position"
SOURCE = "source"
MIN_REACH = 5  # documents, and half of all, that reach the last bin of positions
MIN_TOKENS = 20  # of a bin of positions
MAX_SOURCES = 20  # those of most tokens are told apart

_WORD = re.compile(r"[^\W\d_]+(['’][^\W\d_]+)?")
_IDENTIFIER = re.compile(r"\w*[^\W\d_]\w*")  # letters with digits, underscores or inner capitals


def kind_of(text: str) -> str:
    """The kind of a token by its text, of `KINDS`; white space before it does not count."""
    stripped = text.strip()
    if not stripped:
        return "white space" if text else "other"
    if "\ufffd" in stripped:  # part of a character
        return "other"
    if stripped.replace(".", "").replace(",", "").isnumeric():
        return "number"
    if _WORD.fullmatch(stripped):
        inner = any(a.islower() and b.isupper() for a, b in pairwise(stripped))
        return "identifier" if inner else "word"
    if _IDENTIFIER.fullmatch(stripped):
        return "identifier"
    return "other" if any(c.isalnum() for c in stripped) else "punctuation"


@dataclass(frozen=True)
class Classification:
    """A way of putting tokens into classes, by a column of the rank table.

    Attributes:
        column: its name.
        names: of the classes.
        class_of: for each value of the column, the index of its class.

    """

    column: str
    names: tuple[str, ...]
    class_of: IntArray


def classifications_of(
    occurrences: IntArray, fields: IntArray, last: int, texts: Sequence[str]
) -> dict[str, Classification]:
    """The classifications that a run's tokens allow, by name; that by position, in bins that double, is always there.

    Args:
        occurrences: how often each token id is scored, (ids,); empty where ids are not known.
        fields: how many tokens are of each field, (fields,).
        last: the largest position.
        texts: of the ids that occur; empty where they are not known.

    """
    by_name = {}
    ids = np.flatnonzero(occurrences)
    if len(texts) and any(texts):
        kind = np.full(len(occurrences), KINDS.index("other"))
        kind[ids] = [KINDS.index(kind_of(text)) for text in texts]
        inside = np.ones(len(occurrences), dtype=np.int64)
        inside[ids] = [not text[:1].isspace() for text in texts]
        by_name["kind of token"] = Classification("token", KINDS, kind)
        by_name["place in the word"] = Classification("token", ("begins a word", "inside a word"), inside)
    if len(ids):
        share = np.maximum(occurrences / occurrences.sum(), 1e-12)
        decade = np.digitize(-np.log10(share), [2, 3, 4, 5], right=True)
        by_name["share of the dataset"] = Classification("token", DECADES, decade)
    if np.count_nonzero(fields) > 1:
        names_of_fields = tuple(f"field {i}" for i in range(len(fields)))
        by_name["field"] = Classification("field", names_of_fields, np.arange(len(fields)))
    bin_of = np.frexp(np.arange(last + 1, dtype=np.float64))[1]  # 0, 1, 2-3, 4-7, ... -> 0, 1, 2, 3, ...
    names = ["0", "1"]
    for bits in range(2, int(bin_of[-1]) + 1):
        names.append(f"{2 ** (bits - 1)} to {2**bits - 1}")
    by_name[POSITION] = Classification("position", tuple(names[: bin_of[-1] + 1]), bin_of)
    return by_name


def sum_by_class(
    piece: RankTable, classifications: Mapping[str, Classification], ks: Sequence[int]
) -> dict[str, FloatArray]:
    """Tokens, nats and hits of each k by document and class, (documents, classes, 2 + ks), for each classification.

    A classification by token is left out where a token's id is not known.
    """
    present, document = piece.documents
    nats = -piece.column("logprob").astype(np.float64)
    weights = [None, nats, *((piece.rank <= k).astype(np.float64) for k in ks)]
    sums_by_name = {}
    for name, classification in classifications.items():
        value = piece.column_or(classification.column, -1)
        if int(value.min(initial=0)) < 0 or int(value.max(initial=0)) >= len(classification.class_of):
            continue
        classes = len(classification.names)
        cell = document * classes + classification.class_of[value]
        sums = [np.bincount(cell, weights=each, minlength=len(present) * classes) for each in weights]
        sums_by_name[name] = np.stack(sums, axis=1, dtype=np.float64).reshape(len(present), classes, -1)
    return sums_by_name


def of_documents_that_reach_the_end(sums: FloatArray) -> FloatArray:
    """The sums by position of those documents that reach the last bin; 0 elsewhere.

    The last bin is the last one that half of all documents, and at least 5, reach.
    """
    there = sums[:, :, 0] > 0
    common_bins = np.flatnonzero(there.sum(axis=0) >= max(MIN_REACH, len(sums) / 2))
    if not len(common_bins):
        return np.zeros_like(sums)
    last = common_bins[-1]
    kept = sums * there[:, last, None, None]
    kept[:, last + 1 :] = 0
    kept[:, kept[..., 0].sum(axis=0) < MIN_TOKENS] = 0
    return kept


@dataclass(frozen=True)
class ClassSums:
    """Sums by document and class, for each classification.

    Attributes:
        all_classes: tokens, nats and hits of each k over all classes, (documents, 2 + ks).
        sums: by classification, the same of each class, (documents, classes, 2 + ks).
        names: by classification, the names of its classes.

    """

    all_classes: FloatArray
    sums: dict[str, FloatArray]
    names: dict[str, tuple[str, ...]]

    def __add__(self, other: Self) -> Self:
        names = {by: names for by, names in self.names.items() if names == other.names.get(by)}
        sums = {by: self.sums[by] + other.sums[by] for by in names}
        return replace(self, all_classes=self.all_classes + other.all_classes, sums=sums, names=names)

    def in_groups(self, groups: Sequence[str]) -> Self:
        """Sum by source, and class the documents by their source: those of most tokens, and all others as one class."""
        sources, source = np.unique(np.asarray(groups), return_inverse=True)
        order = np.argsort(-np.bincount(source, weights=self.all_classes[:, 0]), kind="stable")
        shown = [str(name) for name in sources[order[:MAX_SOURCES]]]
        if len(sources) > MAX_SOURCES:
            shown.append(f"{len(sources) - MAX_SOURCES} other sources")
        class_of_document = np.minimum(np.argsort(order), MAX_SOURCES)[source]
        is_of_class = class_of_document[:, None] == np.arange(len(shown))
        by_source = is_of_class[:, :, None] * self.all_classes[:, None]  # documents stay apart
        sums = {by: sum_by(groups, of_classes) for by, of_classes in self.sums.items()}
        return replace(
            self,
            all_classes=sum_by(groups, self.all_classes),
            sums=sums | {SOURCE: by_source},
            names=self.names | {SOURCE: tuple(shown)},
        )


GLOSSARY = {
    "level": Term(
        "CE (nats) or RBP_k of the class minus that of all other tokens, at the largest size", "level", "+.3f"
    ),
    "alpha": Term("exponent in size of CE or -ln RBP_k within the class", "α"),
    "delta": Term(
        "exponent of the class minus that of all other tokens, by the law of their ratio", "Δα vs. the rest", "+.3f"
    ),
    "by": Term("how tokens are classed"),
    "class": Term("the class of tokens"),
    "share": Term("of the scored tokens", form=".1%"),
    "value": Term("CE or RBP_k of the class at the largest size"),
    "rest": Term("the same of all other tokens"),
    "R2": Term("of the law in logarithms", "R²"),
}


class Breakdown(Analyzer):
    """Where are models worse, and where does size help: each class of tokens and each source against the rest."""

    cost: ClassVar[int] = 4
    ks: tuple[PositiveInt, ...] = (10,)
    """the k of RBP_k, beside CE"""

    def analyze(self, runs: Runs) -> Report:
        """Class the tokens of every measurement; exponents need 2 sizes, and 3 for intervals."""
        report = Report(GLOSSARY)
        by_family: dict[str, dict[str, Classification]] = {}  # all models of a family read the same tokens

        def load(family: Family, run_id: str) -> ClassSums:
            name = str(family)
            if name not in by_family:
                by_family[name], missing = _read_classifications(runs, run_id)
                if missing:
                    report.notes.append(f"{family}: {missing}.")
            return _read_sums(runs, run_id, by_family[name], family.ks_below_vocab(self.ks))

        for family, sizes in read_families(runs, load, report.notes):
            metrics = [CE, *map(rbp_name, family.ks_below_vocab(self.ks))]
            for by, classes in sizes[0].names.items():
                if not all(size.names.get(by) == classes for size in sizes):
                    continue
                for i, name in enumerate(classes):
                    pairs = [_class_and_rest(size.sums[by], i) for size in sizes]
                    _compare(report, {**family.keys, "by": by, "class": name}, metrics, family.s, pairs)
        report.headline = _headline(report)
        if report.questions:
            _draw(report)
        return report


def _read_sums(runs: Runs, run_id: str, classifications: Mapping[str, Classification], ks: Sequence[int]) -> ClassSums:
    """The sums of one run, for each classification that all of its tokens have a class in."""
    columns = ["document", "position", "field", "token", "rank", "logprob"]
    pieces = [sum_by_class(piece, classifications, ks) for piece in runs.rank_pieces(run_id, columns)]
    names = {}
    for name, classification in classifications.items():
        if all(name in piece for piece in pieces):
            names[name] = classification.names
    sums = {name: np.concatenate([piece[name] for piece in pieces]) for name in names}
    all_classes = sums[POSITION].sum(axis=1)
    sums[POSITION] = of_documents_that_reach_the_end(sums[POSITION])
    return ClassSums(all_classes, sums, names)


def _class_and_rest(sums: FloatArray, i: int) -> FloatArray:
    """Sums of the i-th class and of all others, (documents, 2, 2 + ks), of (documents, classes, 2 + ks)."""
    return np.stack([sums[:, i], sums.sum(axis=1) - sums[:, i]], axis=1)


def _compare(
    report: Report, case: dict[str, Any], metrics: Sequence[str], s: FloatArray, pairs: Sequence[FloatArray]
) -> None:
    """Add one class against the rest: at each size S, (m,), the sums of both, (documents, 2, 2 + ks)."""
    largest = pairs[-1].sum(axis=0)
    if not largest[:, 0].all():
        return  # no tokens, or nothing beside them
    documents = (pairs[-1][:, :, 0] > 0).sum(axis=0)  # that have the class, and that have others
    enough = documents.min() >= MIN_UNITS
    difference, u = influences(pairs[-1], lambda x: ce_and_rbp(x[..., 0, :]) - ce_and_rbp(x[..., 1, :]))
    own, rest = ce_and_rbp(largest)
    share = largest[0, 0] / largest[:, 0].sum()
    for i, metric in enumerate(metrics):
        level = _with_error_if(enough, from_influences(difference[i], u[:, i]))
        beside = {"share": share, "value": own[i], "rest": rest[i]}
        report.add("level", level, null=0.0, metric=metric, beside=beside, **case)
    if len(s) == 1:
        return
    of_class = laws(s, [pair[:, 0] for pair in pairs], ce_and_missed)
    ratios = laws(s, pairs, lambda x: ce_and_missed(x[..., 0, :]) / ce_and_missed(x[..., 1, :]))
    for metric, law, ratio in zip(metrics, of_class, ratios, strict=True):
        if law and ratio:
            report.add("alpha", _with_error_if(enough, law.alpha), metric=metric, beside={"R2": law.r2}, **case)
            report.add("delta", _with_error_if(enough, ratio.alpha), null=0.0, metric=metric, **case)


def _with_error_if(enough: bool, estimate: Estimate) -> Estimate:
    """The estimate; without an interval where too few documents have the class, or others."""
    return estimate if enough else estimate.without_error()


def _draw(report: Report) -> None:
    """Draw the exponents of the last k by class, and the levels of CE."""
    for question, title, null in (("alpha", "α of {}", None), ("level", "{} minus that of all other tokens", 0.0)):
        if question not in report.questions:
            continue
        rows = report.frame(question)
        metric = CE if question == "level" else str(rows["metric"].iat[-1])
        rows = rows[rows["metric"] == metric]
        rows["panel"] = rows["dataset"] + ": " + rows["by"]
        title = title.format(metric_label(metric))
        rows = rows.rename(columns={question: title})
        report.figures[question] = intervals(rows, x=title, y="class", facet="panel", null=null)


def _read_classifications(runs: Runs, run_id: str) -> tuple[dict[str, Classification], str]:
    """The classifications of a run's tokens, and what is left out for lack of token ids or texts."""
    occurrences = np.zeros(0, dtype=np.int64)
    fields = np.zeros(0, dtype=np.int64)
    last_position = 0
    ids_known = True
    for piece in runs.rank_pieces(run_id, ["document", "position", "field", "token"]):
        fields = _add_counts(fields, piece.column("field"))
        last_position = max(last_position, int(piece.column("position").max(initial=0)))
        token = piece.column_or("token", -1)
        ids_known = ids_known and int(token.min(initial=0)) >= 0
        if ids_known:
            occurrences = _add_counts(occurrences, token)
    if not ids_known:
        missing = "imported without token ids, so that no classes of token are told apart"
        return classifications_of(np.zeros(0, dtype=np.int64), fields, last_position, ()), missing
    ids = np.flatnonzero(occurrences).tolist()
    texts = [json.loads(text) if text.startswith('"') else "" for text in runs.token_texts(run_id, ids)]
    missing = "" if any(texts) else "the texts of tokens were not kept, so that kinds and places in words are left out"
    return classifications_of(occurrences, fields, last_position, texts), missing


def _add_counts(counts: IntArray, numbers: IntArray) -> IntArray:
    """Counts of 0, 1, ... with those of further numbers."""
    more = np.bincount(numbers, minlength=len(counts))
    more[: len(counts)] += counts
    return more


def _headline(report: Report) -> str:
    for question, what in {"delta": "exponent", "level": "level"}.items():
        if question not in report.questions:
            continue
        rows = report.frame(question)
        said = verdicts(
            rows,
            {"differs": f"classes of tokens differ from the rest in {what}"},
            noun="case",
            none=f"no class of tokens was found to differ from the rest in {what}",
        )
        apart = rows[rows["verdict"].isin(["above", "below"])]
        if not len(apart):
            if said:
                return sentence(said)
            continue
        widest = apart.iloc[first_largest(apart[question].abs().to_numpy(np.float64))]
        where = f"{widest['class']} ({widest['by']}), {metric_label(widest['metric'])} on {widest['dataset']}"
        return sentence(said, f"the most: {where}")
    if not report.questions:
        return ""
    return f"{report.results['class'].nunique()} classes of tokens were compared; too few documents to tell them apart."
