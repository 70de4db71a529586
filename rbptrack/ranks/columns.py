"""The columns of a rank table, by version."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("document", pa.int32()),  # the document's number in the selection, from 0
        ("position", pa.int32()),  # the token's index in its tokenised document, from 0
        ("field", pa.int8()),  # which of the dataset's fields the token came from
        ("token", pa.int32()),  # the target's id in the vocabulary
        ("greater", pa.int32()),  # entries with a logit strictly above the target's
        ("ties", pa.int32()),  # other entries with a logit equal to the target's
        ("logprob", pa.float32()),  # ln p(target), nats
    ]
)

ADDED = pa.schema(
    [
        ("entropy", pa.float32()),  # of the model's distribution, nats
        ("top", pa.int32()),  # the id that the model ranks first; of several with one logit, the smallest
        ("top_logprob", pa.float32()),  # ln p(top), nats
    ]
)
"""The columns of version 2: all of them are there, or none."""

COMPARED = pa.schema(
    [
        ("kl", pa.float32()),  # KL(reference || model), nats
        ("accept", pa.float32()),  # sum over v of min(p, q): how often a draft of this model's is accepted
        ("reference_top", pa.int32()),  # the id that the reference ranks first; of several with one logit, the smallest
        ("reference_rank", pa.int32()),  # its rank in this model, greater + ties + 1
    ]
)
"""The columns of a measurement with `reference=`, over the entries that the tokenizer can name."""

IDS = ("token", "top", "reference_top")
"""The columns from which the text can be read."""

VERSION = 2
"""Of the tables that are written today."""

SCHEMAS = (SCHEMA, pa.schema([*SCHEMA, *ADDED]), pa.schema([*SCHEMA, *ADDED, *COMPARED]))


def version_of(schema: pa.Schema) -> int:
    """Return the version of a rank table with these columns."""
    return min(VERSION, len(fitting(schema.names)))


def fitting(names: Iterable[str]) -> list[pa.Schema]:
    """Return the schemas with every column present, `SCHEMA` in any case; each holds the one before."""
    there = {*SCHEMA.names, *names}
    return [schema for schema in SCHEMAS if there.issuperset(schema.names)]
