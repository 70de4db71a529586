"""How the cost of reading a store grows with the number of its measurements, and that of an analysis with its tokens.

    python -m tools.growth store RESULTS.jsonl --work FOLDER [--sizes 1e3,1e4,1e5] [--backends sqlite,postgresql]
                                 [--figures "skip check,export"] [--limit 900]
    python -m tools.growth tables RESULTS.jsonl --work FOLDER [--sizes 1e6,1e7,1e8]
    python -m tools.growth show RESULTS.jsonl

`store` makes stores (`tools.made_stores`), which stay in the folder. `tables` writes rank tables by streaming. Each figure
is that of a process of its own; what RESULTS.jsonl holds is not measured again. `show` prints Markdown, with the exponent
of growth between the last two sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tools import made_stores

ROOT = Path(__file__).parent.parent
LIMIT = 900.0  # seconds of wall time of one figure, unless the command says otherwise
MEMORY = 16 << 30  # bytes of address space beyond which a process is refused more
ANALYZERS = "power_law,k_law,error_entropy,lognormal,emergence,position,lack_of_fit,thresholds,rank_and_ce,tokens"


class Results:
    """The figures so far, a line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def add(self, about: dict[str, Any], measured: dict[str, Any]) -> None:
        """Keep and print a figure."""
        self.rows.append(about | measured)
        with self._path.open("a") as file:
            file.write(json.dumps(self.rows[-1]) + "\n")
        print(self.rows[-1], flush=True)

    def has(self, about: dict[str, Any]) -> bool:
        """Return whether it was measured before."""
        return any(about.items() <= row.items() for row in self.rows)


def timed(command: list[str], *, cwd: Path, uri: str = "", limit: float = LIMIT) -> dict[str, Any]:
    """Run a command; wall and processor seconds, peak memory, and what it said last where it failed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "HF_"))}
    environment |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"} | ({"MLFLOW_TRACKING_URI": uri} if uri else {})
    began = time.monotonic()
    with (cwd / "said.txt").open("w+") as said:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdout=said,
            stderr=said,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
            start_new_session=True,
        )
        before = signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
        signal.alarm(int(limit))
        _, status, used = os.wait4(process.pid, 0)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        seconds = time.monotonic() - began
        said.seek(0)
        last = said.read().strip().splitlines()[-1:]
    code = os.waitstatus_to_exitcode(status)
    measured: dict[str, Any] = {"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024}
    if code:
        measured["failed"] = f"over {limit:.0f} s" if seconds >= limit else f"exit code {code}: {' '.join(last)[:200]}"
    else:
        with suppress(ValueError, IndexError):
            measured |= json.loads(last[0])
    return measured


SKIP = """
import json, time, statistics
from rbptrack.config.schema import TrackingConfig
from rbptrack.tracking.store import Store
reader = Store(TrackingConfig()).reader
def each(names):
    found = []
    for name in names:
        began = time.monotonic(); known = reader.find(name); found.append(time.monotonic() - began)
        assert (known is not None) == (len(name) == 32)
    return statistics.median(found)
each(["x"])
there = each([f"{(i * 7919) % N:032x}" for i in range(20)])
print(json.dumps({"each": max(there, each([f"absent {i}" for i in range(20)]))}))
"""
FRAME = """
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.tracking.store import Store
runs = Store(TrackingConfig()).reader.runs(FilterConfig())
assert len(runs) == N, len(runs)
"""


def store_figures(results: Results, about: dict[str, Any], chosen: str, *, cwd: Path, uri: str, limit: float) -> None:
    """Measure the figures of one store whose names hold one of the words that were chosen."""
    n = about["n"]
    python, program = [sys.executable, "-c"], [sys.executable, "-m", "rbptrack"]
    commands = {
        "skip check of one cell": [*python, SKIP.replace("N:", f"{n}:").replace("% N", f"% {n}")],
        "all measurements as a table": [*python, FRAME.replace("== N", f"== {n}")],
        "analyze power_law, one family": [*program, "analyze", "analyzer=power_law", "family=f00000"],
        "report, one family": [*program, "report", "family=f00000"],
        "export, one family": [*program, "export", "out=one.zip", "family=f00000"],
        "analyze power_law, all": [*program, "analyze", "analyzer=power_law"],
        "report of power_law, all": [*program, "report", "analyzers=power_law"],
        "export, all": [*program, "export", "out=all.zip"],
    }
    for what, command in commands.items():
        for name in ("one.zip", "all.zip"):
            (cwd / name).unlink(missing_ok=True)
        if _chosen(what, chosen) and not results.has(about | {"what": what}):
            results.add(about | {"what": what}, timed(command, cwd=cwd, uri=uri, limit=limit))
    if _chosen("the UI's first page", chosen) and not results.has(about | {"what": "the UI's first page"}):
        results.add(about | {"what": "the UI's first page"}, first_page(uri or f"sqlite:///{cwd}/mlruns/mlflow.db"))


def _chosen(what: str, words: str) -> bool:
    return any(word in what for word in words.split(","))


def first_page(uri: str) -> dict[str, Any]:
    """Seconds of the requests with which MLflow's page of runs opens: the median of five, after one."""
    from tests.server import end, free_port, start_mlflow

    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        process = start_mlflow(Path(name), uri, port)
        try:
            return _paged(port)
        finally:
            end(process)


def _paged(port: int) -> dict[str, Any]:
    from rbptrack.tracking.schema import Kind, Tag

    asked = {
        "experiment_ids": ["1"],
        "filter": f"tags.`{Tag.KIND}` = '{Kind.MEASUREMENT}'",
        "max_results": 100,
        "order_by": ["attributes.start_time DESC"],
    }
    seconds = []
    for _ in range(6):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/ajax-api/2.0/mlflow/runs/search",
            data=json.dumps(asked).encode(),
            headers={"Content-Type": "application/json"},
        )
        began = time.monotonic()
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            assert len(json.load(answer)["runs"]) == 100
        seconds.append(time.monotonic() - began)
    return {"each": float(np.median(seconds[1:])), "seconds": sum(seconds), "cpu": None, "peak": None}


def stores(
    results: Results, work: Path, sizes: Sequence[int], backends: Sequence[str], chosen: str, limit: float
) -> None:
    """Measure every command on stores of each size and backend; the stores stay in the folder."""
    seed = made_stores.seed(work / "seed")
    if "sqlite" in backends:
        for n in sizes:
            folder = made_stores.on_sqlite(seed, work / f"sqlite-{n}", n)
            store_figures(results, {"backend": "sqlite", "n": n}, chosen, cwd=folder, uri="", limit=limit)
    if "postgresql" in backends:
        cwd = work / "postgresql"
        cwd.mkdir(parents=True, exist_ok=True)
        with made_stores.postgres(work / "server") as server:
            for n in sizes:
                uri = made_stores.on_postgres(seed, server, n, artifacts=cwd / "artifacts")
                store_figures(results, {"backend": "postgresql", "n": n}, chosen, cwd=cwd, uri=uri, limit=limit)


def tables(results: Results, work: Path, sizes: Iterable[int], analyzers: Iterable[str], limit: float) -> None:
    """Families of four models on one dataset, with tables of so many tokens each, and every analyzer over them."""
    for n in sizes:
        folder = work / f"tables-{n}"
        names = list(analyzers)
        if all(results.has({"n": n, "what": f"analyze {name}"}) for name in names):
            continue
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            shape = {"tokens": n, "documents": max(100, n // 2000), "datasets": 1, "models": 4}
            words = [word for key, value in shape.items() for word in (f"--{key}", str(value))]
            write = [sys.executable, "-m", "tools.synthetic_store", str(folder), *words]
            made = timed(write, cwd=folder, limit=limit)
            results.add({"backend": "", "n": n, "what": "write four tables by streaming"}, made)
            if "failed" in made:
                return
            (folder / "whole").touch()
        for name in names:
            about = {"backend": "", "n": n, "what": f"analyze {name}"}
            if not results.has(about):
                analyze = [sys.executable, "-m", "rbptrack", "analyze", f"analyzer={name}"]
                results.add(about, timed(analyze, cwd=folder, limit=limit))
        shutil.rmtree(folder)


def show(results: Results) -> None:
    """Print a row per figure and backend: seconds (see `_spent`) and peak memory at each size, and the exponent."""
    for kind in (("sqlite", "postgresql"), ("",)):
        rows = [r for r in results.rows if r["backend"] in kind]
        sizes = sorted({r["n"] for r in rows})
        if not rows:
            continue
        print("| | | " + " | ".join(f"{n:,}" for n in sizes) + " | exponent |")
        print("|---" * (len(sizes) + 3) + "|")
        for what in dict.fromkeys(r["what"] for r in rows):
            for backend in kind:
                mine = {r["n"]: r for r in rows if (r["what"], r["backend"]) == (what, backend)}
                if mine:
                    cells = [_cell(mine.get(n)) for n in sizes]
                    print(f"| {what} | {backend} | " + " | ".join(cells) + f" | {_exponent(mine)} |")
        print()


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not measured"
    if "failed" in row:
        return str(row["failed"])
    seconds = _spent(row)
    said = f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
    return said + (f", {row['peak'] / 1e9:.2f} GB" if row.get("peak") else "")


def _spent(row: dict[str, Any]) -> float:
    """Seconds of one call where these were taken, else of the processor: wall time is the other work's, too."""
    return float(row.get("each") or row.get("cpu") or row["seconds"])


def _exponent(rows: dict[int, dict[str, Any]]) -> str:
    """D ln(seconds) / d ln(n) between the last two sizes."""
    good = sorted((n, _spent(r)) for n, r in rows.items() if "failed" not in r)
    if len(good) < 2:
        return ""
    (n0, t0), (n1, t1) = good[-2:]
    return f"{np.log(t1 / t0) / np.log(n1 / n0):.2f}"


def main() -> None:
    """Measure stores or tables, or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["store", "tables", "show"])
    parser.add_argument("results", type=Path)
    parser.add_argument("--work", type=Path, default=Path("growth"))
    parser.add_argument("--sizes", default="")
    parser.add_argument("--backends", default="sqlite,postgresql")
    parser.add_argument("--figures", default="", help="words in the names of those that are measured")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of wall time of each figure of a store")
    parser.add_argument("--analyzers", default=ANALYZERS)
    options = parser.parse_args()
    results = Results(options.results)
    sizes = [int(float(n)) for n in (options.sizes or {"store": "1e3,1e4,1e5"}.get(options.what, "1e6,1e7")).split(",")]
    if options.what == "store":
        stores(results, options.work.absolute(), sizes, options.backends.split(","), options.figures, options.limit)
    elif options.what == "tables":
        tables(results, options.work.absolute(), sizes, options.analyzers.split(","), options.limit)
    else:
        show(results)


if __name__ == "__main__":
    main()
