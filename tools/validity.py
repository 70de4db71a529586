"""Simulate the coverage of intervals and the false positives of tests that reports print; make docs/validity.md.

    python -m tools.validity                        # every row, resuming; hours on one core
    python -m tools.validity 'forecast/*m=6*'       # some rows, by pattern
    python -m tools.validity --list                 # the rows there are, and how far each is
    python -m tools.validity --replicates 100 ...   # fewer draws per row than a row asks for
    python -m tools.validity --table                # write the table from what was simulated so far

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

from tools.simulation import EXPERIMENTS, Design, Experiment

MODULES = ("tools.simulated_laws", "tools.simulated_families", "tools.simulated_ranks")
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
    found = {claim: [0, 0] for claim in one.claims}
    for i in range(first, last):
        outcome = one.draw(np.random.default_rng([zlib.crc32(name.encode()), i]), design)
        for claim, true in outcome.items():
            if true is not None:
                found[claim][0] += int(true)
                found[claim][1] += 1
    return found


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
    """The table of what was simulated so far, and what was not."""
    kept = json.loads(results.read_text()) if results.exists() else {}
    lines = [_HEAD, *_glance(kept)]
    missing: dict[str, int] = {}
    for one in EXPERIMENTS.values():
        found = [(d, kept[n]) for n, e, d in rows() if e is one and n in kept]
        missing[one.name] = len(one.designs) - len(found)
        if found:
            lines += [f"\n## {one.name}\n", f"{(one.draw.__doc__ or '').strip()} Truth: {one.truth}.\n"]
            lines += [f"{one.remark}\n"] if one.remark else []
            lines += [
                "| m | documents | tails | tau | setting | claim | replicates | nominal | found |",
                "|---|---|---|---|---|---|---|---|---|",
            ]
        for design, row in sorted(found, key=lambda f: str(f[0])):
            for claim, (true, made) in row["claims"].items():
                if not made and len(row["claims"]) > 1:
                    continue  # a claim that is about other settings
                setting = ", ".join(f"{n} {v:g}" for n, v in design.more) or "–"
                share = true / max(made, 1)
                error = np.sqrt(max(share * (1 - share), 1e-9) / max(made, 1))
                found_here = f"{100 * share:.1f} ± {100 * error:.1f}" if made else "never made"
                lines.append(
                    f"| {design.m} | {design.documents or '–'} | {design.tails} | {design.tau:g} | {setting} | "
                    f"{claim.replace(' %', '%')} | {made} | {100 * one.claims[claim]:g} | {found_here} |"
                )
    left = ", ".join(f"{name} ({n} rows)" for name, n in missing.items() if n)
    lines.append(f"\nNot simulated yet: {left or 'nothing'}.")
    return "\n".join(lines) + "\n"


def _glance(kept: dict[str, dict[str, Any]]) -> list[str]:
    """Each claim in a line: the range over its rows that made it often enough to tell."""
    lines = ["\n| | claim | rows | nominal | lowest | highest |", "|---|---|---:|---:|---:|---:|"]
    for one in EXPERIMENTS.values():
        for claim, nominal in one.claims.items():
            made = [kept[name]["claims"].get(claim, (0, 0)) for name, e, _ in rows() if e is one and name in kept]
            shares = [100 * true / count for true, count in made if count >= _ENOUGH]
            if shares:
                words = claim.replace(" %", "%")
                lines.append(
                    f"| [{one.name}](#{one.name}) | {words} | {len(shares)} | {100 * nominal:g} | {min(shares):.1f} | "
                    f"{max(shares):.1f} |"
                )
    return lines


_HEAD = """# Do the intervals and tests hold?

After this page you know how far to trust the intervals and tests of a report: which of them hold what they promise, and
where they promise too much or too little.

Made by `python -m tools.validity`: data are drawn from a known truth, analysed as a report analyses them, and each
claim is checked. *Coverage* should be near its nominal 95%; a *false positive* should be no more frequent than its
nominal 5%. m is the number of sizes; documents have heavy tails (t3: t with 3 degrees of freedom; skewed: lognormal)
in a difficulty that all sizes share; tau is the scatter between models in ln y. A claim that is not always made (a
refused forecast) counts where it is made: the column replicates says how often. ± is one binomial standard error."""


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
