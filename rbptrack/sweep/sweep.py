"""Run a sweep: measure its cells, deliver the measurements, and analyse them."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from rbptrack.analysis import Analyzer
from rbptrack.base.errors import RbptrackError, StoreAway
from rbptrack.base.formatting import counted
from rbptrack.config.schema import Config, Launch
from rbptrack.console.output import print_problem, print_text, program_name
from rbptrack.console.progress import spinner
from rbptrack.measurement.document import measurement_title, names_of
from rbptrack.measurement.parts import Label
from rbptrack.sweep.analysing import analyse, make_analyzers
from rbptrack.sweep.backends import make_backend
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.outcomes import TITLE_WIDTH, Failed, Found, Measured, Outcome
from rbptrack.sweep.progress import SweepProgress
from rbptrack.sweep.resolver import Resolver
from rbptrack.tracking import Outbox, Store


def run(configs: Sequence[Config], words: Sequence[str]) -> int:
    """Run a sweep. Cells that are measured already are skipped, and one failed cell does not stop the others.

    Args:
        configs: one configuration for each cell, from `config.compose`.
        words: the words of the command line. The report shows them.

    Returns:
        The exit code: 0 for success; 1 if a cell or an analyzer failed, or if measurements wait for the store; 2 if
        all cells failed because of bad input.

    """
    began = time.time()
    settings = configs[0]  # the settings of the whole sweep are equal in all cells
    sweep_name = _make_sweep_name(configs)
    store = Store(settings.tracking.uri, settings.tracking.experiment)
    analyzers: list[Analyzer] = []
    if settings.deliver:
        chooses_k = any(word.startswith(("k=", "k.values=")) for word in words)
        analyzers = make_analyzers(settings, settings.k.values if chooses_k else [])
        _deliver_waiting(store)
    progress = SweepProgress(len(configs))
    cells = _resolve_cells(configs, sweep_name, progress)
    progress.title_width = max([TITLE_WIDTH, *(len(cell.title) for cell in cells.values())])
    if settings.deliver and not settings.force:
        _skip_measured(progress.remaining(cells), store, progress)
    remaining_cells = progress.remaining(cells)
    if remaining_cells:
        if settings.deliver:
            with suppress(StoreAway):  # a store that is away gets the measurements later
                store.check_writable(cell.config.dataset.name for cell in remaining_cells.values())
        folder_name = sweep_name or next(iter(remaining_cells.values())).fingerprint[:12]
        make_backend(settings, store, folder_name).run(remaining_cells, progress.add)
    if not progress.outcomes:  # launch.show=true
        return 0
    failures = [outcome for outcome in progress.outcomes.values() if isinstance(outcome, Failed)]
    if len(failures) == len(progress.outcomes):  # nothing to deliver or analyse
        return 2 if all(failure.bad_input for failure in failures) else 1
    num_waiting = _retry_deliveries(cells, store, progress) if settings.deliver else 0
    relabel_found(cells, progress.outcomes, store, words)
    for note in progress.notes():
        print_text(note)
    num_problems = num_waiting + len(failures)
    if analyzers and len(configs) > 1 and not num_waiting:
        command = f"{program_name()} {shlex.join(words)}"
        outcomes = list(progress.outcomes.values())
        num_problems += analyse(
            store, outcomes, analyzers, name=sweep_name, command=command, ks=settings.k.values, began=began
        )
    return int(num_problems > 0)


def _make_sweep_name(configs: Sequence[Config]) -> str:
    """Return the name of a sweep: by default the time and a random suffix, or an empty text for a single cell."""
    if configs[0].sweep or len(configs) == 1:
        return configs[0].sweep
    return f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _deliver_waiting(store: Store) -> None:
    """Deliver the measurements that earlier commands and jobs left on this disk."""
    outbox = Outbox(store)
    if not outbox.waiting_folders():
        return
    with suppress(StoreAway):
        for delivery in outbox.deliver_waiting():
            print_text(delivery.line())


def _resolve_cells(configs: Sequence[Config], sweep_name: str, progress: SweepProgress) -> dict[int, Cell]:
    """Resolve the configurations of a sweep to cells, by number. A cell that cannot be resolved has failed."""
    resolver = Resolver()
    cells = {}
    errors = {}
    with spinner("looking up models and datasets"):
        for number, config in enumerate(configs):
            try:
                _check_device(config)
                cells[number] = resolver.resolve(replace(config, sweep=sweep_name))
            except RbptrackError as error:
                errors[number] = measurement_title(config.model.name, config.dataset.name), error
    progress.add_unresolved(errors)
    return cells


def _check_device(config: Config) -> None:
    """Raise BadInput if this process would measure a cell on a device that this machine does not have."""
    device = config.model.device
    if device not in ("auto", "cpu") and config.launch.kind is Launch.local:
        from rbptrack.models.device import torch_device  # imports torch, which takes seconds

        torch_device(device)


def _skip_measured(cells: Mapping[int, Cell], store: Store, progress: SweepProgress) -> None:
    """Add the outcome `Found` for each cell that the store has already."""
    try:
        run_ids = store.find_all({cell.fingerprint for cell in cells.values()})
    except StoreAway as error:
        print_problem(f"{error}. The sweep goes on, and its measurements wait on this disk")
        return
    for number, cell in cells.items():
        if cell.fingerprint in run_ids:
            progress.add(number, Found(cell.title, run_ids[cell.fingerprint]))


def relabel_found(
    cells: Mapping[int, Cell], outcomes: Mapping[int, Outcome], store: Store, words: Sequence[str]
) -> None:
    """Give the measurements that were made before the labels that the command line sets, such as `model.family=mine`.

    Prints the old and the new name of each measurement whose labels change.
    """
    keys_set = {word.lstrip("+").partition("=")[0] for word in words}
    if "model.family" in keys_set:
        keys_set.add("model.size")  # its default depends on the family
    labels = [
        name for name in names_of(Label) if ("dataset.name" if name == "dataset" else f"model.{name}") in keys_set
    ]
    run_ids_by_values: dict[tuple[object, ...], list[str]] = {}
    for number, outcome in outcomes.items():
        if labels and isinstance(outcome, Found):
            values = tuple(cells[number].description[name] for name in labels)
            run_ids_by_values.setdefault(values, []).append(outcome.run_id)
    try:
        for values, run_ids in run_ids_by_values.items():
            for line in store.relabel(store.runs(run_ids=run_ids), dict(zip(labels, values, strict=True))):
                print_text(f"labels changed: {line}")
    except RbptrackError as error:
        print_problem(f"the labels of the measurements that exist are not changed: {error}")


def _retry_deliveries(cells: Mapping[int, Cell], store: Store, progress: SweepProgress) -> int:
    """Try once more to deliver the measurements that wait. Returns how many still wait."""
    waiting: dict[int, Measured] = {}
    for number, outcome in progress.outcomes.items():
        if isinstance(outcome, Measured) and outcome.delivery_error:
            waiting[number] = outcome
    if not waiting:
        return 0
    with suppress(RbptrackError):
        Outbox(store).deliver_waiting()
        for number, measured in list(waiting.items()):
            if run_id := store.find(cells[number].fingerprint):
                progress.outcomes[number] = replace(measured, run_id=run_id, delivery_error="")
                del waiting[number]
    if waiting:
        reason = next(iter(waiting.values())).delivery_error
        waiting_text = f"waiting on this disk: {counted(len(waiting), 'finished measurement')}"
        print_problem(f"{reason}; {waiting_text}. {program_name()} sync delivers them")
    return len(waiting)
