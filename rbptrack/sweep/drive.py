"""Jobs from their submission to their end, wherever they run; what is lost begins again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rbptrack.base.errors import RbptrackError
from rbptrack.base.process import INTERRUPTED, stop_code
from rbptrack.base.words import counted
from rbptrack.console.output import say
from rbptrack.sweep.channel import Inbox
from rbptrack.sweep.executors import Executor, Phase, State
from rbptrack.sweep.jobs import Job
from rbptrack.sweep.outcome import CONTINUES
from rbptrack.sweep.results import Results
from rbptrack.sweep.watch import Watch

_POLL_SECONDS = 1.0
_POLL_JOBS = 64  # of which a network file system is asked in a second
_LATE_SECONDS = 10.0  # by which a file may be seen here after its job has ended elsewhere


@dataclass
class Drive:
    """Jobs under way."""

    executor: Executor
    jobs: Sequence[Job]
    results: Results
    inbox: Inbox
    retries: int  # how often a job that was lost begins again
    tell: Callable[[str], None]
    _begun_again: Counter[int] = field(default_factory=Counter)
    _gone: dict[int, float] = field(default_factory=dict)  # since when each job has been seen to have gone

    def run(self, *, total: int) -> int:
        """Submit the jobs, else BadInput, and wait for their end; returns 0, or an interrupt's exit code."""
        code = 0
        try:
            self.executor.submit(self.jobs)
            if self.executor.elsewhere:
                with Watch(self.results, self.inbox, self.jobs, total=total) as watch:
                    self._follow(watch)
        except KeyboardInterrupt:
            code = INTERRUPTED
        except SystemExit:
            code = stop_code()
        if code == INTERRUPTED:
            self.executor.cancel()
        elif code and self.executor.outlives:  # a terminal was closed, say: nobody wanted the jobs to end
            say(self.executor.outlives)
        if self.executor.elsewhere:
            self.inbox.read(self.jobs)
        return code

    def give_up_the_rest(self) -> None:
        """Take note that nothing more will be heard of tasks whose end is not known."""
        for job in self.jobs:
            self._give_up(job)

    def _follow(self, watch: Watch) -> None:
        left = list(self.jobs)
        while left:
            self.inbox.read(left)
            states = self.executor.states()
            lost: dict[str, list[Job]] = {}
            for job in list(left):
                state = states.get(job.number, State(Phase.running))
                if self._has_ended(job, state):
                    left.remove(job)
                elif self._is_lost(job, state):
                    lost.setdefault(state.why, []).append(job)
            for why, jobs in lost.items():
                again = self._begin_again(jobs, why)
                left = [job for job in left if job not in jobs or job in again]
            watch.show(_reason(states))
            if left:
                time.sleep(_POLL_SECONDS * max(1.0, len(left) / _POLL_JOBS))

    def _has_ended(self, job: Job, state: State) -> bool:
        """Whether nothing more is to come of a job, and it was not lost."""
        report = self.inbox.reports.get(job.number)
        if report and report.done:
            self._give_up(job, report.gave_up)
            return True
        return state.phase is Phase.gone and all(map(self.results.known, job.tasks))

    def _is_lost(self, job: Job, state: State) -> bool:
        """Whether a job has gone without a word; the word may come late, over a network."""
        if state.phase is not Phase.gone:
            self._gone.pop(job.number, None)  # a cluster has begun it again
            return False
        since = time.monotonic() - self._gone.setdefault(job.number, time.monotonic())
        return since >= (_LATE_SECONDS if not state.why else _POLL_SECONDS)

    def _begin_again(self, jobs: Sequence[Job], why: str) -> list[Job]:
        """Submit jobs once more that were lost, as far as they may; returns those that were taken."""
        again = [job for job in jobs if self._begun_again[job.number] < self.retries]
        were = f"{counted(len(jobs), 'job')} {'was' if len(jobs) == 1 else 'were'} lost"
        what = f", and {'is' if len(again) == 1 else 'are'} begun again" if again else ""
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
            else:
                self._give_up(job, "" if job.number in self.inbox.reports else "its job never began")
        return again

    def _give_up(self, job: Job, why: str = "") -> None:
        for task in job.tasks:
            if not self.results.known(task):
                self.results.lose(task, why or f"its job was lost; {CONTINUES}")


def _reason(states: Mapping[int, State]) -> str:
    reasons = Counter(state.why for state in states.values() if state.phase is Phase.waiting and state.why)
    return next((why for why, _ in reasons.most_common(1)), "")
