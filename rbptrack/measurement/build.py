"""Build a measurement: from ranks, or from numbers that a table of results holds. Compare one with its ranks."""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rbptrack.base.errors import RbptrackError
from rbptrack.base.parquet import read_table
from rbptrack.measurement.columns import IMPORTABLE_COLUMNS
from rbptrack.measurement.document import PARTS, Measurement, by_k
from rbptrack.measurement.files import DOCUMENTS_FILE, HISTOGRAM_FILE, RANKS_FILE
from rbptrack.measurement.parts import MAX_TEXT_LENGTH, Result
from rbptrack.ranks import COLUMNS, COUNTED_COLUMNS, RankHistogram, RankSums, RankTable, log_grid
from rbptrack.stats.documents import covariance, influences
from rbptrack.stats.sums import ce_and_rbp

_TOLERANCE = 1e-6  # relative and absolute; another processor may round differently


def from_ranks(
    description: Mapping[str, Any],
    sums: RankSums,
    *,
    groups: Sequence[str] = (),
    notes: Sequence[str] = (),
    **others: Any,
) -> Measurement:
    """Build a measurement from its description and its ranks.

    Args:
        description: labels, keys and facts by field, as `describe` returns them. Results that ranks determine are not
            taken from it.
        sums: the sums of the rank table.
        groups: the group of each document, by the number of the document; empty if documents have no groups. If the
            description does not name the field of the groups (`group`), they are groups of near copies.
        notes: remarks that readers of the numbers must know. Repeated ones are left out.
        **others: results that ranks do not determine, such as `seconds` and `bits_per_byte`. NaN counts as unknown.

    """
    known = {name: value for name, value in others.items() if value is not None and not _is_nan(value)}
    described = {name: value for name, value in description.items() if name not in _DETERMINED}
    fields = {**described, **known, **results_of_ranks(sums, groups), "notes": join_notes(notes)}
    if groups and not description.get("group"):
        fields["notes"] = join_notes([_note_on_near_copies(groups), *notes])
    return Measurement.model_validate(fields)


def results_of_ranks(sums: RankSums, groups: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields of a measurement that its ranks determine.

    With too few documents (or groups), standard errors are left out.
    """
    counts = sums.counts
    histogram = sums.histogram
    fields: dict[str, Any] = {"num_tokens": histogram.num_tokens, "vocab_size": histogram.vocab_size}
    if groups:
        counts = counts.in_groups([groups[number] for number in counts.document.tolist()])
        fields["groups"] = len(set(groups))
    fields["ce"] = histogram.ce
    fields["rbp"] = {k: histogram.rbp(k) for k in counts.ks}
    variances = covariance(influences(counts, ce_and_rbp)[1]).diagonal()
    ce_se, *rbp_se = np.sqrt(variances).tolist()
    if math.isfinite(ce_se):
        fields["ce_se"] = ce_se
    fields["rbp_se"] = {k: error for k, error in zip(counts.ks, rbp_se, strict=True) if math.isfinite(error)}
    grid = log_grid(histogram.vocab_size)
    fields["rbp_curve"] = dict(zip(grid.tolist(), histogram.rbp_curve(grid).tolist(), strict=True))
    if sums.ce_parts is not None:
        fields["ce_rank"], fields["ce_rest"] = sums.ce_parts
    return fields | sums.means


def from_numbers(columns: Mapping[str, Any], *, imported_as: str, **facts: Any) -> Measurement:
    """Build a measurement without ranks from the columns of a row of results.

    If two of `ce`, `ce_rank` and `ce_rest` are known, the third is computed, because `ce` = `ce_rank` + `ce_rest`.

    Args:
        columns: importable columns, and rbp_<k> and rbp_<k>_se, by name. Missing values are left out.
        imported_as: what identifies the measurement (`conditions`).
        **facts: further fields, such as `repo` and `notes`.

    Raises:
        ValidationError: a column breaks a rule, cannot be imported, or contradicts another one.

    """
    fields = named_fields(columns)
    parts = {name: fields[name] for name in ("ce", "ce_rank", "ce_rest") if name in fields}
    if len(parts) == 2 and all(isinstance(value, int | float) for value in parts.values()):
        if "ce" not in parts:
            fields["ce"] = sum(parts.values())
        else:
            missing = "ce_rest" if "ce_rank" in parts else "ce_rank"
            remainder = parts["ce"] - sum(value for name, value in parts.items() if name != "ce")
            fields[missing] = remainder
    fields["rbp_curve"] = fields["rbp"]
    return Measurement.model_validate({**fields, **facts, "imported_as": imported_as, "without_ranks": True})


def named_fields(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a measurement for columns of a row of results. `model` is not a field.

    A context is left out if the sequence rule is not `slide`, because other rules have no context.
    """
    fields = {name: value for name, value in columns.items() if se_base(name) is None and name != "model"}
    fields |= by_k(columns)
    if fields.get("sequence", "slide") != "slide":
        fields.pop("context", None)
    return fields


def se_base(name: str) -> str | None:
    """Return `rbp_<k>` for a column `rbp_<k>` or `rbp_<k>_se`, and None for any other column."""
    base = name.removesuffix("_se")
    return base if by_k({base: 0})["rbp"] else None


def conditions(columns: Mapping[str, Any]) -> str:
    """Return the hash of what identifies an imported measurement: the names and settings that its file gives."""
    names = ["model", *(name for name in IMPORTABLE_COLUMNS if not isinstance(PARTS[name], Result))]
    fields = {**named_fields(columns), "model": columns["model"]}
    known = {name: str(fields[name]) for name in names if fields.get(name) not in (None, "")}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def join_notes(notes: Sequence[str]) -> str:
    """Join remarks to one line without repetitions."""
    return "; ".join(dict.fromkeys(" ".join(note.split()) for note in notes if note))[:MAX_TEXT_LENGTH]


def compute_histogram(ranks: Path) -> RankHistogram:
    """Compute how often each rank occurs in the rank table in a file. The table is read in pieces to save memory."""
    return reduce(operator.add, (piece.histogram() for piece in RankTable.read_pieces(ranks, COUNTED_COLUMNS)))


def faults_of_ranks(measurement: Measurement, folder: Path) -> Iterator[str]:
    """Count the ranks in a folder again, and yield a sentence for each result of a measurement that differs.

    The folder holds ranks.parquet and, if they are known, the documents and the histogram. Raises RbptrackError if a
    file is damaged or if a value in it is outside its range, and FileAccessError if it cannot be read.
    """
    documents = _read_documents(folder / DOCUMENTS_FILE)
    groups: list[str] = []
    if documents is not None:
        if measurement.documents != len(documents):
            yield f"documents is {measurement.documents}, but {DOCUMENTS_FILE} holds {len(documents):,}"
        if "group" in documents.column_names:
            groups = [str(group) for group in documents.column("group").to_pylist()]
    if measurement.vocab_size is None:
        raise RbptrackError("vocab_size is missing")
    sums = RankSums(sorted(measurement.rbp), measurement.vocab_size)
    last_document = -1
    for piece in RankTable.read_pieces(folder / RANKS_FILE):
        if piece.vocab_size != measurement.vocab_size:
            raise RbptrackError(f"vocab_size is {measurement.vocab_size}, but {RANKS_FILE} says {piece.vocab_size}")
        last_document = check_ranks(piece, last_document, len(documents) if documents is not None else None)
        sums.add(piece)
    if last_document < 0:
        raise RbptrackError(f"{RANKS_FILE} has no ranks")
    computed = results_of_ranks(sums, groups)
    for name in computed.keys() | _DETERMINED:
        yield from _differences(name, getattr(measurement, name), computed.get(name))
    if (folder / HISTOGRAM_FILE).is_file():
        histogram = RankHistogram.read(folder / HISTOGRAM_FILE)
        if not _is_same_histogram(histogram, sums.histogram):
            yield f"{HISTOGRAM_FILE} does not hold the histogram of the ranks"


def _is_same_histogram(a: RankHistogram, b: RankHistogram) -> bool:
    """Return whether two histograms are equal, apart from differences between processors in the last digits."""
    return (
        a.vocab_size == b.vocab_size
        and np.array_equal(a.rank, b.rank)
        and np.array_equal(a.count, b.count)
        and np.allclose(a.logprob, b.logprob, rtol=_TOLERANCE, atol=_TOLERANCE)
    )


_METRICS_OF_COLUMNS = [column.metric for column in COLUMNS.values() if column.metric]
_DETERMINED = ("ce", "ce_se", "rbp", "rbp_se", "ce_rank", "ce_rest", *_METRICS_OF_COLUMNS)
"""Results that only ranks give. A measurement must not state one that its ranks do not give."""


def _differences(name: str, stated: Any, computed: Any) -> Iterator[str]:
    """Yield a sentence for each number that differs between a measurement (`stated`) and its ranks (`computed`)."""
    if isinstance(stated, dict):
        numbers = computed or {}
        for k in sorted(stated.keys() | numbers.keys()):
            yield from _differences(name.replace("rbp", f"rbp_{k}"), stated.get(k), numbers.get(k))
    elif stated is None or computed is None:
        if stated is not computed:
            yield f"{name} is {_shown(stated)}, but the ranks give {_shown(computed)}"
    elif not same_number(stated, computed):
        yield f"{name} is {stated}, but the ranks give {computed}"


def same_number(a: float, b: float) -> bool:
    """Return whether two results are equal, apart from differences between processors in the last digits."""
    return math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _shown(value: float | None) -> str:
    return "missing" if value is None else str(value)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _read_documents(path: Path) -> pa.Table | None:
    """Read the table of documents, or return None if there is none. Raises RbptrackError if it breaks a rule."""
    if not path.exists():
        return None
    table = read_table(path, ["document", "id", "tokens", "group"])
    missing = [name for name in ("document", "id", "tokens") if name not in table.column_names]
    if missing:
        raise RbptrackError(f"{DOCUMENTS_FILE} lacks the columns {', '.join(missing)}")
    if not pa.types.is_integer(table.schema.field("tokens").type):
        raise RbptrackError(f"{DOCUMENTS_FILE}: the column tokens must hold whole numbers")
    if table.column("document").to_pylist() != list(range(len(table))):
        raise RbptrackError(f"{DOCUMENTS_FILE}: the column document must hold 0, 1, 2, ...")
    return table


def check_ranks(piece: RankTable, last_document: int = -1, num_documents: int | None = None) -> int:
    """Check the values of a rank table or of a piece of one, and return the number of its last document.

    Args:
        piece: whole documents of the table.
        last_document: the number of the last document of the previous piece.
        num_documents: the number of documents, or None if it is unknown.

    Raises RbptrackError if a value is outside its range.

    """
    if not len(piece):
        return last_document
    for name in piece.table.column_names:
        if piece.table.column(name).null_count:
            raise RbptrackError(f"{RANKS_FILE}: the column {name} has empty cells")
    document = piece.column("document")
    num_above = piece.above.astype(np.int64)
    smallest = min(pc.min(piece.table.column(name)).as_py() for name in ("document", "position", "greater"))
    floats = [field.name for field in piece.table.schema if pa.types.is_floating(field.type)]
    if smallest < 0 or num_above.min() < 0 or num_above.max() >= piece.vocab_size:
        raise RbptrackError(
            f"{RANKS_FILE}: ranks must be from 1 to |V| = {piece.vocab_size:,}, documents and positions from 0"
        )
    is_ascending = document[0] > last_document and (np.diff(document) >= 0).all()
    if not is_ascending or (num_documents is not None and document[-1] >= num_documents):
        raise RbptrackError(f"{RANKS_FILE}: documents must be in ascending order, and each in {DOCUMENTS_FILE}")
    if not all(np.isfinite(piece.column(name)).all() for name in floats) or piece.column("logprob").max() > 1e-3:
        raise RbptrackError(f"{RANKS_FILE}: {', '.join(floats)} must be finite, and logprob at most 0")
    if piece.column_or("token", -1).min() < -1:
        raise RbptrackError(f"{RANKS_FILE}: ids of tokens must be at least 0, or -1 if they are not known")
    if (np.diff(piece.column("position"))[np.diff(document) == 0] <= 0).any():
        raise RbptrackError(f"{RANKS_FILE}: positions must rise within a document")
    return int(document[-1])


def _note_on_near_copies(groups: Sequence[str]) -> str:
    """Return a sentence that says how many documents are distinct."""
    return (
        f"{len(groups):,} documents, {len(set(groups)):,} distinct: exact and near copies of a document count as one "
        "in intervals (dataset.group=FIELD names other groups)"
    )
