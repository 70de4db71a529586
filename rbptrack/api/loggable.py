"""The measurement that `measure` returns."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from rbptrack.base.errors import RbptrackError, StoreAway, StoreRefuses
from rbptrack.base.formatting import compact
from rbptrack.config.check import check_name
from rbptrack.figures.charts import rank_distribution, themed
from rbptrack.measurement.document import Measurement
from rbptrack.measurement.files import RANKS_FILE, TOKENS_FILE, UNSCORED_FILE
from rbptrack.measurement.record import read_measurement
from rbptrack.ranks import DocumentCounts, RankHistogram, RankTable
from rbptrack.ranks.names import metric_label, rbp_name, se_name
from rbptrack.ranks.words import word_surprisal
from rbptrack.reporting.vega import show_without_network
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.training import active_run_id, link_training_run

if TYPE_CHECKING:
    import altair


@dataclass(frozen=True, kw_only=True, repr=False)
class LoggableMeasurement:
    """A measurement that `measure` returns. It can be printed, plotted and logged to MLflow.

    Attributes:
        measurement: the names, settings and results of the measurement, such as `measurement.num_tokens`.
        counts: tokens, nats and hits of each document, at the k of `measure`.
        histogram: the number of tokens with each rank.
        folder: the folder of the files that become the artifacts of a run. It is removed with this object.

    """

    measurement: Measurement
    counts: DocumentCounts
    histogram: RankHistogram
    folder: Path

    @property
    def name(self) -> str:
        """The names of model and dataset, such as `pythia-70m@step1000 / wiki`."""
        return self.measurement.title

    @property
    def ce(self) -> float:
        """Cross-entropy: the mean of -ln p(target), nats."""
        return self.histogram.ce

    @property
    def ce_se(self) -> float:
        """The standard error of `ce` over documents, nats. NaN with fewer than 5 documents."""
        return math.nan if self.measurement.ce_se is None else self.measurement.ce_se

    @property
    def perplexity(self) -> float:
        """exp(ce)."""
        return math.exp(self.ce)

    def rbp(self, k: int) -> float:
        """Return RBP_k, the share of tokens with rank at most k.

        Raises BadInput if k is not a whole number from 1 to |V|.
        """
        return self.histogram.rbp(k)

    @property
    def ranks(self) -> RankTable:
        """The rank table, read from disk."""
        return RankTable.read(self.folder / RANKS_FILE)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rank table as a DataFrame with a row for each scored token."""
        return self.ranks.to_pandas()

    def metrics(self) -> dict[str, float]:
        """Return `ce` (in nats per token) and `rbp_<k>` by name.

        With at least 5 documents, the result also has their standard errors over documents, `ce_se` and `rbp_<k>_se`.
        """
        known = self.measurement.metrics()
        names = [name for metric in ("ce", *map(rbp_name, self.counts.ks)) for name in (metric, se_name(metric))]
        return {name: known[name] for name in names if name in known}

    def words(self) -> pd.DataFrame:
        """Return the words of all texts with their surprisal in nats. A word is a text between blanks.

        Returns:
            One row for each word, in the order of the texts: `document`, `word`, `surprisal` (the sum of -ln p over the
            tokens of the word; NaN if one of them is not scored, such as the first token of a text), `worst_rank` and
            `tokens` (the number of tokens).

        """
        return word_surprisal(self.ranks, pd.read_parquet(self.folder / UNSCORED_FILE), self.token_texts)

    @property
    def token_texts(self) -> dict[int, str]:
        """The texts of the tokens, by token ID."""
        return {int(number): text for number, text in json.loads((self.folder / TOKENS_FILE).read_text()).items()}

    def plot(self) -> altair.TopLevelMixin:
        """Draw the distribution of ranks as an Altair chart."""
        chart: altair.TopLevelMixin = themed(rank_distribution(self.histogram, self.name))
        show_without_network()
        return chart

    def log(self, *, tracking_uri: str = "", experiment: str = "", sweep: str = "", training_run_id: str = "") -> str:
        """Log the measurement as a run in a tracking store. Returns the run ID.

        If the store already has a measurement of this model on this dataset with equal ranks, no second run is made.
        While an MLflow run is active, tags link this run and the measurement with each other. A measurement that waits
        on this disk because its store does not answer is delivered later without this link.

        Args:
            tracking_uri: the address of the tracking store; default: MLFLOW_TRACKING_URI, or else MLflow's own store
                in the working folder.
            experiment: the name of the MLflow experiment; default: MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.
            sweep: the name of a sweep, by which `runs(sweep=...)` selects measurements.
            training_run_id: the ID of the MLflow run that trains the model, to which tags link the measurement;
                default: the active run, if there is one. It is a run of the store that `mlflow.get_tracking_uri` names.

        Raises:
            BadInput: the store cannot be written, or the run that trains the model does not exist.
            StoreAway: a store does not answer. If it is that of the measurement, the measurement waits in mlruns/cells
                for the next command.
            StoreRefuses: a store refuses the request. If it is that of the measurement, the measurement waits in
                mlruns/cells for the next command.

        """
        record = read_measurement(self.folder)
        if sweep != "":
            check_name("sweep", sweep)
            record.measurement = record.measurement.updated({"sweep": sweep})
        outbox = Outbox(Store(tracking_uri, experiment))
        with tempfile.TemporaryDirectory(prefix="rbptrack-") as name:
            folder = Path(name) / record.fingerprint
            folder.mkdir()
            for file in record.files:
                shutil.copy(self.folder / file, folder)
            record.write(folder)
            try:
                run_id = outbox.deliver(folder)
            except (StoreAway, StoreRefuses) as error:
                outbox.add_copy(folder)
                message = f"{error}; the measurement waits in mlruns/cells for the next command"
                raise type(error)(message) from error
        training_run_id = training_run_id or active_run_id()
        if training_run_id:
            try:
                link_training_run(outbox.store, run_id, training_run_id)
            except RbptrackError as error:
                message = f"the measurement is logged, but not linked with the run {training_run_id}: {error}"
                raise type(error)(message) from error
        return run_id

    @property
    def _title(self) -> str:
        size = compact(self.measurement.non_embedding_params or 0)
        return f"{self.name}: {self.histogram.num_tokens:,} scored tokens, S = {size}"

    @property
    def _table(self) -> pd.DataFrame:
        metrics = self.metrics()
        rows = []
        for name, value in metrics.items():
            if not name.endswith("_se"):
                error = metrics.get(se_name(name))
                rows.append((metric_label(name), f"{value:.4f}", "" if error is None else f"{error:.4f}"))
        return pd.DataFrame(rows, columns=["metric", "value", "± se"])

    def __repr__(self) -> str:
        return f"{self._title}\n{self._table.to_string(index=False)}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._title)}</p>{self._table.to_html(index=False, border=0)}"
