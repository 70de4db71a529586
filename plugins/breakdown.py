"""Compare CE, RBP_k and alpha of classes of tokens: by kind of token, position, field and group.

The analyzer compares each class with all other tokens in two ways: by the level of CE and RBP_k at the largest size,
and by the exponent in size. It fits a law to the ratio of the class to all other tokens. The exponent of this law is
the difference of the two exponents.

Tokens are divided into classes by kind (word, identifier, number, punctuation, white space), by whether they begin a
word, and by their frequency in the dataset. All of these need token ids; the first two also need the texts of tokens.
Bins of positions double in width. All bins use the same documents: those that are long enough to reach the last bin. If
the classes are groups (`dataset.group`, such as books or sites), errors are computed over documents. For all other
classes, errors are computed over groups if groups are known. Near copies of a document are a group, but not a class.

Tokens differ in length between groups and fields. CE per token alone therefore does not show which text is harder.
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

from rbptrack.analysis import (
    Analyzer,
    Family,
    Glossary,
    Report,
    Runs,
    Term,
    headline_metric,
    join_clauses,
    range_text,
    read_families,
    verdict_clause,
)
from rbptrack.figures import intervals
from rbptrack.ranks import (
    CE,
    FloatArray,
    IntArray,
    RankTable,
    first_of_group,
    metric_label,
    rbp_name,
    sum_by,
)
from rbptrack.stats import (
    MIN_UNITS,
    Estimate,
    ce_and_neg_log_rbp,
    ce_and_rbp,
    estimates,
    first_largest,
    laws,
)

KINDS = ("word", "identifier", "number", "punctuation", "white space", "other")
DECADES = ("1% and more", "0.1% to 1%", "0.01% to 0.1%", "0.001% to 0.01%", "below 0.001%")
POSITION = "position"
GROUP = "group"
MIN_REACH = 5  # at least this many documents, and half of all documents, must reach the last bin of positions
MIN_TOKENS = 20  # bins of positions with fewer tokens are left out
MAX_GROUPS = 20  # the largest number of groups that have a class of their own

_WORD = re.compile(r"[^\W\d_]+(['’][^\W\d_]+)?")
_IDENTIFIER = re.compile(r"\w*[^\W\d_]\w*")  # letters with digits, underscores or inner capitals


def kind_of(text: str) -> str:
    """Return the kind of a token, one of `KINDS`. White space around other characters is ignored.

    text: the text of the token; empty if it is unknown.
    """
    stripped = text.strip()
    if not stripped:
        return "white space" if text else "other"
    if "\ufffd" in stripped:  # the token holds a part of a character
        return "other"
    if stripped.replace(".", "").replace(",", "").isnumeric():
        return "number"
    if _WORD.fullmatch(stripped):
        has_inner_capital = any(a.islower() and b.isupper() for a, b in pairwise(stripped))
        return "identifier" if has_inner_capital else "word"
    if _IDENTIFIER.fullmatch(stripped):
        return "identifier"
    return "other" if any(c.isalnum() for c in stripped) else "punctuation"


@dataclass(frozen=True)
class Classification:
    """A division of tokens into classes by a column of the rank table.

    Attributes:
        column: the name of the column.
        names: the names of the classes.
        class_of: the index of the class of each value of the column, (values,).

    """

    column: str
    names: tuple[str, ...]
    class_of: IntArray


def make_classifications(
    occurrences: IntArray, fields: IntArray, last: int, texts: Sequence[str]
) -> dict[str, Classification]:
    """Make the classifications that a run's data allow, by name.

    The classification by position is always made. The others need token ids, texts or several fields.

    Args:
        occurrences: the number of scored tokens with each id, (ids,); empty if ids are unknown.
        fields: the number of scored tokens in each field, (fields,).
        last: the largest position.
        texts: the texts of the ids that occur, in the order of the ids; empty if they are unknown.

    """
    classifications = {}
    ids = np.flatnonzero(occurrences)
    if len(texts) and any(texts):
        kind_of_id = np.full(len(occurrences), KINDS.index("other"))
        kind_of_id[ids] = [KINDS.index(kind_of(text)) for text in texts]
        is_inside = np.ones(len(occurrences), dtype=np.int64)
        is_inside[ids] = [not text[:1].isspace() for text in texts]
        classifications["kind of token"] = Classification("token", KINDS, kind_of_id)
        classifications["place in the word"] = Classification("token", ("begins a word", "inside a word"), is_inside)
    if len(ids):
        share = np.maximum(occurrences / occurrences.sum(), 1e-12)
        decade_of_id = np.digitize(-np.log10(share), [2, 3, 4, 5], right=True)
        classifications["share of the dataset"] = Classification("token", DECADES, decade_of_id)
    if np.count_nonzero(fields) > 1:
        field_names = tuple(f"field {i}" for i in range(len(fields)))
        classifications["field"] = Classification("field", field_names, np.arange(len(fields)))
    bin_of_position = np.frexp(np.arange(last + 1, dtype=np.float64))[1]  # 0, 1, 2-3, 4-7, ... -> 0, 1, 2, 3, ...
    last_bin = int(bin_of_position[-1])
    bin_names = ["0", "1", *(f"{2 ** (bits - 1)} to {2**bits - 1}" for bits in range(2, last_bin + 1))]
    classifications[POSITION] = Classification("position", tuple(bin_names[: last_bin + 1]), bin_of_position)
    return classifications


def sum_by_class(
    piece: RankTable, classifications: Mapping[str, Classification], ks: Sequence[int]
) -> dict[str, FloatArray]:
    """Sum tokens, nats and the hits at each k by document and class, for each classification.

    Args:
        piece: a rank table of whole documents.
        classifications: the classifications, by name.
        ks: the k.

    Returns:
        The sums of each classification, (documents, classes, 2 + ks), by its name. A classification is left out if some
        token of the piece has no class, for example because its id is unknown.

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
        cell = document * classes + classification.class_of[value]  # the number of the pair of document and class
        columns = [np.bincount(cell, weights=weight, minlength=len(present) * classes) for weight in weights]
        sums_by_name[name] = np.stack(columns, axis=1, dtype=np.float64).reshape(len(present), classes, -1)
    return sums_by_name


def keep_documents_that_reach_last_bin(sums: FloatArray) -> FloatArray:
    """Set the sums of bins of positions to 0 for documents that do not reach the last bin.

    The last bin is the last one that at least `MIN_REACH` documents, and at least half of all documents, reach. Later
    bins, and bins with fewer than `MIN_TOKENS` tokens, are also set to 0.

    Args:
        sums: tokens, nats and hits by document and bin, (documents, bins, 2 + ks).

    """
    reached = sums[:, :, 0] > 0
    common_bins = np.flatnonzero(reached.sum(axis=0) >= max(MIN_REACH, len(sums) / 2))
    if not len(common_bins):
        return np.zeros_like(sums)
    last_bin = common_bins[-1]
    kept_sums = sums * reached[:, last_bin, None, None]
    kept_sums[:, last_bin + 1 :] = 0
    kept_sums[:, kept_sums[..., 0].sum(axis=0) < MIN_TOKENS] = 0
    return kept_sums


@dataclass(frozen=True)
class ClassSums:
    """Sums by document and class of one run, for several classifications.

    `+` adds the sums of two runs for the classifications that both have, with the same classes. With groups, the
    rows of all sums but those of `GROUP` are groups.

    Attributes:
        document: numbers of the documents, (documents,).
        all_classes: tokens, nats and the hits at each k over all classes, (documents, 2 + ks).
        sums: tokens, nats and the hits at each k by class, (documents, classes, 2 + ks), for each classification.
        names: the names of the classes, for each classification.

    """

    document: IntArray
    all_classes: FloatArray
    sums: dict[str, FloatArray]
    names: dict[str, tuple[str, ...]]

    def __add__(self, other: Self) -> Self:
        names = {by: names for by, names in self.names.items() if names == other.names.get(by)}
        sums = {by: self.sums[by] + other.sums[by] for by in names}
        return replace(self, all_classes=self.all_classes + other.all_classes, sums=sums, names=names)

    def in_groups(self, groups: Sequence[str]) -> Self:
        """Return the sums by group, and add the classification `GROUP`, in which each group is a class.

        The rows of the new classification's sums remain documents. The `MAX_GROUPS` groups with the most tokens have a
        class each. All other groups share a class.

        Args:
            groups: the group of each document.

        """
        names, group = np.unique(np.asarray(groups), return_inverse=True)
        order = np.argsort(-np.bincount(group, weights=self.all_classes[:, 0]), kind="stable")
        class_names = [str(name) for name in names[order[:MAX_GROUPS]]]
        if len(names) > MAX_GROUPS:
            class_names.append(f"{len(names) - MAX_GROUPS} other groups")
        class_of_document = np.minimum(np.argsort(order), MAX_GROUPS)[group]
        is_in_class = class_of_document[:, None] == np.arange(len(class_names))  # (documents, classes)
        first = first_of_group(self.document, groups)
        sums = {by: sum_by(first, class_sums) for by, class_sums in self.sums.items()}
        sums[GROUP] = is_in_class[:, :, None] * self.all_classes[:, None]
        return replace(
            self,
            all_classes=sum_by(first, self.all_classes),
            sums=sums,
            names=self.names | {GROUP: tuple(class_names)},
        )


GLOSSARY: Glossary = {
    "level": Term(
        "CE (nats) or RBP_k of the class minus that of all other tokens, at the largest size", "level", "+.3f"
    ),
    "alpha": Term("exponent in size of CE or -ln RBP_k within the class", "α"),
    "delta": Term(
        "exponent of the class minus exponent of all other tokens, which is the exponent of their ratio",
        "Δα vs. the rest",
        "+.3f",
    ),
    "by": Term("the property by which tokens are divided into classes"),
    "class": Term("the class of tokens"),
    "share": Term("share of the scored tokens that belong to the class", form=".1%"),
    "value": Term("CE or RBP_k of the class at the largest size"),
    "rest": Term("CE or RBP_k of all other tokens at the largest size"),
}


class Breakdown(Analyzer):
    """CE, RBP_k and exponents of each class of tokens and each group, compared with those of all other tokens."""

    cost: ClassVar[int] = 4
    k: tuple[PositiveInt, ...] = (10,)
    """the k of RBP_k; CE is always included"""

    def analyze(self, runs: Runs) -> Report:
        """Compare the classes of tokens of every measurement. Exponents need 2 sizes; their intervals need 3."""
        report = Report(GLOSSARY)
        classifications: dict[str, dict[str, Classification]] = {}  # by family: its models read the same tokens

        def load(family: Family, run_id: str) -> ClassSums:
            name = str(family)
            if name not in classifications:
                classifications[name], missing = _read_classifications(runs, run_id)
                if missing:
                    report.notes.append(f"{family}: {missing}.")
            return _read_sums(runs, run_id, classifications[name], family.ks_below_vocab(self.k))

        reading = read_families(runs, load)
        for family, sizes in reading:
            metrics = [CE, *map(rbp_name, family.ks_below_vocab(self.k))]
            for by, classes in sizes[0].names.items():
                if not all(size.names.get(by) == classes for size in sizes):
                    continue
                if by == GROUP and family.rows["group"].isna().all():  # groups of near copies are not classes
                    continue
                for i, name in enumerate(classes):
                    pairs = [_class_and_rest(size.sums[by], i) for size in sizes]
                    compare_with_rest(report, {**family.keys, "by": by, "class": name}, metrics, family.s, pairs)
        report.notes += reading.notes
        if report.questions:
            report.headline = _headline(report)
            _draw(report)
        return report


def _read_sums(runs: Runs, run_id: str, classifications: Mapping[str, Classification], ks: Sequence[int]) -> ClassSums:
    """Read the sums of one run for each classification that has a class for all of the run's tokens."""
    columns = ["document", "position", "field", "token", "rank", "logprob"]
    document = [np.zeros(0, dtype=np.int64)]
    pieces = []
    for piece in runs.rank_pieces(run_id, columns):
        document.append(piece.documents[0])
        pieces.append(sum_by_class(piece, classifications, ks))
    names = {by: value.names for by, value in classifications.items() if all(by in piece for piece in pieces)}
    sums = {name: np.concatenate([piece[name] for piece in pieces]) for name in names}
    all_classes = sums[POSITION].sum(axis=1)
    sums[POSITION] = keep_documents_that_reach_last_bin(sums[POSITION])
    return ClassSums(np.concatenate(document), all_classes, sums, names)


def _class_and_rest(sums: FloatArray, i: int) -> FloatArray:
    """Return the sums of the i-th class and of all others, (documents, 2, 2 + ks)."""
    return np.stack([sums[:, i], sums.sum(axis=1) - sums[:, i]], axis=1)


def compare_with_rest(
    report: Report, case: dict[str, Any], metrics: Sequence[str], s: FloatArray, pairs: Sequence[FloatArray]
) -> None:
    """Add the comparison of one class with the rest to a report.

    If RBP_k of the class or of the rest is 0 or 1, the level has no error. All documents then agree, and their spread
    does not show how far the share is from that of other documents.

    Args:
        report: the report.
        case: the keys of the results: family, dataset, classification and class.
        metrics: the metrics in the order of the sums: CE and each RBP_k.
        s: the sizes S, (m,).
        pairs: the sums of the class and of the rest at each size, m arrays of (documents, 2, 2 + ks).

    """
    largest = pairs[-1].sum(axis=0)
    if not largest[:, 0].all():
        return  # the class has no tokens, or all tokens
    documents = (pairs[-1][:, :, 0] > 0).sum(axis=0)  # number of documents with the class, and with other tokens

    def drop_error_of_few_documents(estimate: Estimate) -> Estimate:
        return estimate if documents.min() >= MIN_UNITS else estimate.without_error()

    levels = estimates(pairs[-1], lambda x: ce_and_rbp(x[..., 0, :]) - ce_and_rbp(x[..., 1, :]))
    class_values, rest_values = ce_and_rbp(largest)
    share = largest[0, 0] / largest[:, 0].sum()
    for i, (metric, level) in enumerate(zip(metrics, levels, strict=True)):
        if metric != CE and not (0 < class_values[i] < 1 and 0 < rest_values[i] < 1):
            level = level.without_error()
        beside = {"share": share, "value": class_values[i], "rest": rest_values[i]}
        report.add("level", drop_error_of_few_documents(level), null=0.0, metric=metric, beside=beside, **case)
    if len(s) == 1:
        return
    class_laws = laws(s, [pair[:, 0] for pair in pairs], ce_and_neg_log_rbp)
    ratios = laws(s, pairs, lambda x: ce_and_neg_log_rbp(x[..., 0, :]) / ce_and_neg_log_rbp(x[..., 1, :]))
    for metric, law, ratio in zip(metrics, class_laws, ratios, strict=True):
        if law and ratio:
            report.add("alpha", drop_error_of_few_documents(law.alpha), metric=metric, beside={"R2": law.r2}, **case)
            report.add("delta", drop_error_of_few_documents(ratio.alpha), null=0.0, metric=metric, **case)


def _draw(report: Report) -> None:
    """Draw the exponents of the headline's metric by class, and the levels of CE."""
    for question, title, null in (("alpha", "α of {}", None), ("level", "{} minus that of all other tokens", 0.0)):
        if question not in report.questions:
            continue
        rows = report.frame(question)
        metric = CE if question == "level" else headline_metric(rows["metric"])
        rows = rows[rows["metric"] == metric]
        rows["panel"] = rows["dataset"] + ": " + rows["by"]
        title = title.format(metric_label(metric))
        rows = rows.rename(columns={question: title})
        report.figures[question] = intervals(rows, x=title, y="class", facet="panel", null=null)


def _read_classifications(runs: Runs, run_id: str) -> tuple[dict[str, Classification], str]:
    """Return the classifications of a run's tokens, and a note if token ids or texts are missing (otherwise empty)."""
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
        missing = "tokens are only classed by position and field, because they were imported without ids"
        return make_classifications(np.zeros(0, dtype=np.int64), fields, last_position, ()), missing
    ids = np.flatnonzero(occurrences).tolist()
    texts = [json.loads(text) if text.startswith('"') else "" for text in runs.token_texts(run_id, ids)]
    missing = ""
    if not any(texts):
        missing = "tokens are not classed by kind or by place in the word, because their texts were not saved"
    return make_classifications(occurrences, fields, last_position, texts), missing


def _add_counts(counts: IntArray, numbers: IntArray) -> IntArray:
    """Count how often each number 0, 1, ... occurs in `numbers`, and add the earlier counts, which may be shorter."""
    total = np.bincount(numbers, minlength=len(counts))
    total[: len(counts)] += counts
    return total


def _headline(report: Report) -> str:
    """Return how many classes differ in exponent, or else in level, and the class that differs most."""
    for question, quantity in {"delta": "exponent", "level": "level"}.items():
        rows = report.frame(question)
        if question == "level":  # nats and shares cannot be compared
            rows = rows[rows["metric"] == CE]
        if not len(rows):
            continue
        span = range_text(rows[question], "+.3f")
        tested = verdict_clause(
            rows,
            {"differs": f"classes of tokens differ from the rest in {quantity}"},
            noun="case",
            none=f"the {quantity} of classes of tokens minus that of the rest is {span}",
        )
        different = rows[rows["verdict"].isin(["above", "below"])]
        if len(different):
            largest = different.iloc[first_largest(different[question].abs().to_numpy(np.float64))]
            metric = metric_label(largest["metric"])
            name = f"{largest['class']} ({largest['by']}), {metric} on {largest['dataset']}"
            return join_clauses(tested, f"the largest difference is that of {name}")
        if tested:
            return tested
    classes = report.results["class"].nunique()
    return f"{classes} classes of tokens were compared; there are too few documents to test their differences."
