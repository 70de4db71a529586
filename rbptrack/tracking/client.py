"""A server's runs by MLflow's client: the questions that `rbptrack.tracking.tables.Tables` answers for databases."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from mlflow.exceptions import MlflowException

from rbptrack.config.schema import FilterConfig
from rbptrack.tracking.runs_table import DATASET_INPUT, Experiment, LoggedRun
from rbptrack.tracking.schema import CURVES, FILTERED, Kind, Tag, metric_now, tags_now

T = TypeVar("T")

_PAGE = 200  # runs in one answer: a busy server takes 10 ms for each, and after 10 s it would seem to be away
_NAMED = 200  # run ids in one question
_FEW = 100  # measurements whose fingerprints are asked for one by one, before all are read
_UNKNOWN_ENDPOINT = ("ENDPOINT_NOT_FOUND", "NOT_FOUND", "NOT_IMPLEMENTED")  # what servers before MLflow 3 answer
_PLAIN = re.compile(r"[\w .:/+*?-]+")  # characters that mean nothing else in SQL's patterns than `fnmatch` means


class Client:
    """Reads what a server's store holds."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client

    def experiment(self, name: str) -> Experiment | None:
        """Return the experiment of a name, deleted or not; None if no experiment has it."""
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            return None
        return Experiment(experiment.experiment_id, experiment.artifact_location, experiment.lifecycle_stage)

    def run(self, run_id: str) -> LoggedRun:
        """Return one run."""
        return _logged(self._client.get_run(run_id))

    def search(
        self,
        experiments: Sequence[str],
        tags: Mapping[str, str],
        *,
        status: str = "",
        run_id: str = "",
        limit: int | None = None,
    ) -> list[LoggedRun]:
        """Return the runs of some experiments that have these tags and this status, newest first."""
        parts = [f"tags.`{tag}` = '{value}'" for tag, value in tags.items()]
        parts += [f"attributes.status = '{status}'"] * bool(status) + [f"attributes.run_id = '{run_id}'"] * bool(run_id)
        return self._search(experiments, " and ".join(parts), limit=limit)

    def _search(self, experiments: Sequence[str], wanted: str, *, limit: int | None = None) -> list[LoggedRun]:
        runs = list[LoggedRun]()
        token = None
        while True:
            page = self._client.search_runs(
                list(experiments),
                filter_string=wanted,
                run_view_type=ViewType.ACTIVE_ONLY,
                max_results=limit or _PAGE,
                page_token=token,
            )
            runs += map(_logged, page)
            token = page.token
            if not token or limit:
                return runs

    def finished(
        self, experiment: str, chosen: FilterConfig, run_ids: Sequence[str], read: Callable[[LoggedRun], T]
    ) -> list[T]:
        """Return the records of finished measurements: at least those of run_ids, or those that may pass the filters.

        A measurement that may pass comes with every other one of its fingerprint: another may be newer.
        """
        return list(map(read, self._finished(experiment, chosen, run_ids)))

    def _finished(self, experiment: str, chosen: FilterConfig, run_ids: Sequence[str]) -> list[LoggedRun]:
        inside = [experiment]
        finished = f"tags.`{Tag.KIND}` = '{Kind.MEASUREMENT}' and attributes.status = 'FINISHED'"
        if run_ids:
            parts = [", ".join(map(repr, run_ids[at : at + _NAMED])) for at in range(0, len(run_ids), _NAMED)]
            batches = [self._search(inside, f"{finished} and attributes.run_id IN ({part})") for part in parts]
            return [run for runs in batches for run in runs]
        if narrowed := tags_like(chosen):
            first = self._search(inside, finished, limit=_PAGE)
            if len(first) < _PAGE:
                return first
            some = self._search(inside, f"{finished} and {narrowed}", limit=_FEW + 1)
            if 0 < len(some) <= _FEW:
                return self._with_newer(inside, some)
        return self._search(inside, finished)

    def _with_newer(self, experiments: Sequence[str], runs: list[LoggedRun]) -> list[LoggedRun]:
        """Add all others of the same fingerprints: another may be newer."""
        fingerprints = dict.fromkeys(run.tags.get(Tag.FINGERPRINT, "") for run in runs)
        same = [
            run
            for fingerprint in fingerprints
            if fingerprint
            for run in self.search(experiments, {Tag.FINGERPRINT: fingerprint}, status="FINISHED")
        ]
        return list({run.run_id: run for run in (*runs, *same)}.values())

    def without_model(self, experiment: str) -> list[str]:
        """Return the ids of finished measurements whose metrics point to no LoggedModel; none where the server has no
        such.
        """
        linked = set[str]()
        token = None
        while True:
            try:
                page = self._client.search_logged_models([experiment], page_token=token)
            except MlflowException as error:
                if is_unknown_endpoint(error):
                    return []
                raise
            linked |= {str(metric.run_id) for model in page for metric in model.metrics or []}
            token = page.token
            if not token:
                break
        runs = self._finished(experiment, FilterConfig(), ())
        return [run.run_id for run in runs if run.run_id not in linked]

    def whole(self, run_ids: Sequence[str]) -> list[LoggedRun]:
        """Return some runs with their curves and datasets."""
        return list(map(self._whole, run_ids))

    def _whole(self, run_id: str) -> LoggedRun:
        run = self._client.get_run(run_id)
        logged = _logged(run)
        for name in (name for name in CURVES if name in run.data.metrics):
            logged.curves[name] = {m.step: m.value for m in self._client.get_metric_history(run_id, name)}
        for first in (run.inputs.dataset_inputs if run.inputs else [])[:1]:
            logged.dataset = {key: str(getattr(first.dataset, key) or "") for key in DATASET_INPUT}
        return logged

    def metric_faults(self, run_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return None: only the server can read its tables."""
        return {run_id: [] for run_id in run_ids}


def is_unknown_endpoint(error: MlflowException) -> bool:
    """Return whether a server does not know what it was asked, because it is too old."""
    return error.error_code in _UNKNOWN_ENDPOINT or "error code 404" in str(error)


def tags_like(chosen: FilterConfig) -> str:
    """Return conditions that whatever passes the filters satisfies; empty where none can be said.

    MLflow joins conditions by `and` only, so a filter of several patterns is not among them. Its `%` and `_` match what
    `*` and `?` do; other runs may satisfy the conditions, too.
    """
    filters = [(tag, getattr(chosen, name)) for name, tag in FILTERED.items()]
    single = [(tag, patterns[0]) for tag, patterns in filters if len(patterns) == 1 and _PLAIN.fullmatch(patterns[0])]
    return " and ".join(f"tags.`{tag}` LIKE '{p.replace('*', '%').replace('?', '_')}'" for tag, p in single)


def _logged(run: Run) -> LoggedRun:
    info = run.info
    data = run.data
    return LoggedRun(
        info.run_id,
        str(info.run_name),
        info.start_time,
        params=data.params,
        metrics={metric_now(name): value for name, value in data.metrics.items() if not math.isnan(value)},
        tags=tags_now(data.tags),
        ended=info.end_time,
        artifacts=info.artifact_uri,
    )
