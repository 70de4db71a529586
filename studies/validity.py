"""Simulate the coverage of intervals and the false positives of tests that reports print; make docs/validity.md.

    python -m studies.validity                        # every row, resuming; hours on one core
    python -m studies.validity 'forecast/*m=6*'       # some rows, by pattern
    python -m studies.validity --list                 # the rows there are, and how far each is
    python -m studies.validity --replicates 100 ...   # fewer draws per row than a row asks for
    python -m studies.validity --table                # write the table from what was simulated so far

Results are kept in docs/validity.json every few seconds. Each replicate has its own seed, made of the row's
name and its number, so that stopping and continuing changes nothing and a row gives the same numbers on every machine.

To add a row, write a function that draws one replicate and says of each claim whether it was right, in a module that
MODULES names:

    @experiment("my_interval", truth="what is true", claims={"interval of x covers": 0.95}, designs=grid(m=(4, 6)))
    def my_interval(rng, design):
        low, high = ...
        return {"interval of x covers": low <= TRUE <= high}     # None: the claim was not made this time
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from studies.simulation import EXPERIMENTS, Design, Experiment

MODULES = (
    "studies.simulated_laws",
    "studies.simulated_families",
    "studies.simulated_ranks",
    "studies.rank_and_ce",
    "studies.groups",
    "studies.shares",
)
"""Where rows are defined; a new module's name goes here."""

DOCS = Path(__file__).parent.parent / "docs"
REPLICATES = 1000
_ENOUGH = 100  # draws that made a claim, for its share to be told
_SHOWN = 10  # rows on the page
BEGIN, END = "<!-- made by studies/validity.py -->", "<!-- end -->"
SECONDS = 5.0
"""How much work may be lost, about."""

for _module in MODULES:
    import_module(_module)


def rows(patterns: Sequence[str] = ()) -> Iterator[tuple[str, Experiment, Design]]:
    """Name, experiment and design of every row that a pattern fits; of all without patterns."""
    for one in EXPERIMENTS.values():
        for design in one.designs:
            name = f"{one.name}/{design}"
            if not patterns or any(fnmatchcase(name, p) or p == one.name for p in patterns):
                yield name, one, design


def simulate(name: str, one: Experiment, design: Design, first: int, last: int) -> dict[str, list[int]]:
    """Claim -> [how often it was true, how often it was made] over the replicates first..last - 1 of a row."""
    counts = {claim: [0, 0] for claim in one.claims}
    for i in range(first, last):
        outcome = one.draw(np.random.default_rng([zlib.crc32(name.encode()), i]), design)
        for claim, true in outcome.items():
            if true is not None:
                counts[claim][0] += int(true)
                counts[claim][1] += 1
    return counts


def run(results: Path, patterns: Sequence[str], replicates: int) -> None:
    """Simulate what is missing, and keep it every few seconds."""
    for name, one, design in rows(patterns):
        several = 20
        while True:
            kept = json.loads(results.read_text()) if results.exists() else {}
            row = kept.get(name, {"replicates": 0, "claims": {}})
            done = row["replicates"]
            if done >= replicates:
                break
            upto, began = min(done + several, replicates), time.monotonic()
            for claim, (true, made) in simulate(name, one, design, done, upto).items():
                before = row["claims"].get(claim, [0, 0])
                row["claims"][claim] = [before[0] + true, before[1] + made]
            row["replicates"] = upto
            kept[name] = row
            partial = results.with_suffix(".tmp")
            partial.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
            partial.replace(results)
            several = max(20, int((upto - done) * SECONDS / (time.monotonic() - began)))
        print(f"{name}: {row['replicates']} replicates {row['claims']}", flush=True)


@dataclass(frozen=True)
class Claim:
    """A claim that reports make, over all rows of its experiment.

    Attributes:
        experiment: what was simulated.
        claim: what was checked.
        nominal: the share that it should have, in percent.
        middle: the share found, in percent: the median over rows.
        worst: the share in the row that misses the nominal one by most.
        where: that row.
        draws: how often the claim was made.
        simulated: what the experiment draws, its truth, and what else to know.

    """

    experiment: str
    claim: str
    nominal: float
    middle: float
    worst: float
    where: str
    draws: int
    simulated: str

    @property
    def miss(self) -> float:
        """By how much the worst row misses the nominal share, on the bad side."""
        return self.nominal - self.worst if self.nominal > 50 else self.worst - self.nominal


def claims(kept: Mapping[str, Any]) -> list[Claim]:
    """Return the claims whose rows were drawn often enough to tell."""
    drawn: list[Claim] = []
    for experiment in EXPERIMENTS.values():
        names = [name for name, owner, _ in rows() if owner is experiment and name in kept]
        truth = f"{(experiment.draw.__doc__ or '').strip()} Truth: {experiment.truth}. {experiment.remark}".strip()
        for claim, nominal in experiment.claims.items():
            made = {name: kept[name]["claims"].get(claim, (0, 0)) for name in names}
            shares = {name: 100 * true / count for name, (true, count) in made.items() if count >= _ENOUGH}
            if shares:
                worst = (min if nominal > 0.5 else max)(shares, key=lambda name: shares[name])
                drawn.append(
                    Claim(
                        experiment=experiment.name,
                        claim=claim.replace(" %", "%"),
                        nominal=100 * nominal,
                        middle=float(np.median([*shares.values()])),
                        worst=shares[worst],
                        where=worst.partition("/")[2],
                        draws=sum(made[name][1] for name in shares),
                        simulated=" ".join(truth.split()),
                    )
                )
    return drawn


def table(results: Path) -> str:
    """Return the claims that miss their nominal share by most, and the rows that have not run, in Markdown."""
    kept = json.loads(results.read_text()) if results.exists() else {}
    lines = ["| experiment | claim | nominal | median | worst | where | draws |", "|---|---|---:|---:|---:|---|---:|"]
    for claim in sorted(claims(kept), key=lambda claim: claim.miss, reverse=True)[:_SHOWN]:
        lines.append(
            f"| {claim.experiment} | {claim.claim} | {claim.nominal:g} | {claim.middle:.1f} | {claim.worst:.1f} | "
            f"{claim.where} | {claim.draws:,} |"
        )
    missing = {
        one.name: sum(name not in kept for name, owner, _ in rows() if owner is one) for one in EXPERIMENTS.values()
    }
    left = ", ".join(f"{name} ({count} rows)" for name, count in missing.items() if count)
    return "\n".join([*lines, "", f"Rows that are defined and have not run: {left or 'none'}."])


def write(results: Path) -> None:
    """Write every claim into docs/validity.csv, and the table into docs/validity.md."""
    with (DOCS / "validity.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Claim)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            asdict(claim) | {"middle": f"{claim.middle:.1f}", "worst": f"{claim.worst:.1f}"}
            for claim in claims(json.loads(results.read_text()))
        )
    page = DOCS / "validity.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    """Run rows, list them, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="names or patterns; all by default")
    parser.add_argument("--replicates", type=int, default=REPLICATES)
    parser.add_argument("--results", type=Path, default=DOCS / "validity.json")
    parser.add_argument("--list", action="store_true", help="print the rows and how far each is")
    parser.add_argument(
        "--table", action="store_true", help="write docs/validity.csv, and its ten rows in docs/validity.md"
    )
    arguments = parser.parse_args()
    if arguments.list:
        kept = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}
        for name, _, _ in rows(arguments.rows):
            print(f"{kept.get(name, {}).get('replicates', 0):6d}  {name}")
    elif arguments.table:
        write(arguments.results)
    else:
        run(arguments.results, arguments.rows, arguments.replicates)


if __name__ == "__main__":
    main()
