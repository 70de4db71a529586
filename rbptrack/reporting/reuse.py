"""Cached analyses: found in the store by a hash of everything that determines what they say.

The cache of this user remembers which run of the store holds the analysis of a hash, and a hash of that run's files:
what somebody else put there, or changed, is not taken for it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import cached_property
from pathlib import Path

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.findings import NothingToSay, Reason
from rbptrack.analysis.plugin_code import code_of
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError
from rbptrack.base.secrets import redact
from rbptrack.reporting.page import software
from rbptrack.reporting.telling import skipped
from rbptrack.sources import cache
from rbptrack.sources.fingerprint import contents_hash
from rbptrack.tracking.reader import Reader

_SILENT = "- "  # begins the record of one that had nothing to say, in place of a run's id


class Analyses:
    """Those of some measurements.

    Args:
        reader: of the store that holds the measurements.
        runs: the measurements.
        formats: of the figures.

    """

    def __init__(self, reader: Reader, runs: Runs, formats: Sequence[str]) -> None:
        self._reader = reader
        self.runs = runs
        self._formats = formats
        self.connection = reader.connection

    def find(self, analyzer: Analyzer, folder: Path) -> str:
        """Lay the files of the analysis that is there into a folder; returns its run id, empty where none is there."""
        analyses = Reader(self.connection.analyses())
        with suppress(RbptrackError, OSError):
            run_id, _, digest = (cache.recall(self._name(analyzer)) or "").partition(" ")
            if run_id and analyses.search(run_id=run_id, status="FINISHED"):
                for name in analyses.artifact_names(run_id):
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(analyses.artifact(run_id, name), folder / name)
                if contents_hash(folder, folder.rglob("*")) == digest:
                    return run_id
        shutil.rmtree(folder, ignore_errors=True)
        return ""

    def remember(self, analyzer: Analyzer, folder: Path, run_id: str) -> None:
        """Keep in mind that a run holds the analysis, whose files lie in a folder."""
        with suppress(RbptrackError, OSError):  # else it is computed again
            cache.remember(self._name(analyzer), f"{run_id} {contents_hash(folder, folder.rglob('*'))}")

    def silence(self, analyzer: Analyzer) -> str:
        """Say why the analyzer had nothing to report about the same measurements; empty if unknown."""
        kept = cache.recall(self._name(analyzer)) or ""
        return kept.removeprefix(_SILENT) if kept.startswith(_SILENT) else ""

    @contextmanager
    def noting_silence(self, analyzer: Analyzer) -> Iterator[None]:
        """Keep in mind why an analyzer turns out to have nothing to say."""
        try:
            yield
        except NothingToSay as error:
            if all(
                remark.reason != Reason.UNREADABLE for remark in error.remarks
            ):  # an unreachable store may come back
                cache.remember(self._name(analyzer), f"{_SILENT}{redact(skipped(error))}")
            raise

    def _name(self, analyzer: Analyzer) -> str:
        cls = type(analyzer)
        options = {f.name: repr(getattr(analyzer, f.name)) for f in fields(analyzer)}
        made_of = [self._measured, cls.__qualname__, options, code_of(cls), software(), list(self._formats)]
        return f"analyses/{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()}"

    @cached_property
    def _measured(self) -> str:
        """A hash of every number of the measurements, what their files hold, and the scores that were imported."""
        files = [self._reader.digest(run_id) for run_id in self.runs.frame["run_id"]]
        tables = [self.runs.frame.to_csv(index=False), self.runs.scores().to_csv(index=False)]
        return hashlib.sha256("\n".join([*tables, *files]).encode()).hexdigest()
