"""Where documents come from: the artifact documents.parquet, and the tag that says by which field they are grouped.

Documents of one source (a site, a book, a repository) resemble each other, so bootstraps resample sources where they
are known. A grouping is not part of a measurement's numbers: measurements that lack it get it later.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rbptrack.ranks import DocumentCounts

DOCUMENTS = "documents.parquet"
"""The artifact: document (its number in the rank table), id, tokens, bytes, and group where one is named."""


@dataclass(frozen=True)
class DocumentGroups:
    """The source of every document of a selection of texts."""

    field: str  # of the dataset, that names it
    ids: tuple[str, ...]  # of the documents in the dataset, in order
    groups: tuple[str, ...]  # the source of each
    texts_hash: str  # SHA-256

    @property
    def tag(self) -> str:
        """The value of the tag `rbptrack.groups`: how many groups, by which field, and a hash of who is in which."""
        listed = "\n".join(self.groups)
        return f"{len(set(self.groups))} by {self.field} {hashlib.sha256(listed.encode()).hexdigest()[:8]}"

    def of(self, counts: DocumentCounts) -> list[str]:
        """Return the source of each row of counts."""
        return [self.groups[document] for document in counts.document]


def write_documents(path: Path, table: pd.DataFrame, groups: DocumentGroups | None) -> None:
    """Write the artifact from a table of document, id and tokens."""
    (table if groups is None else table.assign(group=list(groups.groups))).to_parquet(path, index=False)


def document_table(counts: DocumentCounts, groups: DocumentGroups) -> pd.DataFrame:
    """Return the same table of a measurement whose texts were read again: scored tokens by document."""
    tokens = np.zeros(len(groups.ids), dtype=np.int64)
    tokens[counts.document] = counts.tokens
    return pd.DataFrame({"document": range(len(tokens)), "id": list(groups.ids), "tokens": tokens})


def read_groups(path: Path) -> list[str]:
    """Return the source of each document, by its number; empty where none is named."""
    table = pd.read_parquet(path)
    return list(map(str, table["group"])) if "group" in table.columns else []
