"""Jobs from their submission to their end, wherever they run; one that is lost begins again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rbptrack.analysis.executors import Executor, Job, Phase, State
from rbptrack.base.errors import RbptrackError
from rbptrack.base.process import INTERRUPTED, stop_code
from rbptrack.base.words import counted
from rbptrack.console.output import say
from rbptrack.sweep.outcome import CONTINUES
from rbptrack.sweep.reports import Inbox
from rbptrack.sweep.results import Results
from rbptrack.sweep.tasks import Task, takers
from rbptrack.sweep.watch import Watch

_POLL_SECONDS = 1.0
_POLL_JOBS = 64  # whose files a network file system reads in a second
_LATE_SECONDS = 10.0  # by which a file may be seen here after its job has ended elsewhere


def until_interrupted(act: Callable[[], None]) -> int:
    """Act; returns 0, or the exit code of the interrupt that ended it."""
    try:
        act()
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit:
        return stop_code()
    return 0


@dataclass
class Drive:
    """Jobs under way.

    Attributes:
        executor: runs them.
        tasks: of each file of cells the tasks, in its order.
        jobs: those that pull from these files.
        results: how cells ended, as far as that is known.
        inbox: reads what jobs tell.
        tell: shows a line about the jobs.

    """

    executor: Executor
    tasks: Mapping[Path, Sequence[Task]]
    jobs: Sequence[Job]
    results: Results
    inbox: Inbox
    tell: Callable[[str], None]
    _begun_again: Counter[int] = field(default_factory=Counter)
    _gone: dict[int, float] = field(default_factory=dict)  # since when each job has been seen to have gone
    _lost: dict[int, str] = field(default_factory=dict)  # why jobs were given up

    def run(self, *, total: int) -> int:
        """Submit the jobs, else BadInput, and wait for their end; returns 0, or an interrupt's exit code."""
        code = until_interrupted(lambda: self._run(total))
        if code == INTERRUPTED:
            self.executor.cancel()
        elif code and self.executor.outlives:  # a terminal was closed, say: nobody wanted the jobs to end
            say(self.executor.outlives)
        self.inbox.read(self.jobs)
        if not code:
            self._give_up_the_rest()
        return code

    def _run(self, total: int) -> None:
        self.executor.submit(self.jobs)
        with Watch(self.results, self.inbox, self.jobs, total=total) as watch:
            self._follow(watch)

    def _follow(self, watch: Watch) -> None:
        left = list(self.jobs)
        while left:
            self.inbox.read(left)
            states = self.executor.states()
            all_known = self._all_known()
            if all_known and not any(job.number in self.inbox.reports for job in left):
                self.executor.cancel()  # they wait for room, and would find nothing to do
                return
            lost: dict[str, list[Job]] = {}
            for job in list(left):
                state = states.get(job.number, State(Phase.running))
                if self._has_ended(job) or (all_known and state.phase is Phase.gone):
                    left.remove(job)
                elif self._is_lost(job, state):
                    lost.setdefault(state.why, []).append(job)
            for why, jobs in lost.items():
                final = [job for job in jobs if states[job.number].final]
                again = self._begin_again(jobs, why, final)
                left = [job for job in left if job not in jobs or job in again]
            watch.show(_reason(states))
            if left:
                time.sleep(_POLL_SECONDS * max(1.0, len(left) / _POLL_JOBS))

    def _all_known(self) -> bool:
        return all(self.results.knows_end_of(task) for tasks in self.tasks.values() for task in tasks)

    def _has_ended(self, job: Job) -> bool:
        """Return whether a job has told that it has nothing more to tell."""
        report = self.inbox.reports.get(job.number)
        return report is not None and report.done

    def _is_lost(self, job: Job, state: State) -> bool:
        """Return whether a job has gone without a word; the word may come late, over a network."""
        if state.phase is not Phase.gone:
            self._gone.pop(job.number, None)  # a cluster has begun it again
            return False
        since = time.monotonic() - self._gone.setdefault(job.number, time.monotonic())
        return since >= (_LATE_SECONDS if not state.why else _POLL_SECONDS)

    def _begin_again(self, jobs: Sequence[Job], why: str, final: Sequence[Job]) -> list[Job]:
        """Submit jobs once more that were lost, as far as they may; returns those that were taken."""
        retries = self.executor.retries
        again = [job for job in jobs if job not in final and self._begun_again[job.number] < retries]
        were = f"{counted(len(jobs), 'job')} {'was' if len(jobs) == 1 else 'were'} lost"
        what = ""
        if again:
            what = f", and {'is' if len(again) == 1 else 'are'} begun again"
        self.tell(f"{were}{what}" + (f": {why}" if why else ""))
        try:
            if again:
                self.executor.submit(again)
        except (RbptrackError, OSError, RuntimeError) as error:
            self.tell(str(error))
            again = []
        for job in jobs:
            self._gone.pop(job.number, None)
            if job in again:
                self._begun_again[job.number] += 1
            elif job in final:
                self._lost[job.number] = f"{why}; {CONTINUES}"
        return again

    def _give_up_the_rest(self) -> None:
        """Record that tasks with an unknown end will report nothing more."""
        for path, tasks in self.tasks.items():
            by_place = takers(path)
            for place, task in enumerate(tasks):
                if not self.results.knows_end_of(task):
                    why = f"its job was lost; {CONTINUES}" if place in by_place else "its job never started"
                    self.results.lose(task, self._lost.get(by_place.get(place, -1), why))


def _reason(states: Mapping[int, State]) -> str:
    reasons = Counter(state.why for state in states.values() if state.phase is Phase.waiting and state.why)
    return next((why for why, _ in reasons.most_common(1)), "")
