"""`python -m rbptrack plan`: what a sweep would cost, cell by cell, before it costs anything."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from functools import partial

from rich.markup import escape

from rbptrack.commands.runner import HydraCommand
from rbptrack.commands.usage import Help
from rbptrack.config.compose import Request, measuring, sweep_of
from rbptrack.console import compact, compact_bytes, console, say, table
from rbptrack.errors import BadInput
from rbptrack.sweep.plan import COLUMNS, Plan, plan
from rbptrack.sweep.resolve import Resolver
from rbptrack.tracking import Connection, Reader

HELP = Help(
    "plan [output=table|csv] and the words of measure",
    """Says what a sweep would cost, before anything is measured and without weights.

    S and total parameters are counted from the architecture. Documents and tokens are exact where the texts were
    tokenised before, else estimated (~). FLOPs: (2 S + 2 d |V|) per token that the model reads. Memory: weights, one
    sequence's activations and scoring, against what the device has free now. Download: weights that are not cached yet.

    The exit code is 1 if a cell cannot be measured.""",
    {"output=csv": "all figures in full, as CSV"},
    {
        "plan 'model=pythia/*' dataset=wiki,humaneval": "a family on two datasets",
        "plan 'model=qwen2.5/*' dataset=wiki model.dtype=bfloat16": "in half precision",
        "plan 'model=nano/*' dataset=stdlib output=csv > plan.csv": "into a file",
    },
)


def main(arguments: Sequence[str]) -> int:
    """Plan; returns exit code 0, or 1 if a cell cannot be measured; raises BadInput for exit code 2."""
    output = next((a.partition("=")[2] for a in arguments if a.startswith("output=")), "table")
    if output not in ("table", "csv"):
        raise BadInput(f"output={output}: expected table or csv")
    command = HydraCommand(measuring, partial(_plan, output=output), lambda _: HELP.show())
    return command([a for a in arguments if not a.startswith("output=")])


def _plan(request: Request, *, output: str) -> int:
    settings, cells = sweep_of(request)
    reader, resolver = Reader(Connection(settings.tracking)), Resolver()
    plans = []
    with console(stderr=True).status("") as status:
        for number, cell in enumerate(cells):
            status.update(escape(f"[{number + 1}/{len(cells)}] {cell.title}"))
            plans.append(plan(cell, resolver, reader))
    if output == "csv":
        sys.stdout.write(_csv(plans))
    else:
        _show(plans)
    return 1 if any(p.total_params is None or p.status == "too large" for p in plans) else 0


def _csv(plans: Sequence[Plan]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(astuple(p) for p in plans)
    return text.getvalue()


def _show(plans: Sequence[Plan]) -> None:
    headers = ["model", "dataset", "S", "params", "docs", "tokens", "FLOPs", "memory", "download", "status"]
    rows = [
        [
            p.model,
            p.dataset,
            _count(p.non_embedding_params),
            _count(p.total_params),
            _count(p.documents),
            _about(p) + _count(p.tokens),
            _about(p) + _flops(p.flops),
            _bytes(p.memory_bytes),
            _bytes(p.download_bytes),
            p.status if p.total_params is not None else "gated" if "gated" in p.status else "cannot",
        ]
        for p in plans
    ]
    ahead = [p for p in plans if p.status != "measured"]
    weights = {p.model: p.download_bytes for p in ahead}
    rows.append(
        [
            f"{len(ahead)} to measure",
            "",
            "",
            "",
            "",
            _total(p.tokens for p in ahead),
            _flops(sum(p.flops or 0.0 for p in ahead)),
            _bytes(max((p.memory_bytes or 0.0 for p in ahead), default=0.0)),
            _bytes(sum(b or 0 for b in weights.values())),
            "",
        ]
    )
    table(headers, rows, first_out=["params", "FLOPs", "docs", "download", "S", "memory", "tokens"])
    free = next((p.device_bytes for p in plans if p.device_bytes), None)
    if free:
        say(f"memory free on the device: {_bytes(free)}; ~ estimated, exact once the texts were tokenised")
    for reason in dict.fromkeys(p.status for p in plans if p.total_params is None):
        say(f"{', '.join(dict.fromkeys(p.model for p in plans if p.status == reason))}: {reason}")


def _about(p: Plan) -> str:
    return "~" if p.estimated and p.tokens is not None else ""


def _count(number: float | None) -> str:
    return "?" if number is None else compact(number)


def _total(numbers: Iterable[int | None]) -> str:
    return compact(sum(n or 0 for n in numbers))


def _flops(number: float | None) -> str:
    return "?" if number is None else f"{number:.1e}"


def _bytes(number: float | None) -> str:
    return "?" if number is None else compact_bytes(number)
