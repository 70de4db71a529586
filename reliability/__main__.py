"""`python -m reliability NAME --count N`: a campaign; a line for each trial that is not in order, and the counts.

The exit code is 1 where a trial is not in order. One thread: a trial is a fork, which threads do not survive.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from reliability import alterations, bits, calls, inputs, odd, store, sweeps
from reliability.trial import Bench, Trial, counts

_GOOD = ("message", "accepted", "noticed", "harmless", "nothing lost")


def _bench(folder: Path) -> Bench:
    place = folder / "store"
    store.build(place, "nano/6k", "nano/15k", "nano/38k")
    code, said = store.ran(place, "export", "good.zip")
    assert code == 0, said
    odd.make(place)
    return Bench(place)


def _altered(folder: Path, count: int) -> Iterator[Trial]:
    place = folder / "store"
    return alterations.run(store.build(place, "nano/6k", "nano/15k"), place, count=count)


CAMPAIGNS: dict[str, tuple[int, Callable[[Path, int], Iterator[Trial]]]] = {
    "inputs": (10_000, lambda folder, count: inputs.run(_bench(folder), count=count)),
    "calls": (10_000, lambda folder, count: calls.run(_bench(folder), count=count)),
    "alterations": (100, _altered),
    "bits": (3000, lambda folder, count: bits.run(folder, count=count)),
    "kills": (20, lambda folder, count: sweeps.kills(folder, count=count)),
    "power": (5, lambda folder, count: sweeps.power_cuts(folder, count=count)),
    "disks": (5, lambda folder, count: sweeps.full_disks(folder, count=count)),
    "outages": (3, lambda folder, count: sweeps.outages(folder, count=count)),
}


def main() -> int:
    """Run one campaign, or all of them; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CAMPAIGNS), metavar=f"{{{','.join(CAMPAIGNS)}}}")
    parser.add_argument("--count", type=int, default=0, help="trials; 0: as many as the documentation's table says")
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    torch.set_num_threads(1)
    code = 0
    for name in given.names:
        usual, campaign = CAMPAIGNS[name]
        trials = []
        with tempfile.TemporaryDirectory(prefix="reliability-") as folder:
            os.environ["RBPTRACK_CACHE"] = f"{folder}/cache"
            os.chdir(folder)
            for trial in campaign(Path(folder), given.count or usual):
                trials.append(trial)
                if trial.outcome not in _GOOD:
                    code = 1
                    print(f"{trial.outcome}: {trial.what}\n    {trial.said[-500:]}")
            os.chdir("/")
        print(name, len(trials), dict(counts(trials)))
    return code


if __name__ == "__main__":
    sys.exit(main())
