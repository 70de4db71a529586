"""The class `Cell`: one model on one dataset, both pinned, with everything that determines the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rbptrack.config.paths import cells_folder
from rbptrack.config.schema import Config
from rbptrack.measurement.document import fingerprint, measurement_title
from rbptrack.sources.manifest import ManifestFile
from rbptrack.sources.pin import Pinned
from rbptrack.sources.server import ServedModel


@dataclass(frozen=True)
class Cell:
    """One model on one dataset, both pinned to a commit or a hash.

    Attributes:
        config: the configuration. `dataset.split` is filled in; `dataset.seq_len` is at most the maximum of the model
            if `dataset.shorten` is true.
        weights: the pinned model.
        tokenizer: the pinned tokenizer: the model's own, or the one that `model.tokenizer` names.
        texts: the pinned dataset.
        reference: the pinned reference model; None without a reference.
        reference_tokenizer: the pinned tokenizer of the reference; None without a reference.
        served: what the server of `model.server` said of the model; None if the model runs here.
        template: the file of `model.chat_template`; None if documents are not rendered, or with the tokenizer's own.
        description: the fields of the measurement that are known before it is made. All keys are among them.
        notes: remarks for the user, for example that sequences were shortened.

    """

    config: Config
    weights: Pinned
    tokenizer: Pinned
    texts: Pinned
    reference: Pinned | None
    reference_tokenizer: Pinned | None
    served: ServedModel | None
    template: ManifestFile | None
    description: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """The hash of everything that determines the numbers of the measurement."""
        return fingerprint(self.description)

    @property
    def title(self) -> str:
        """The names of model and dataset, such as `pythia-70m / wiki`."""
        return measurement_title(self.config.model.name, self.config.dataset.name)

    @property
    def folder(self) -> Path:
        """The folder that holds the measurement until the store has it."""
        return cells_folder() / self.fingerprint

    @property
    def files(self) -> tuple[ManifestFile, ...]:
        """All local files that are read to measure the cell."""
        parts = (self.weights, self.tokenizer, self.texts, self.reference, self.reference_tokenizer)
        files = [file for part in parts if part is not None for file in part.files]
        return tuple(dict.fromkeys([*files, self.template] if self.template else files))
