"""Compare two measurements token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from rbptrack.analysis.rank_store import RankStore
from rbptrack.analysis.report import Report
from rbptrack.analysis.runs import Runs
from rbptrack.api.arguments import names_keywords
from rbptrack.api.loggable import LoggableMeasurement
from rbptrack.api.stored import with_themed_figures
from rbptrack.base.errors import BadInput
from rbptrack.measurement.files import DOCUMENTS_FILE
from rbptrack.ranks import RankTable
from rbptrack.ranks.names import HEADLINE_KS, check_ks
from rbptrack.reporting import comparison_report
from rbptrack.tracking import Store


@names_keywords
def compare(
    a: str | LoggableMeasurement,
    b: str | LoggableMeasurement,
    *,
    k: int | Sequence[int] = HEADLINE_KS,
    tracking_uri: str = "",
    experiment: str = "",
) -> Report:
    """Compare two measurements of the same tokens, token by token.

    Args:
        a: the first measurement: the result of `measure`, or the name of a measurement in the tracking store, such as
            `nano-6k/stdlib`.
        b: the second measurement. Changes are those from the first to the second.
        k: one or several k of RBP_k.
        tracking_uri: the address of the tracking store; default: MLFLOW_TRACKING_URI, or else MLflow's own store in
            the working folder.
        experiment: the name of the MLflow experiment; default: MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.

    Returns:
        A report. `results` has the change of each metric with its interval, `tables` the tokens and documents that
        change most, and `figures` the change of each document and RBP_k of both against k.

    Raises:
        BadInput: the measurements do not exist, did not score the same tokens, or are the same.

    """
    if a is b:
        raise BadInput("compare needs two measurements; a and b are the same one")
    if isinstance(a, LoggableMeasurement) and isinstance(b, LoggableMeasurement):
        rows = [each.measurement.columns() | {"run_id": str(number)} for number, each in enumerate((a, b))]
        pair = Runs(pd.DataFrame(rows), _InMemory([a, b]))
        first, second = pair
    elif isinstance(a, str) and isinstance(b, str):
        pair = Store(tracking_uri, experiment).runs()
        first, second = pair.row(a), pair.row(b)
    else:
        raise BadInput("compare takes two results of measure, or two names of measurements in the store")
    report, _ = comparison_report(pair, first, second, check_ks(k))
    return with_themed_figures(report)


class _InMemory(RankStore):
    """Reads the ranks of measurements that are not logged. The ID of a run is its place in the list."""

    def __init__(self, measurements: Sequence[LoggableMeasurement]) -> None:
        self._measurements = measurements

    def ranks(self, run_id: str, columns: Sequence[str] | None = None) -> RankTable:
        return self._measurements[int(run_id)].ranks

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        return self._measurements[int(run_id)].token_texts

    def documents(self, run_id: str) -> pd.DataFrame:
        return pd.read_parquet(self._measurements[int(run_id)].folder / DOCUMENTS_FILE)

    def groups(self, run_id: str) -> Sequence[str]:
        return [str(group) for group in self.documents(run_id)["group"]]
