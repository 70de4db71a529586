"""The default command: measure every cell of a sweep, then analyse what was measured."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import hydra
import pandas as pd
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from rbptrack.analysis.contract import Analyzer
from rbptrack.config.compose import Composer, requested
from rbptrack.config.compose import configs as configs_of
from rbptrack.config.paths import conf_folder, home
from rbptrack.config.patterns import size_key
from rbptrack.config.schema import Config, FilterConfig, typed
from rbptrack.console import compact, complain, say, short_path, table
from rbptrack.errors import BadInput, RbptrackError
from rbptrack.reporting.discovery import Plugins, discover
from rbptrack.reporting.page import render
from rbptrack.reporting.runner import Findings, analyze_all, choose
from rbptrack.sweep import cell as cells
from rbptrack.sweep.cell import CellFailed, Outcome
from rbptrack.tracking import Connection, Reader, Writer, resolve_uri, without_password
from rbptrack.tracking.outbox import folder as spool_folder
from rbptrack.tracking.outbox import upkeep

_TERMINATED = 128 + signal.SIGTERM
_SHOWN_KS = (1, 10, 100)
_CELLS = "RBPTRACK_CELLS"  # how many cells the sweep has, for workers that other launchers start


def main(arguments: list[str]) -> int:
    """Measure; returns the exit code: 0, 1 if a cell or analyzer failed, 2 for bad input before any run began."""
    composer = Composer("config", arguments)
    request = requested(arguments, composer)
    if request.only_shows:
        _hand_to_hydra([*request.words, *request.overrides])
        return 0
    request = replace(request, overrides=_without_secrets(request.overrides))
    overrides, multirun, configs = request.overrides, request.multirun, configs_of(request, composer)
    plugins = _plugins(configs[0])
    analyzers = choose(plugins, configs[0].analyzers) if multirun else []
    _check_before(configs, ks_were_typed=any(o.startswith(("k=", "k.values=")) for o in overrides))
    return _sweep(request.words, overrides, configs, multirun, analyzers)


def _plugins(config: Config) -> Plugins:
    plugins = discover(config.plugins.get("path", []))
    for line in plugins.broken:
        complain(f"plugin left out: {line}")
    return plugins


def _check_before(configs: Sequence[Config], *, ks_were_typed: bool) -> None:
    """What can be known to be wrong before hours are spent: tracking store, models, tokenizers, k, local datasets."""
    from rbptrack.models.architecture import check_fit, load_config, load_tokenizer
    from rbptrack.models.checkpoint import check_folder

    Connection(configs[0].tracking).check_writable()
    known: dict[str, tuple[Any, Any]] = {}
    for config in configs:
        model, _ = cells.sources(config)
        if model.identity not in known:
            if config.model.path:
                check_folder(config.model)
            known[model.identity] = load_config(model), load_tokenizer(cells.tokenizer_source(config))
        check_fit(config.model.name, *known[model.identity], config.dataset.seq_len)
    largest = max(architecture.vocab_size for architecture, _ in known.values())
    too_large = sorted(k for k in configs[0].k.values if k > largest)
    if too_large and ks_were_typed:  # of the default list, what is too large is left out with a note
        raise BadInput(
            f"k must be between 1 and {largest}, the largest vocabulary of the models asked for; "
            f"got {', '.join(map(str, too_large))}"
        )


def _sweep(
    words: list[str],
    overrides: list[str],
    configs: list[Config],
    multirun: bool,
    analyzers: list[Analyzer],
) -> int:
    sweep = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    folder = home() / "hydra" / sweep
    uri = resolve_uri(configs[0].tracking)
    os.environ[_CELLS] = str(len(configs))
    fixed = [
        f"hydra.run.dir='{folder}/0'",
        f"hydra.sweep.dir='{folder}'",
        "hydra.sweep.subdir=${hydra.job.num}",
        *_tracking_override(uri),
        *([f"sweep={sweep}"] if multirun and not configs[0].sweep else []),
    ]
    if multirun:
        models, datasets = ({c.model.name for c in configs}, {c.dataset.name for c in configs})
        say(f"measuring {len(configs)} cells: {len(models)} models x {len(datasets)} datasets")
    upkeep(configs[0].tracking, tell=say)
    began = time.time()
    signal.signal(signal.SIGTERM, _terminated)
    interrupted = 0
    try:
        _hand_to_hydra([*words, *overrides, *fixed])
    except KeyboardInterrupt:
        interrupted = 130
    except SystemExit as stop:
        if stop.code == _TERMINATED:
            interrupted = _TERMINATED
    outcomes = [Outcome.read(p) for p in sorted(folder.glob("*/outcome.json"), key=lambda p: int(p.parent.name))]
    if not any(o.run_id or o.status != "failed" for o in outcomes) and not interrupted:
        return _nothing_ran(outcomes, folder)
    waiting = any(o.waits for o in outcomes) and upkeep(configs[0].tracking, tell=say)
    _summarise(outcomes, len(configs))
    if interrupted:
        say("interrupted: what was measured is kept; the same command continues there")
        return interrupted
    failed = sum(o.status == "failed" for o in outcomes) + (len(configs) - len(outcomes))
    if waiting:
        complain(
            f"the tracking store is away: {waiting} measurements wait, complete, in {short_path(str(spool_folder()))}. "
            "Once it answers: python -m rbptrack sync, then analyze"
        )
        return 1
    if multirun:
        name = configs[0].sweep or sweep
        failed += _analyse(Connection(configs[0].tracking), name, outcomes, analyzers, overrides, began)
    elif outcomes and outcomes[0].status == "measured":
        say("sweep several sizes for a law, for example: python -m rbptrack -m 'model=nano/*' dataset=stdlib,pydocs")
    say("compare  python -m rbptrack ui")
    return 1 if failed else 0


def _without_secrets(overrides: list[str]) -> list[str]:
    """Overrides as Hydra may save them: a tracking URI with a password moves into the environment."""
    kept = []
    for override in overrides:
        key, _, value = override.partition("=")
        if key == "tracking.uri" and without_password(value.strip("'\"")) != value.strip("'\""):
            os.environ["MLFLOW_TRACKING_URI"] = value.strip("'\"")
        else:
            kept.append(override)
    return kept


def _tracking_override(uri: str) -> list[str]:
    """The absolute URI for workers; one that holds a password stays in the environment, never in a file."""
    return [f"tracking.uri='{uri}'"] if without_password(uri) == uri else []


def _terminated(number: int, frame: object) -> NoReturn:
    raise SystemExit(_TERMINATED)  # unwinds, so that the run in progress is closed as KILLED


def _hand_to_hydra(arguments: list[str]) -> None:
    sys.argv = ["python -m rbptrack", *arguments]
    hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="config")(cell)()


def cell(composed: DictConfig) -> None:
    """Hydra's job: run one cell and leave its outcome in the job's folder; its own failure never stops the sweep."""
    runtime = HydraConfig.get()
    total = int(os.environ.get(_CELLS, "1"))
    number = runtime.job.num if total > 1 else 0
    place = f"[{number + 1}/{total}]" if total > 1 else ""
    config: Config = typed(composed)
    title = f"{config.model.name} / {config.dataset.name}"
    outcome = Outcome(title, config.model.name, config.dataset.name, "failed")
    try:
        outcome = cells.run(config, place=place)
    except RbptrackError as error:
        outcome.message, outcome.bad_input = str(error), isinstance(error, BadInput)
    except CellFailed as failure:
        outcome.run_id, outcome.message = failure.run_id, _words(failure.cause)
    except Exception as error:
        outcome.message = _words(error)
    outcome.write(Path(runtime.runtime.output_dir))
    cells.announce(outcome, place)


def _words(error: Exception) -> str:
    """An error in a line; a bug's with its type, and where to see the traceback."""
    if os.environ.get("HYDRA_FULL_ERROR"):
        traceback.print_exception(error)
    if isinstance(error, RbptrackError):
        return str(error)
    return f"{type(error).__name__}: {error} (HYDRA_FULL_ERROR=1 shows where)"


def _nothing_ran(outcomes: list[Outcome], folder: Path) -> int:
    """No run began: say why once, and leave nothing behind but what was there before."""
    for message in dict.fromkeys(o.message for o in outcomes):
        complain(message)
    shutil.rmtree(folder, ignore_errors=True)
    for emptied in (folder.parent, home() / "partial", home()):
        with suppress(OSError):  # not there, or not empty
            emptied.rmdir()
    return 2 if outcomes and all(o.bad_input for o in outcomes) else 1


def _summarise(outcomes: list[Outcome], total: int) -> None:
    ks = [k for k in _SHOWN_KS if any(f"rbp_{k}" in o.numbers for o in outcomes)]
    rows = []
    for o in sorted(
        outcomes, key=lambda o: (o.dataset, o.model.rpartition("-")[0], size_key(o.model.rpartition("-")[2]))
    ):
        n = o.numbers
        if not n:
            continue
        values = [f"{n[f'rbp_{k}']:.4f}" if f"rbp_{k}" in n else "" for k in ks]
        size, tokens = compact(n["non_embedding_params"]), f"{n['num_tokens']:,.0f}"
        error = f"{n['ce_se']:.4f}" if "ce_se" in n else ""
        rows.append([o.model, o.dataset, size, tokens, f"{n['ce']:.4f}", error, *values, o.status])
    say("")
    if rows:
        table(["model", "dataset", "S", "tokens", "CE", "± se", *(f"RBP_{k}" for k in ks), ""], rows)
    counts = {s: sum(o.status == s for o in outcomes) for s in ("measured", "skipped", "failed")}
    missing = total - len(outcomes)
    parts = [f"{counts['measured']} measured"]
    parts += [f"{counts['skipped']} skipped as already measured"] if counts["skipped"] else []
    parts += [f"{counts['failed']} failed"] if counts["failed"] else []
    parts += [f"{missing} not run"] if missing else []
    say(", ".join(parts))
    for o in outcomes:
        if o.status == "failed":
            complain(f"{o.title}: {o.message}")
    for note in dict.fromkeys(note for o in outcomes for note in o.notes):
        say(note)


def _analyse(
    connection: Connection,
    sweep: str,
    outcomes: list[Outcome],
    analyzers: list[Analyzer],
    overrides: list[str],
    began: float,
) -> int:
    """The sweep's own run: its command line, its cells, and every analyzer's findings; returns how many failed."""
    command = shlex.join(["python", "-m", "rbptrack", "-m", *overrides])
    run_ids = [o.run_id for o in outcomes if o.run_id and o.status in ("measured", "skipped")]
    reader, writer = Reader(connection), Writer(connection)
    run_id = writer.begin(
        f"sweep {sweep}",
        {"rbptrack.kind": "sweep", "rbptrack.sweep": sweep, "mlflow.note.content": f"`{command}`"},
        started=began,
    )
    found = Findings()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if run_ids:
            runs = reader.runs(FilterConfig(), run_ids=run_ids)
            found = analyze_all(writer, runs, analyzers, folder=folder, sweep=sweep)
            facts = [("command", command), ("store", connection.shown)]
            page = render(f"Sweep {sweep}", runs, found.sections, facts=facts, silent=found.silent)
            (folder / "report.html").write_text(page, encoding="utf-8")
        _cells_frame(outcomes).to_csv(folder / "cells.csv", index=False)
        (folder / "command.txt").write_text(command + "\n", encoding="utf-8")
        writer.log_folder(run_id, folder)
    failures = sum(o.status == "failed" for o in outcomes)
    writer.log(run_id, metrics={"cells": len(outcomes), "cells_failed": failures})
    writer.end(run_id, "FAILED" if failures else "FINISHED")
    if run_ids:
        say(f"report   {short_path(reader.artifact_uri(run_id))}/report.html")
    return found.failed


def _cells_frame(outcomes: list[Outcome]) -> pd.DataFrame:
    rows = [
        {
            "model": o.model,
            "dataset": o.dataset,
            "status": o.status,
            "run_id": o.run_id,
            **o.numbers,
            "message": o.message,
        }
        for o in outcomes
    ]
    return pd.DataFrame(rows)
