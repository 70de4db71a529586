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
import json
import time
import zlib
from collections.abc import Iterator, Sequence
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


def table(results: Path) -> str:
    """The page: each claim in a line, what each experiment draws, and what was not simulated."""
    kept = json.loads(results.read_text()) if results.exists() else {}
    lines = [_HEAD, *_claims(kept), _ABOUT]
    for one in EXPERIMENTS.values():
        remark = f" {one.remark}" if one.remark else ""
        lines.append(f"- **{one.name}**: {(one.draw.__doc__ or '').strip()} Truth: {one.truth}.{remark}")
    missing = {one.name: sum(name not in kept for name, e, _ in rows() if e is one) for one in EXPERIMENTS.values()}
    left = ", ".join(f"{name} ({count} rows)" for name, count in missing.items() if count)
    lines += [_NOT_SIMULATED, f"- Rows that are defined and have not run: {left or 'none'}."]
    return "\n".join(lines) + "\n"


def _claims(kept: dict[str, dict[str, Any]]) -> list[str]:
    """Each claim in a line: the middle and the worst of its rows that made it often enough to tell, and which is worst."""
    lines = [
        "\n| experiment | claim | nominal | found, middle | worst | where | draws |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    for one in EXPERIMENTS.values():
        for claim, nominal in one.claims.items():
            made = {name: kept[name]["claims"].get(claim, (0, 0)) for name, e, _ in rows() if e is one and name in kept}
            shares = {name: 100 * true / count for name, (true, count) in made.items() if count >= _ENOUGH}
            if shares:
                worst = (min if nominal > 0.5 else max)(shares, key=lambda name: shares[name])
                lines.append(
                    f"| {one.name} | {claim.replace(' %', '%')} | {100 * nominal:g} | {np.median([*shares.values()]):.1f} | "
                    f"{shares[worst]:.1f} | {worst.partition('/')[2]} | {sum(made[name][1] for name in shares):,} |"
                )
    return lines


_HEAD = """# Do the intervals and tests hold?

Most do; the column *worst* names where one does not. Each line is a claim that a report can make. Data were drawn from a
known truth and analysed as a report analyses them, and the claim was checked: `python -m studies.validity`. *Coverage* of an
interval should be near its nominal 95%. A *false positive* should be no more frequent than its nominal 5%. A claim that is
not always made (a refused forecast) counts where it is made. With 1,000 draws a row a share of 95% has a standard error of
0.7, with 500 of 1.0, with 200 of 1.5; the worst of many rows lies some two to three of these lower by chance.

m: number of sizes. D: documents, whose difficulty has heavy tails (t3: t with 3 degrees of freedom; skewed: lognormal) and
is shared by all sizes. tau: scatter between models in ln y. Every row, with its counts, is in
[validity.json](validity.json)."""

_ABOUT = "\n## What each experiment draws\n"

_NOT_SIMULATED = """
## What is not simulated

- Real texts: documents here differ in difficulty and length, and in nothing else. Tokens of one document are drawn alike, but
  for `emergence`.
- Models that share data or seeds across families, and sizes chosen after looking at the results.
- A law that is wrong in a way that is not listed above: oscillations, a regime that changes with the data.
- Imports without ranks, whose sampling errors are not known, but for alpha and the bend of one metric (alpha_uneven, known=0):
  where their end sizes scatter 3.6 times, a bend is said too often.
- Forecasts farther than 16 times the largest size; there are none.
- The laws of `draft`, its accepted runs and speed-ups; half-lives of `learning`; exponents of `domains` (studies/domains.py)."""


def main() -> None:
    """Run rows, list them, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="names or patterns; all by default")
    parser.add_argument("--replicates", type=int, default=REPLICATES)
    parser.add_argument("--results", type=Path, default=DOCS / "validity.json")
    parser.add_argument("--list", action="store_true", help="print the rows and how far each is")
    parser.add_argument("--table", action="store_true", help="write docs/validity.md")
    arguments = parser.parse_args()
    if arguments.list:
        kept = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}
        for name, _, _ in rows(arguments.rows):
            print(f"{kept.get(name, {}).get('replicates', 0):6d}  {name}")
    elif arguments.table:
        (DOCS / "validity.md").write_text(table(arguments.results))
    else:
        run(arguments.results, arguments.rows, arguments.replicates)


if __name__ == "__main__":
    main()
