"""What others computed, as a record: the rules of an imported row, the family and size of a hub id, and the record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Self

from omegaconf import OmegaConf
from pydantic import BeforeValidator, Field, model_validator

from rbptrack.ranks import RankTable, parse_rbp_name
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.tracking.params import MeasurementParams, param_names
from rbptrack.tracking.record import Record, add_artifacts, curves, rbp_curves, size_metrics
from rbptrack.tracking.rules import LARGEST_COUNT, RESULTS, MeasurementRow, fault, whole
from rbptrack.tracking.schema import WITHOUT, MeasurementTags, Metric, Tag


class AnyImportedRow(MeasurementRow):
    """A row that holds a result: CE or some RBP_k."""

    @model_validator(mode="after")
    def _holds_a_result(self) -> Self:
        if self.ce is None and not self.rbp:
            raise fault("the row holds no result, neither ce nor rbp_<k>", column="ce")
        return self


def _size(value: object) -> int:
    if value is None:
        rule = "S is needed by every law in size; without_s=true imports measurements without it"
        raise fault(rule)
    return whole(1, LARGEST_COUNT)(value)


class ImportedRow(AnyImportedRow):
    """A row with a result and with S."""

    non_embedding_params: Annotated[int | None, BeforeValidator(_size)] = Field(default=None, validate_default=True)


@dataclass(frozen=True)
class KnownModels:
    """The models of conf/model: their family and size by hub id, in lower case."""

    family_and_size: Mapping[str, tuple[str, str]]

    @classmethod
    def read(cls, conf: Path) -> KnownModels:
        """Read every conf/model/**/*.yaml that has a repo."""
        values = {}
        for path in sorted((conf / "model").rglob("*.yaml")):
            config = OmegaConf.to_container(OmegaConf.load(path))
            if isinstance(config, dict) and {"repo", "family", "size"} <= set(config):
                values[str(config["repo"]).lower()] = (str(config["family"]), str(config["size"]))
        return cls(values)

    def split(self, model: str) -> tuple[str, str]:
        """Return (`pythia`, `70m`) for `EleutherAI/pythia-70m`; an id that conf/model lacks is split at its last
        hyphen.
        """
        if model.lower() in self.family_and_size:
            return self.family_and_size[model.lower()]
        family, hyphen, size = model.rpartition("/")[2].rpartition("-")
        return (family, size) if hyphen else (size, "")


def record_of(
    row: MeasurementRow,
    *,
    kind: str,
    source: Path,
    repo: str | None = None,
    more: Mapping[str, float] | None = None,
    ranked: bool = False,
) -> Record:
    """Return the measurement as a run that reads like one of the command line's; its fingerprint is of its content.

    The same content gives the same record: an import that was cut off is completed by the same import.

    `more`: metrics beside the row's; `ranked`: the source has ranks.
    """
    columns = {name: value for name, value in row.columns().items() if value is not None}
    known_columns = {f.name: columns[f.name] for f in fields(MeasurementParams) if f.name in columns}
    params = replace(MeasurementParams.unknown(), repo=repo, **known_columns)
    metrics = {name: float(columns[name]) for name in (*RESULTS, Metric.NUM_TOKENS) if name in columns}
    metrics |= row.rbp | row.errors | dict(more or {})
    names = param_names()
    content: dict[str, object] = {"imported": kind, "family": row.family, "size": row.size}
    content |= {names[attribute]: value for attribute, value in asdict(params).items() if value is not None}
    content |= metrics | {"model": row.model, "dataset": row.dataset}
    tags = MeasurementTags(
        fingerprint=fingerprint(content),
        family=row.family,
        size=row.size,
        model=f"{row.family}-{row.size}" if row.size else row.family,
        dataset=row.dataset,
        sweep="",
    )
    about = tags.tags() | {Tag.IMPORTED: f"{kind}: {source.name}", Tag.RECORD: tags.fingerprint[:32]}
    record = Record(tags.title, about | ({} if ranked else {Tag.RANKS: WITHOUT}), params.params(), metrics)
    record.started = record.ended = time.time()
    if params.non_embedding_params is not None:
        record.metrics |= size_metrics(params.non_embedding_params)
    rbp = {k: share for name, share in metrics.items() if (k := parse_rbp_name(name)) is not None}
    record.curves = rbp_curves(rbp)
    return record


def laid(record: Record, ranks: RankTable | None, folder: Path) -> Path:
    """Return the folder with rank table, histogram and figure; the record gets the curves of all k."""
    folder.mkdir()
    if ranks is not None:
        table = folder / "unlinked.parquet"
        histogram = ranks.histogram()
        ranks.write(table)
        add_artifacts(folder, ranks=table, histogram=histogram, title=record.name)
        table.unlink()
        record.curves = curves(histogram)
    return folder
