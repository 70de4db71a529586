"""Check the intervals and tests of the library with draws from a known truth.

    python -m studies.validity --jobs 2 --draws 1000             # run all experiments; writes studies/validity.csv
    python -m studies.validity exponents emergence --minutes 5   # run some experiments and replace their rows
    python -m studies.validity --minutes 7 --jobs 16 --out DIR   # run all for 7 minutes; writes DIR/validity.csv
    python -m studies.validity --table                           # write tables and rates into the documentation

Each row of the CSV is a claim in a cell, which is one combination of settings. `studies.experiment` explains claims.
Draws are made in slices. Each slice of a cell has its own seed. With more time, more draws are added, and earlier draws
stay the same. All cells get their first slice before any cell gets its second slice.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count, islice
from pathlib import Path

import numpy as np
import pandas as pd

from rbptrack.ranks import FloatArray
from studies import law_experiments, measurement_experiments, validity_page
from studies.experiment import NOMINAL, Settings, kind_of, summary
from studies.validity_page import CSV

EXPERIMENTS = law_experiments.EXPERIMENTS | measurement_experiments.EXPERIMENTS

SECONDS_BETWEEN_WRITES = 20

Task = tuple[str, int, int, int]
"""The name of an experiment, the number of a cell, the number of a slice, and the number of draws in the slice."""


def settings_text(cell: Settings) -> str:
    """Return the settings of a cell as the CSV shows them, such as `m=4 D=20 t3`."""
    return " ".join(value if isinstance(value, str) else f"{key}={value:g}" for key, value in cell.items())


def draw_slice(task: Task) -> dict[str, FloatArray]:
    """Make the draws of one slice, and return the outcomes of each claim, (draws,).

    A claim has fewer outcomes if some draws give no answer.
    """
    name, cell_number, slice_number, draws = task
    experiment = EXPERIMENTS[name]
    cell = experiment.cells[cell_number]
    rng = np.random.default_rng([zlib.crc32(f"{name} {settings_text(cell)}".encode()), slice_number])
    outcomes: dict[str, list[float]] = {}
    for _ in range(draws):
        for claim, outcome in experiment.draw(rng, cell).items():
            outcomes.setdefault(claim, []).append(float(outcome))
    return {claim: np.array(values) for claim, values in outcomes.items()}


def list_tasks(names: Sequence[str], draws: int) -> Iterator[Task]:
    """Yield the first slice of every cell, then the second slice of every cell, and so on.

    Args:
        names: the names of the experiments.
        draws: the number of draws of each cell.

    """
    for slice_number in count():
        is_finished = True
        for name in names:
            slice_draws = EXPERIMENTS[name].draws
            remaining = draws - slice_number * slice_draws
            if remaining > 0:
                is_finished = False
                for cell_number in range(len(EXPERIMENTS[name].cells)):
                    yield name, cell_number, slice_number, min(slice_draws, remaining)
        if is_finished:
            return


class Results:
    """The outcomes of all draws so far, and the CSV file to write them to. Its rows of other experiments are kept."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        self._kept_rows = pd.DataFrame()
        if path.exists():
            before = pd.read_csv(path)
            self._kept_rows = before[~before["experiment"].isin(names)]
        self._draws: dict[tuple[str, int], int] = {}
        self._outcomes: dict[tuple[str, int], dict[str, list[FloatArray]]] = {}

    def add(self, task: Task, outcomes: dict[str, FloatArray]) -> None:
        """Add the outcomes of one slice."""
        name, cell_number, _, draws = task
        key = (name, cell_number)
        self._draws[key] = self._draws.get(key, 0) + draws
        cell_outcomes = self._outcomes.setdefault(key, {})
        for claim, values in outcomes.items():
            cell_outcomes.setdefault(claim, []).append(values)

    def frame(self) -> pd.DataFrame:
        """Return the rows of the CSV, one for each claim in each cell."""
        rows = []
        for (name, cell_number), outcomes in sorted(self._outcomes.items(), key=lambda item: item[0][1]):
            for claim, slices in outcomes.items():
                values = np.concatenate(slices)
                rows.append(
                    {
                        "experiment": name,
                        "claim": claim,
                        "nominal": NOMINAL.get(kind_of(claim)),
                        "where": settings_text(EXPERIMENTS[name].cells[cell_number]),
                        "draws": self._draws[name, cell_number],
                        "judged": len(values),
                        "value": float(f"{summary(claim, values):.4g}"),
                    }
                )
        frame = pd.concat([part for part in (self._kept_rows, pd.DataFrame(rows)) if len(part)])
        order = {name: place for place, name in enumerate(EXPERIMENTS)}
        frame = frame[frame["experiment"].isin(list(order))]
        return frame.sort_values("experiment", key=lambda names: names.map(order), kind="stable")

    def write(self) -> None:
        """Write the CSV. Other programs read either the old file or the new file, never a part of it."""
        partial_file = self.path.with_suffix(".partial")
        self.frame().to_csv(partial_file, index=False)
        partial_file.replace(self.path)


def simulate(names: Sequence[str], path: Path, *, jobs: int, draws: int, minutes: float) -> None:
    """Make the draws in several processes, and write results as they come.

    Args:
        names: the names of the experiments.
        path: the CSV file.
        jobs: the number of processes.
        draws: the number of draws of each cell.
        minutes: the time limit in minutes.

    """
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # for the processes that are started
    began = written_at = time.monotonic()
    ends = began + 60 * minutes
    results = Results(path, names)
    tasks = list_tasks(names, draws)
    slices_by_round: dict[int, int] = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[dict[str, FloatArray]], Task] = {}
        while time.monotonic() < ends:
            for task in islice(tasks, 3 * jobs - len(running)):
                running[pool.submit(draw_slice, task)] = task
            if not running:
                break
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                results.add(task, future.result())
                slices_by_round[task[2]] = slices_by_round.get(task[2], 0) + 1
            if slices_by_round and time.monotonic() - written_at > SECONDS_BETWEEN_WRITES:
                results.write()
                written_at = time.monotonic()
                print(f"{written_at - began:.0f} s: slices of each round: {list(slices_by_round.values())}", flush=True)
        pool.shutdown(wait=False, cancel_futures=True)
        if slices_by_round:
            results.write()
        print(f"{time.monotonic() - began:.0f} s: slices of each round: {list(slices_by_round.values())}", flush=True)


def main() -> None:
    """Run the experiments that the command line names, or write the documentation's tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", help=f"all by default: {', '.join(EXPERIMENTS)}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes; by default one per core")
    parser.add_argument("--draws", type=int, default=0, help="number of draws per cell; 1,000 without --minutes")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this many minutes")
    parser.add_argument("--out", type=Path, default=CSV.parent, help="folder for validity.csv; studies/ by default")
    parser.add_argument("--table", action="store_true", help="only write the page of the documentation")
    options = parser.parse_args()
    if options.table:
        validity_page.write_page()
        return
    unknown = sorted(set(options.experiments) - set(EXPERIMENTS))
    if unknown:
        parser.error(f"There is no experiment {', '.join(unknown)}. The experiments are {', '.join(EXPERIMENTS)}.")
    options.out.mkdir(parents=True, exist_ok=True)
    simulate(
        options.experiments or list(EXPERIMENTS),
        options.out / CSV.name,
        jobs=options.jobs,
        draws=options.draws or (1000 if math.isinf(options.minutes) else sys.maxsize),
        minutes=options.minutes,
    )


if __name__ == "__main__":
    main()
