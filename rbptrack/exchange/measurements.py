"""Check the rows of imported measurements, and build measurements from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from rbptrack.analysis.importing import ImportedMeasurement
from rbptrack.analysis.model_names import plain_name
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.exchange.values import RESULTS, drop_missing, place_prefix, shorten_value, to_number
from rbptrack.measurement.build import check_ranks, conditions, from_numbers, from_ranks, named_fields
from rbptrack.measurement.columns import IMPORTABLE_COLUMNS
from rbptrack.measurement.document import ROUNDING, Measurement
from rbptrack.measurement.parts import MAX_TEXT_LENGTH, Name
from rbptrack.ranks import CE, HEADLINE_KS, RankSums, RankTable, is_rbp_column, parse_rbp_name, rbp_ks, rbp_name
from rbptrack.ranks.near_copies import near_copies_in


class _NamedModel(TypedDict):
    model: Name


_CE_TOLERANCE = 0.02  # the allowed relative difference of CE; a mean over batches does not weigh all tokens alike
_MODEL: TypeAdapter[_NamedModel] = TypeAdapter(_NamedModel)
_SEED = re.compile(r"[-_. ]seed[-_. ]?(\d{1,9})(?=$|[-_@])", re.IGNORECASE)


def check_measurement(item: ImportedMeasurement, read_name: Callable[[str], tuple[str, str]]) -> Measurement:
    """Check the columns of a measurement. If its ranks are known, compare the columns with numbers computed from them.

    Raises:
        ValidationError: a column breaks a rule.
        BadInput: a column is unknown, disagrees with the ranks, or the table of ranks is empty.

    """
    columns = {name: to_number(name, value) for name, value in drop_missing(item.columns).items()}
    for name in columns:
        if name not in ("model", *IMPORTABLE_COLUMNS) and not is_rbp_column(name):
            raise BadInput(f"{place_prefix(item.place)}the column {name[:40]} cannot be imported")
    if "model" not in columns:
        raise BadInput(f"{place_prefix(item.place)}model is missing")
    columns["model"] = plain_name(_MODEL.validate_python(columns)["model"])[0]
    named = dict(columns)
    name = str(columns["model"])
    if seed := _SEED.search(name):
        name = name[: seed.start()] + name[seed.end() :]
        named.setdefault("seed", int(seed[1]))
    if not {"family", "size"} <= columns.keys():
        family, size = read_name(name)
        named.setdefault("family", family)
        named.setdefault("size", size)
    if named.get("checkpoint") == "main":
        del named["checkpoint"]
    facts = {"repo": item.repo, "notes": " ".join(item.notes.split())[:MAX_TEXT_LENGTH]}
    if item.ranks is None:
        return from_numbers(named, imported_as=conditions(columns), **facts)
    if not len(item.ranks):
        raise BadInput(f"{place_prefix(item.place)}the table of ranks is empty")
    try:
        check_ranks(item.ranks)
    except RbptrackError as error:
        raise BadInput(f"{place_prefix(item.place)}{error}") from error
    return _check_against_ranks(item, item.ranks, named, conditions(columns), facts)


def _check_against_ranks(
    item: ImportedMeasurement, ranks: RankTable, columns: dict[str, Any], imported_as: str, facts: dict[str, str]
) -> Measurement:
    """Build a measurement from its ranks. Raises BadInput if a column disagrees with them."""
    ks = {k for k in rbp_ks(columns) if k <= ranks.vocab_size} | {k for k in HEADLINE_KS if k < ranks.vocab_size}
    sums = RankSums.of([ranks], sorted(ks), ranks.vocab_size)
    stated = from_numbers({CE: ranks.ce} | columns, imported_as=imported_as)
    fields = named_fields(columns) | {"documents": len(ranks.documents[0]), "imported_as": imported_as}
    measurement = from_ranks(fields, sums, groups=near_copies_in(ranks), notes=[facts["notes"]], repo=facts["repo"])
    computed = {name: getattr(measurement, name) for name in ("num_tokens", "documents", "vocab_size", *RESULTS)}
    computed |= {rbp_name(k): share for k, share in measurement.rbp.items()}
    faults = []
    for name, value in computed.items():
        if name not in columns:
            continue
        k = parse_rbp_name(name)
        number = getattr(stated, name) if k is None else stated.rbp.get(k)
        if value is None or abs(number - value) > _allowed_difference(name, value):
            place = item.places.get(name, item.place)
            given = "do not give it" if value is None else f"give {value:.6g}"
            fault = f"{name} is {shorten_value(item.columns[name])}, but the ranks {given}"
            faults.append(f"{place_prefix(place)}{fault}")
    if faults:
        raise BadInput("\n".join(faults))
    return measurement


def _allowed_difference(name: str, value: float) -> float:
    """Return by how much the number in a file may differ from `value`, which was computed from the ranks."""
    if name == "tie_rate" or parse_rbp_name(name):
        return ROUNDING
    return _CE_TOLERANCE * abs(value) if name in RESULTS else 0.0
