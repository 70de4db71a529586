"""`python -m rbptrack plan`: what a sweep would cost, cell by cell, before it costs anything."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple

from rbptrack.config.compose import Composer, configs, requested
from rbptrack.console import compact, console, say, table
from rbptrack.errors import BadInput
from rbptrack.sweep.plan import COLUMNS, Plan, plan
from rbptrack.tracking import Connection, Reader

_HELP = """\
Say what a sweep would cost, without weights and before anything is measured: the same words as for measuring.

  python -m rbptrack plan -m 'model=pythia/*' dataset=wiki,humaneval
  python -m rbptrack plan -m 'model=qwen2.5/*' dataset=wiki model.dtype=bfloat16
  python -m rbptrack plan -m 'model=nano/*' dataset=stdlib output=csv > plan.csv

S and total parameters are counted from the architecture, on the meta device. Documents and tokens are exact where the
texts were tokenised before, else estimated (~). FLOPs: (2 S + 2 d |V|) per token that the model reads. Memory: weights,
one sequence's activations and scoring, against what the device has free now. Download: weights not cached yet.

output=table|csv
"""


def main(arguments: list[str]) -> int:
    """Plan; returns exit code 0; raises BadInput for exit code 2."""
    if set(arguments) & {"--help", "-h"}:
        say(_HELP.rstrip())
        return 0
    output = next((a.partition("=")[2] for a in arguments if a.startswith("output=")), "table")
    if output not in ("table", "csv"):
        raise BadInput(f"output={output}: expected table or csv")
    arguments = [a for a in arguments if not a.startswith("output=")]
    composer = Composer("config", arguments)
    cells = configs(requested(arguments, composer), composer)
    reader = Reader(Connection(cells[0].tracking))
    with console(stderr=True).status("") as status:
        plans = []
        for number, config in enumerate(cells):
            status.update(f"[{number + 1}/{len(cells)}] {config.model.name} / {config.dataset.name}")
            plans.append(plan(config, reader))
    if output == "csv":
        sys.stdout.write(_csv(plans))
    else:
        _show(plans)
    return 0


def _csv(plans: Sequence[Plan]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(astuple(p) for p in plans)
    return text.getvalue()


def _show(plans: Sequence[Plan]) -> None:
    headers = ["model", "dataset", "S", "params", "docs", "tokens", "FLOPs", "memory", "download", ""]
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
    table(headers, rows)
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
    if number is None:
        return "?"
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return "0" if number == 0 else f"{max(number / 1e3, 0.1):.0f} kB"
