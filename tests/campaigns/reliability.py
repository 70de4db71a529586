"""The table of docs/reliability.md, made of what was recorded.

python -m tests.campaigns reliability RESULTS.jsonl ...    # writes docs/reliability.csv, and its ten rows into the page
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tests.campaigns.faults import FAULTS
from tests.campaigns.recorded import ROOT, recorded

PAGE = ROOT / "docs/reliability.md"
DATA = ROOT / "docs/reliability.csv"
_REPEATED = re.compile(r"(\\u[0-9a-f]{4})\1+")
BEGIN, END = "<!-- made by tests/campaigns/reliability.py -->", "<!-- end -->"
Trial = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A line of docs/reliability.csv: how often a fault was injected, and what was lost."""

    fault: str
    how: str
    times: int
    lost: str
    tried: str


@dataclass(frozen=True)
class Row:
    """One kind of fault.

    Attributes:
        fault: what goes wrong.
        how: it is injected.
        mine: which recorded trials belong here.
        times: how often a trial injects it.
        more: what the trials tell besides.

    """

    fault: str
    how: str
    mine: Callable[[Trial], bool]
    times: Callable[[Trial], int] = lambda trial: int(trial["times"])
    more: Callable[[Sequence[Trial]], str] = lambda trials: ""


def _killed(who: str, signal: str) -> Callable[[Trial], bool]:
    return lambda trial: (trial["fault"], trial.get("who"), trial.get("signal")) == ("kill", who, signal)


def _is(fault: str) -> Callable[[Trial], bool]:
    return lambda trial: trial["fault"] == fault


def _phases(trials: Sequence[Trial]) -> str:
    seen = [kill["phase"] for trial in trials for kill in trial["kills"]]
    counted = sorted({phase: seen.count(phase) for phase in seen}.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {phase}" for phase, count in counted)


def _counts(*names: str) -> Callable[[Sequence[Trial]], str]:
    def counted(trials: Sequence[Trial]) -> str:
        return ", ".join(f"{sum(trial[name] for trial in trials):,} {name.replace('_', ' ')}" for name in names)

    return counted


def _cut(trials: Sequence[Trial]) -> str:
    seen = [trial["phase"] for trial in trials]
    doing = ", ".join(f"{seen.count(phase)} {phase}" for phase in sorted(set(seen), key=seen.count, reverse=True))
    return f"{sum(trial['finished'] for trial in trials)} cells were finished; {doing}"


def _fuzzed(trials: Sequence[Trial]) -> str:
    minutes = sum(trial["seconds"] for trial in trials) / 60
    how = f"{minutes:.0f} minutes" if minutes else "a sample in `make test`"
    return f"{how}, {sum(t['refused'] for t in trials):,} refused, {sum(t['accepted'] for t in trials):,} read"


KILLED = "a real sweep of 3 models, killed up to 3 times at random moments of its work, then run to its end"
STORE = "a real sweep in an empty folder, while it makes the database"
REQUEST = "a proxy before a real `mlflow server`: one request, or five in a row"
BYTES = "one random bit at a time, half of them in the file's last kilobyte"
ROWS = (
    Row("SIGKILL, a sweep alone", KILLED, _killed("alone", "SIGKILL"), more=_phases),
    Row("a power cut", "a sweep on an ext4 image is stopped at a random moment, the image copied and mounted; verified, and "
        "run to its end there", _is("power cut"), more=_cut),
    Row("SIGKILL beside a second sweep", "the same, while another process measures the same cells into the same store",
        _killed("beside another sweep", "SIGKILL"), more=_phases),
    *(Row(f"{name}, a sweep alone", KILLED, _killed("alone", name), more=_phases) for name in ("SIGTERM", "SIGINT")),
    *(Row(f"{name} while the store is made", STORE, _killed("making the store", name), more=_phases)
      for name in ("SIGKILL", "SIGTERM", "SIGINT")),
    Row("a process that only makes a store is stopped",
        "SIGKILL, SIGINT, SIGTERM and SIGHUP in turn, at moments spread evenly over the making", _is("making a store")),
    Row("four processes on one cell", "two in one folder, two in others, one store; one of them is killed (SIGKILL)",
        _killed("four on one cell", "SIGKILL"), more=_phases),
    Row("the disk is full", "a small disk in memory with so many bytes left that each write in turn finds no room",
        _is("full disk"), more=_counts("refused")),
    *(Row(f"a bit flipped in {what}", BYTES, _is(f"flip: {what}"), more=_counts(end, "read_as_written"))
      for what, end in (("a rank table", "named"), ("a histogram", "named"), ("a part", "measured_again"),
                        ("cached tokens", "made_again"))),
    Row("a job's file cut off", "at each of its bytes", _is("cut job file")),
    *(Row(f"the server answers: {what}", REQUEST, _is(f"server: {what}"))
      for what in ("500", "503", "garbage", "nothing", "cut answer", "lost answer")),
    Row("the server is killed and restarted", "SIGKILL in the middle of a cell, down for the next one", _is("server: killed")),
    Row("the database is locked for 30 s", "another process holds it, at a cell's begin and at its end", _is("locked")),
    *(Row(f"damaged {target}", "damaged copies, guided by the lines that they reach (atheris)",
          lambda trial, target=target: (trial["fault"], trial.get("target")) == ("fuzz", target),
          times=lambda trial: int(trial["inputs"]), more=_fuzzed)
      for target in ("bundle", "bundle.json", "record.json", "csv", "ranks.json", "metrics.json", "sizes.csv",
                     "documents .jsonl", "documents .jsonl.gz", "documents .csv", "documents .parquet", "yaml", "uri")),
    *(Row(f"launched by {name}", " ".join((fault.__doc__ or "").split()), _is(name), times=lambda trial: 1)
      for name, fault in FAULTS.items()),
    Row("500 cells in one process", "memory, threads, handles, files after the tenth cell and after the last",
        _is("endurance"), times=lambda trial: int(trial["cells"]),
        more=lambda trials: f"memory {trials[-1]['samples'].get('grown', {}).get('memory', '?')} MB more"),
)  # fmt: skip


GROUPS = {
    "a sweep is killed (SIGKILL, SIGTERM, SIGINT)": r"SIG",
    "a process that makes the store is stopped": r"a process that only makes a store",
    "four processes on one cell, one of them killed": r"four processes",
    "a power cut": r"a power cut",
    "a full disk": r"the disk is full",
    "a bit flipped in a file, or a file cut off": r"a bit flipped|a job's file",
    "the tracking server fails, lies or restarts, or its database is locked": r"the server|the database",
    "damaged files to read (fuzzing)": r"damaged",
    "SLURM or Ray loses a job, a node or the driver": r"launched by",
    "500 cells in one process": r"500 cells",
}
"""The rows of the page: pattern of the faults that each sums up."""


def lines_of(trials: Sequence[Trial], kept: Mapping[str, Line]) -> list[Line]:
    """A line per fault; one of which nothing new was recorded stays as it was kept."""
    lines: list[Line] = []
    for row in ROWS:
        own = [trial for trial in trials if row.mine(trial)]
        if not own:
            lines.append(kept.get(row.fault) or Line(row.fault, row.how, 0, "not run", ""))
            continue
        more = row.more(own)
        commits = list(dict.fromkeys(trial["commit"] for trial in own))
        tried = f"{own[-1]['date']}, {commits[0]}" + (f" to {commits[-1]}" if len(commits) > 1 else "")
        lost = _lost(own) + (f" ({more})" if more else "")
        lines.append(Line(row.fault, row.how, sum(map(row.times, own)), lost, tried))
    return lines


def table(lines: Sequence[Line]) -> str:
    """The lines summed up by group, in Markdown."""
    shown = ["| fault | times | lost | last tried |", "|---|---:|---|---|"]
    for title, pattern in GROUPS.items():
        group = [line for line in lines if re.match(pattern, line.fault)]
        tried = [line for line in group if line.times]
        found = [line.lost for line in tried if not line.lost.startswith("nothing")]
        before = sum(line.lost.startswith("nothing since") for line in tried)
        lost = "; ".join(found) or "nothing" + (
            f" (after mending, in {before} of {len(tried)} kinds)" if before else ""
        )
        last = max((line.tried.partition(",")[0] for line in tried), default="")
        shown.append(f"| {title} | {sum(line.times for line in group):,} | {lost if tried else 'not run'} | {last} |")
    return "\n".join(shown)


def _lost(mine: Sequence[Trial]) -> str:
    """What went wrong, and whether it still does: trials of a later commit tell."""
    last = max((i for i, trial in enumerate(mine) if _wrong(trial)), default=-1)
    if last < 0:
        return "nothing"
    wrong = "; ".join(list(dict.fromkeys(text for trial in mine for text in _wrong(trial)))[:3])
    later = [trial["commit"] for trial in mine[last + 1 :] if trial["commit"] != mine[last]["commit"]]
    return f"nothing since {later[0]}; before: {wrong}" if later else wrong


def _wrong(trial: Trial) -> list[str]:
    found = trial.get("wrong") or trial.get("finds") or []
    return [
        _REPEATED.sub(r"\1...", ascii(str(text))[1:-1]).replace("|", "\\|")[:160]
        for text in (found.values() if isinstance(found, dict) else found)
    ]


def options(parser: argparse.ArgumentParser) -> None:
    """Nothing else can be asked."""


def main(asked: argparse.Namespace) -> int:
    """Write the lines into the data file, and the table into the page."""
    with DATA.open(encoding="utf-8", newline="") as file:
        kept = {row["fault"]: Line(**row | {"times": int(row["times"])}) for row in csv.DictReader(file)}
    lines = lines_of(recorded(asked.results), kept)
    with DATA.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Line)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, lines))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(lines)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0
