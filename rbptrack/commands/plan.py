"""`python -m rbptrack plan`: what a sweep would cost, cell by cell, before it costs anything."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial

import pandas as pd
from rich.markup import escape

from rbptrack.analysis.display import as_csv
from rbptrack.analysis.executors import Executor
from rbptrack.base.errors import BadInput
from rbptrack.base.words import compact, compact_bytes, counted, duration
from rbptrack.commands.declared.closer import PLAN, PlanFormat
from rbptrack.commands.runner import HydraCommand
from rbptrack.config.request import Request, sweep_of
from rbptrack.config.schema import Config
from rbptrack.console.output import console, say, say_wrapped
from rbptrack.console.tables import print_json, table
from rbptrack.sweep.balance import cut
from rbptrack.sweep.devices import MEASURED_SHARE, Device, data_sheet, precision
from rbptrack.sweep.executors import requested
from rbptrack.sweep.plan import Plan, plan, too_large
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.resources import LONG_SECONDS, SHARE_OF_TIME
from rbptrack.tracking.store import Store

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+|\(revision [^)]*\)")  # in which faults of one cause differ
_MINUTE = 60.0
_HOUR = 3600.0  # seconds


def main(arguments: Sequence[str]) -> int:
    """Plan; returns exit code 0, or 1 if a cell cannot be measured; raises BadInput for exit code 2."""
    options, words = PLAN.split(arguments)
    on = data_sheet(options.on) if options.on else None
    return HydraCommand(requested, partial(_plan, form=options.format, on=on))(words)


def _plan(request: Request, *, form: PlanFormat, on: Device | None) -> int:
    settings, cells = sweep_of(request)
    reader = Store(settings.tracking).reader
    resolver = Resolver()
    device = on or _present(cells)
    plans = []
    with console(stderr=True).status("") as status:
        for number, cell in enumerate(cells):
            status.update(escape(f"[{number + 1}/{len(cells)}] {cell.title}"))
            plans.append(plan(cell, resolver, reader, device, elsewhere=on is not None))
        for number, cell in enumerate(cells):
            if plans[number].status == "to measure" and plans[number].estimated:  # a later cell's texts may be its own
                plans[number] = plan(cell, resolver, reader, device, elsewhere=on is not None)
    if form is PlanFormat.csv:
        sys.stdout.write(_csv(plans))
    elif form is PlanFormat.json:
        print_json([asdict(p) for p in plans])
    else:
        _show(plans)
        _show_time(plans, cells, device, elsewhere=on is not None)
        if settings.launch is not None:
            _show_jobs(plans, cells, settings.launch, guessed=on is None and settings.launch.gpus != 0)
    return 1 if any(p.total_params is None or p.status == "too large" for p in plans) else 0


def _csv(plans: Sequence[Plan]) -> str:
    return as_csv(pd.DataFrame(map(asdict, plans), dtype=object))


def _present(cells: Sequence[Config]) -> Device:
    """Return the device of this machine, whose rates are measured now, for the precisions that the cells have."""
    import psutil
    import torch

    from rbptrack.bench.speed import product_rate
    from rbptrack.models.device import device_of

    device = device_of(cells[0].model.device)
    rates = {}
    for cell in cells:
        if (kind := precision(cell.model)) not in rates:
            half = torch.bfloat16 if kind == "half" else torch.float32
            torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
            rates[kind] = product_rate(device, half)
    cuda = device.type == "cuda"
    memory = torch.cuda.get_device_properties(device).total_memory if cuda else psutil.virtual_memory().total
    name = torch.cuda.get_device_name(device) if cuda else "this machine's CPU"
    return Device(name, memory, rates, MEASURED_SHARE, "measured now")


def _show_time(plans: Sequence[Plan], cells: Sequence[Config], device: Device, *, elsewhere: bool) -> None:
    """Print the hours and the number of GPUs, with the assumptions."""
    ahead = [(p, c) for p, c in zip(plans, cells, strict=True) if p.status == "to measure" and p.seconds is not None]
    if not ahead:
        return
    longest, cell = max(((p.seconds or 0.0, c) for p, c in ahead), key=lambda seconds_and_cell: seconds_and_cell[0])
    rates = ", ".join(f"{device.rates[k] / 1e12:.3g} TFLOP/s in {k}" for k in {precision(c.model) for _, c in ahead})
    whole = sum((p.seconds or 0.0) * (p.gpus or 1) for p, _ in ahead)
    hours = "hours" if device.name.startswith("this") else "GPU-hours"
    spent = f"{whole / _HOUR:.2g} {hours}" if whole >= (_HOUR if hours == "hours" else _MINUTE) else duration(whole)
    say_wrapped(
        f"time: {spent} on {device.name} (longest cell: {cell.title}, {duration(longest)}); from {rates} "
        f"({device.source}), assuming {device.share:.0%} of it is reached"
    )
    if not elsewhere and device.name.startswith("this"):
        if cells[0].launch is not None:
            return  # the sentence about its jobs says it
        say("on=h100 estimates for a GPU: on=h100, a100, l4, ...")
        return
    by_gpus: dict[int, list[str]] = {}
    for p, _ in ahead:
        by_gpus.setdefault(p.gpus or 1, []).append(p.model)
    for gpus, models in sorted(by_gpus.items()):
        which = ", ".join(dict.fromkeys(models))
        how = "launch=NAME" + (f" launch.gpus={gpus} model.device_map=auto" if gpus > 1 else "")
        say_wrapped(f"{'one GPU' if gpus == 1 else f'{gpus} GPUs'} a job: {how}: {which}", lines=3)
    if len(by_gpus) > 1:
        say("launch.gpus=auto gives each job as many as its model needs")
    for p, cell in zip(plans, cells, strict=True):
        if p.status == "too large":
            say_wrapped(too_large(p.model, cell.model.dtype.value, device.name))


def _show_jobs(plans: Sequence[Plan], cells: Sequence[Config], executor: Executor, *, guessed: bool) -> None:
    """Print the number of tasks, the longest task, and how many jobs can run at a time.

    `guessed`: time was estimated for another kind of device than the jobs have.
    """
    seconds = {number: p.seconds or 0.0 for number, p in enumerate(plans) if p.status == "to measure"}
    if not seconds:
        return
    room = 0
    with suppress(BadInput):  # no cluster answers here
        room = executor.room(max(p.gpus or 1 for p in plans) if executor.gpus == "auto" else float(executor.gpus))
    limit = 60.0 * (executor.minutes or math.inf)
    counts = cut(seconds, jobs=room or 1, most=min(LONG_SECONDS, SHARE_OF_TIME * limit))
    counts |= {number: int(cells[number].shards) for number in counts if cells[number].shards != "auto"}
    tasks = sum(counts.values())
    line = f"launch={executor.name}: {counted(tasks, 'task')}"
    if room:
        line += f" for {counted(min(room, tasks), 'job')} at a time"
    if guessed:
        say_wrapped(f"{line}; on=h100 estimates how long they take on a GPU: on=h100, a100, l4, ...")
        return
    longest = max(seconds[number] / count for number, count in counts.items())
    line += f", the longest of {duration(longest)}"
    if room > 1:
        line += f"; about {duration(max(longest, sum(seconds.values()) / room))} in all"
    if longest > limit:
        times = math.ceil(longest / limit) - 1
        line += f". It is longer than the {executor.minutes} minutes of a job, which goes back into the queue "
        line += f"{counted(times, 'time')}; launch.retries={executor.retries} "
        line += "allows that" if times <= executor.retries else "is not enough"
    say_wrapped(line)


def _show(plans: Sequence[Plan]) -> None:
    """Print a table of the cells that can be measured, and below it the others."""
    headers = ["model", "dataset", "S", "params", "docs", "tokens", "FLOPs", "time", "memory", "download", "status"]
    rows = [
        [
            p.model,
            p.dataset,
            _count(p.non_embedding_params),
            _count(p.total_params),
            _count(p.documents),
            _about(p) + _count(p.tokens),
            "~" * (p.flops is not None and p.flops_estimated) + _flops(p.flops),
            "?" if p.seconds is None else duration(p.seconds),
            _bytes(p.memory_bytes),
            _bytes(p.download_bytes),
            p.status,
        ]
        for p in plans
        if p.total_params is not None
    ]
    ahead = [p for p in plans if p.status != "measured" and p.total_params is not None]
    weights = {p.model: p.download_bytes for p in ahead}
    rows.append(
        [
            f"{len(ahead)} to measure",
            *[""] * 4,
            _total(p.tokens for p in ahead),
            _flops(sum(p.flops or 0.0 for p in ahead)),
            duration(sum(p.seconds or 0.0 for p in ahead)),
            _bytes(max((p.memory_bytes or 0.0 for p in ahead), default=0.0)),
            _bytes(sum(b or 0 for b in weights.values())),
            "",
        ]
    )
    if len(rows) > 1:
        table(headers, rows, first_out=["params", "FLOPs", "docs", "download", "S", "memory", "tokens", "time"])
    free = next((p.device_bytes for p in plans if p.device_bytes), None)
    if free:
        say(f"memory of the device: {_bytes(free)}; '~': an estimate; exact after the first tokenisation")
    _show_unreachable([p for p in plans if p.total_params is None], len(plans))


def _show_unreachable(plans: Sequence[Plan], total: int) -> None:
    """Print the cells that cannot be measured, those with one cause in one line."""
    if not plans:
        return
    say(f"{len(plans):,} of {counted(total, 'cell')} cannot be measured:")
    causes: dict[str, list[Plan]] = {}
    for p in plans:
        causes.setdefault(_REPOSITORY.sub("", p.status), []).append(p)
    for alike in causes.values():
        models = ", ".join(dict.fromkeys(p.model for p in alike))
        datasets = ", ".join(dict.fromkeys(p.dataset for p in alike))
        texts = dict.fromkeys(p.status for p in alike)
        others = f" ({len(texts) - 1} more alike)" if len(texts) > 1 else ""
        say(f"  {models} / {datasets}: {next(iter(texts))}{others}")


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
