"""A measurement of a model in memory, with what a store keeps of it: the Python API's result."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rbptrack.analysis.display import cell, title
from rbptrack.base.files import TemporaryFolder
from rbptrack.base.words import compact
from rbptrack.config.schema import TrackingConfig
from rbptrack.ranks import HEADLINE_KS, DocumentCounts, se_name
from rbptrack.ranks.measurement import Measurement
from rbptrack.sources.fingerprint import SCORING_VERSION, fingerprint
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.params import MeasurementParams, software_versions
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import Record, add_artifacts, k_metrics
from rbptrack.tracking.schema import MeasurementTags

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_KS = (1, 3, 10, 30, 100)


@dataclass(frozen=True, kw_only=True, repr=False)
class LoggableMeasurement(Measurement):
    """A measurement that knows which model and texts it is of, so that it can be logged.

    Attributes:
        family: the model's family; by default the architecture's name.
        size: its size label; by default S, shortened.
        dataset: name of the texts.
        params: what else determines the numbers, as a run's params.
        ks: the k of RBP_k that are shown and logged.
        folder: holds the rank table while this object lives.

    """

    family: str
    size: str
    dataset: str
    params: MeasurementParams
    ks: Sequence[int] = DEFAULT_KS
    folder: TemporaryFolder = field(repr=False)

    @property
    def model(self) -> str:
        """The model's name: family and size joined, and the revision of a checkpoint: `pythia-70m@step1000`."""
        return f"{self.family}-{self.size}" + (f"@{self.params.revision}" if self.params.revision != "main" else "")

    @property
    def non_embedding_params(self) -> int:
        """S, counted from the module."""
        return self.params.non_embedding_params or 0

    def metrics(self, ks: Sequence[int] = ()) -> dict[str, float]:
        """Return CE and rbp_<k> with their standard errors (`<metric>_se`) from resampling documents; k above |V| left
        out. Without ks, they are `measurement.ks`.
        """
        return k_metrics(self.histogram, self._document_counts(ks))

    def plot(self) -> Figure:
        """Return a matplotlib figure: how ranks are distributed, and RBP_k against k."""
        from rbptrack.analysis.run_figures import draw_ranks

        return draw_ranks(self.histogram, f"{self.model} / {self.dataset}")

    def log(
        self,
        *,
        ks: Sequence[int] = (),
        tracking_uri: str = "",
        experiment: str = "rbptrack",
        sweep: str = "",
        tags: dict[str, str] | None = None,
    ) -> str:
        """Log as a run that reads like one of the command line's; returns its run id.

        Logged twice, the same numbers of the same model and texts are one run: the second call returns the first id.

        Args:
            ks: the k of the metrics rbp_<k>; by default those of the measurement.
            tracking_uri: where; by default MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db.
            experiment: MLflow's experiment.
            sweep: a name that ties runs together; `runs(sweep=...)` finds them by it.
            tags: of your own.

        Raises:
            BadInput: the store cannot be written.
            StoreAway: the store does not answer.

        """
        from rbptrack.tracking.writer import Writer  # MLflow, which takes a second: not before something is logged

        connection = Connection(TrackingConfig(uri=tracking_uri, experiment=experiment))
        about = MeasurementTags(self._fingerprint(), self.family, self.size, self.model, self.dataset, sweep)
        if run_id := Reader(connection).find(about.fingerprint):
            return run_id
        record = Record(about.title, about.tags() | (tags or {}), self.params.params() | software_versions())
        counts = self._document_counts(ks)
        record.add_results(self, non_embedding_params=self.non_embedding_params, counts=counts)
        digest = str(self.params.texts_hash)[:36]  # as much as MLflow takes
        record.dataset = {"name": self.dataset, "digest": digest, "source": "texts in memory", "profile": "{}"}
        with tempfile.TemporaryDirectory() as name:
            add_artifacts(Path(name), ranks=self.path, histogram=self.histogram, title=about.title)
            return Writer(connection).deliver(record, Path(name))

    def _document_counts(self, ks: Sequence[int]) -> DocumentCounts:
        return self.ranks.document_counts([k for k in ks or self.ks if k <= self.histogram.vocab_size])

    def _fingerprint(self) -> str:
        """Return the numbers themselves stand for the weights, which are in memory and may be trained on."""
        content = hashlib.sha256()
        ranks = self.ranks
        for name in ("greater", "ties", "logprob"):
            content.update(np.ascontiguousarray(ranks.column(name)).tobytes())
        settings = replace(self.params, device=None).params()
        return fingerprint(
            {"model": self.model, "measured": content.hexdigest(), "scoring": SCORING_VERSION, **settings}
        )

    def __repr__(self) -> str:
        """Return CE and RBP_k with their standard errors as a table of text."""
        return f"{self._about}\n{self._table.to_string(index=False)}"

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return f"<p>{escape(self._about)}</p>{self._table.to_html(index=False, border=0)}"

    @property
    def _headline_ks(self) -> Sequence[int]:
        return HEADLINE_KS if tuple(self.ks) == DEFAULT_KS else self.ks

    @property
    def _about(self) -> str:
        size = compact(self.non_embedding_params)
        return f"{self.model} / {self.dataset}: {self.num_tokens:,} scored tokens, S = {size}"

    @cached_property
    def _table(self) -> pd.DataFrame:
        metrics = self.metrics(self._headline_ks)
        names = [name for name in metrics if not name.endswith("_se")]
        rows = [(title(name), cell(name, metrics[name]), cell(name, metrics.get(se_name(name)))) for name in names]
        return pd.DataFrame(rows, columns=["metric", "value", "± se"], dtype=str)

    def __str__(self) -> str:
        shown = ", ".join(f"RBP_{k} {self.rbp(k):.4f}" for k in self._headline_ks if k <= self.histogram.vocab_size)
        return f"{self.model} / {self.dataset}: {self.num_tokens:,} tokens, CE {self.ce:.4f}, {shown}"
