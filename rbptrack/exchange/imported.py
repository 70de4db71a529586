"""What others computed, as a record: checked numbers, the family and size of a hub id, and the record itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from rbptrack.errors import BadInput
from rbptrack.ranks import parse_rbp_name
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.tracking.record import Record, rbp_curves, size_metrics
from rbptrack.tracking.schema import MeasurementParams, MeasurementTags, Tag, param_names


@dataclass(frozen=True)
class KnownModels:
    """The models of conf/model: their family and size by hub id, in lower case."""

    family_and_size: Mapping[str, tuple[str, str]]

    @classmethod
    def read(cls, conf: Path) -> KnownModels:
        """Read every conf/model/**/*.yaml that has a repo."""
        found = {}
        for path in sorted((conf / "model").rglob("*.yaml")):
            config = OmegaConf.to_container(OmegaConf.load(path))
            if isinstance(config, dict) and {"repo", "family", "size"} <= set(config):
                found[str(config["repo"]).lower()] = (str(config["family"]), str(config["size"]))
        return cls(found)

    def split(self, model: str) -> tuple[str, str]:
        """(`pythia`, `70m`) for `EleutherAI/pythia-70m`; an id that conf/model lacks is split at its last hyphen."""
        if model.lower() in self.family_and_size:
            return self.family_and_size[model.lower()]
        family, hyphen, size = model.rpartition("/")[2].rpartition("-")
        return (family, size) if hyphen else (size, "")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """One measurement of others.

    Attributes:
        kind: of source: `table` or `authors`.
        source: the file or folder that was imported.
        family: the model's family.
        size: its size label; may be empty.
        model: as the source calls it.
        dataset: as the source calls it.
        params: what the source says of model and texts.
        metrics: the numbers, by the names of metrics.

    """

    kind: str
    source: Path
    family: str
    size: str
    model: str
    dataset: str
    params: MeasurementParams
    metrics: Mapping[str, float]

    def record(self) -> Record:
        """The measurement as a run that reads like one of the command line's; its fingerprint is of its content."""
        names = param_names()
        params = {names[attribute]: value for attribute, value in asdict(self.params).items() if value is not None}
        content = {"imported": self.kind, "family": self.family, "size": self.size, **params, **self.metrics}
        content |= {"model": self.model, "dataset": self.dataset}
        tags = MeasurementTags(
            fingerprint=fingerprint(content),
            family=self.family,
            size=self.size,
            model=f"{self.family}-{self.size}" if self.size else self.family,
            dataset=self.dataset,
            sweep="",
        )
        imported = {Tag.IMPORTED: f"{self.kind}: {self.source.name}"}
        record = Record(tags.title, tags.tags() | imported, self.params.params(), dict(self.metrics))
        record.started = record.ended = time.time()
        if self.params.non_embedding_params is not None:
            record.metrics |= size_metrics(self.params.non_embedding_params)
        rbp = {k: share for name, share in self.metrics.items() if (k := parse_rbp_name(name)) is not None}
        record.curves = rbp_curves(rbp)
        return record


def number(value: object, where: str, *, share: bool = False) -> float:
    """A value as a number that is finite and not negative, and at most 1 if it is a share; BadInput says where not."""
    try:
        found = float(str(value))
    except ValueError as error:
        raise BadInput(f"{where}: expected a number, got {value!r}") from error
    if not np.isfinite(found) or found < 0 or (share and found > 1):
        raise BadInput(f"{where}: must be {'between 0 and 1' if share else 'finite and not negative'}; got {value}")
    return found


def count(value: object, where: str) -> int:
    """A value as a whole number above 0; BadInput says where it is none."""
    found = number(value, where)
    if found < 1 or found != int(found):
        raise BadInput(f"{where}: must be a whole number above 0; got {value}")
    return int(found)
