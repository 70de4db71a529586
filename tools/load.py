"""A shared store under load: many writers at once deliver measurements through a server with a database and a bucket.

    python -m tools.load RESULTS.json [--writers 64] [--measurements 1000] [--processes 8]

starts PostgreSQL, `rclone serve s3` and `mlflow server` (which hands artifacts on to the bucket) on loopback. Each
writer does what a sweep's job does: it begins a measurement's run, reports progress and delivers. Every tenth
measurement is asked for by two writers of different processes. Then all is counted: each measurement once (one that
ended twice is marked as a duplicate), with its own numbers and all of its artifacts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
KEY, SECRET = "loadkey", "loadsecret"
TWICE = 10  # every so many measurements are asked for by two writers


@contextmanager
def services(work: Path) -> Iterator[str]:
    """Database, bucket and server; the server's address."""
    from tests import server

    ports = server.Server(server.free_port(), server.free_port())
    bucket = server.free_port()
    (work / "s3/mlflow").mkdir(parents=True)
    # This environment's, which knows `serve s3`; that of a distribution may be older.
    rclone = shutil.which("rclone", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if rclone is None:
        raise SystemExit("there is no rclone here: pip install '.[tools]'")
    amazon = {"MLFLOW_S3_ENDPOINT_URL": f"http://127.0.0.1:{bucket}", "AWS_ACCESS_KEY_ID": KEY}
    amazon |= {"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    s3 = [rclone, "serve", "s3", "--addr", f"127.0.0.1:{bucket}", "--auth-key", f"{KEY},{SECRET}", str(work / "s3")]
    words = ["--workers", "2", "--artifacts-destination", "s3://mlflow/artifacts"]
    with server._postgres(work, ports.database_port), ExitStack() as started:
        server._sql(ports, "create database tracking")
        started.callback(server.end, server.start(s3, amazon["MLFLOW_S3_ENDPOINT_URL"], work / "rclone.log"))
        mlflow = server.start_mlflow(work, ports.database(name="tracking"), ports.port, *words, **amazon)
        started.callback(server.end, mlflow)
        yield ports.uri


def measurement(number: int, folder: Path) -> Any:
    """Return a complete record with artifacts of its own; its numbers tell it from every other."""
    from rbptrack.ranks import RankTable
    from rbptrack.tracking.record import Record, add_artifacts, curves, k_metrics
    from rbptrack.tracking.schema import MeasurementTags

    rng = np.random.default_rng(number)
    n = 5000
    table = RankTable.from_arrays(
        vocab_size=4096,
        document=np.repeat(np.arange(50), n // 50),
        position=np.tile(np.arange(1, n // 50 + 1), 50),
        field=np.zeros(n),
        token=rng.integers(0, 4096, n),
        greater=np.minimum(rng.zipf(1.5, n), 4096) - 1,
        ties=np.zeros(n),
        logprob=-rng.exponential(2.0, n),
    )
    family, size = f"f{number // 50}", f"{number % 50}m"
    about = MeasurementTags(f"{number:032x}", family, size, f"{family}-{size}", "load", "load")
    record = Record(about.title, about.tags(), {f"param.{i}": str(i) for i in range(60)} | {"number": str(number)})
    folder.mkdir(parents=True)
    table.write(folder.parent / f"{number}.parquet")
    histogram = table.histogram()
    add_artifacts(folder, ranks=folder.parent / f"{number}.parquet", histogram=histogram, title=about.title)
    record.metrics = k_metrics(histogram, table.document_counts((1, 10, 100))) | {"num_tokens": n, "number": number}
    record.curves = curves(histogram)
    record.ended = time.time()
    (folder / "config.yaml").write_text(f"number: {number}\n")
    return record


def write(numbers: list[int], writers: int, work: Path, out: Path, gate: Path) -> None:
    """Write measurements in one process of several: threads that take numbers from a list until it is empty."""
    import requests

    from rbptrack.base.errors import StoreAway
    from rbptrack.config.schema import TrackingConfig
    from rbptrack.tracking import outbox
    from rbptrack.tracking.claim import begin, find_after_others
    from rbptrack.tracking.store import Store

    mpl_lock, todo = threading.Lock(), deque(numbers)
    calls: list[tuple[str, float]] = []
    faults: list[str] = []
    told: list[str] = []
    original = requests.Session.request

    def timed(session: requests.Session, method: str, url: str, *arguments: Any, **options: Any) -> Any:
        began = time.monotonic()
        try:
            return original(session, method, url, *arguments, **options)
        finally:
            calls.append((f"{method} {url.partition('/api/2.0/')[2].partition('?')[0][:40]}", time.monotonic() - began))

    requests.Session.request = timed  # type: ignore[assignment,method-assign]
    ready = threading.Barrier(writers + 1)

    def writer() -> None:
        store = Store(replace(TrackingConfig(), experiment="load"))
        store.open()
        ready.wait()
        while not gate.exists():
            time.sleep(0.1)
        while True:
            try:
                number = todo.popleft()
            except IndexError:
                return
            folder = work / f"{number}-{threading.get_ident()}"
            try:
                with mpl_lock:
                    record = measurement(number, folder / "record")
                store.wait()
                run_id, done = "", False
                try:
                    done = bool(find_after_others(store.reader, record.fingerprint, folder, tell=told.append))
                    if not done:
                        writer = store.writer
                        run_id = begin(store, record, folder)
                        writer.log(run_id, params=record.params)
                        writer.log(run_id, metrics={"progress/tokens": 2500.0}, step=2500)
                except StoreAway as away:  # as a cell: it is measured all the same, and delivered or kept at the end
                    faults.append(str(away))
                if not done:
                    made = folder / "record"
                    sent = outbox.send(store, record, made, run_id, made_from=folder, tell=told.append)
                    faults.extend([sent.waits] if sent.waits else [])
            except Exception as error:
                faults.append(f"{number}: {type(error).__name__}: {error}")
            shutil.rmtree(folder, ignore_errors=True)

    threads = [threading.Thread(target=writer) for _ in range(writers)]
    for thread in threads:
        thread.start()
    ready.wait()
    out.with_suffix(".ready").touch()
    for thread in threads:
        thread.join()
    out.write_text(json.dumps({"calls": calls, "faults": faults, "waited": len(told)}))


def check(uri: str, measurements: int) -> dict[str, Any]:
    """Count what the store holds; the text of every fault."""
    from rbptrack.config.schema import TrackingConfig
    from rbptrack.tracking.schema import Kind, Tag
    from rbptrack.tracking.store import Store

    reader = Store(TrackingConfig(uri=uri, experiment="load")).reader
    runs = reader.search({Tag.KIND: Kind.MEASUREMENT})
    finished = reader.search({Tag.KIND: Kind.MEASUREMENT}, status="FINISHED")
    by_print: dict[str, list[Any]] = {}
    for run in finished:
        by_print.setdefault(run.tags["rbptrack.fingerprint"], []).append(run)
    wrong, artifacts = [], set()
    for print_, mine in by_print.items():
        run, number = mine[0], int(print_, 16)
        if run.metrics.get("number") != number or run.params.get("number") != str(number) or len(run.params) != 61:
            wrong.append(print_)
    for print_ in sorted(by_print)[:: max(1, measurements // 100)]:
        run_id = by_print[print_][0].run_id
        names = {n for n in reader.artifact_names(run_id) if not n.startswith("images/")}
        artifacts.add(tuple(sorted(names)))
        table = reader.ranks(run_id)
        rng = np.random.default_rng(int(print_, 16))
        if hashlib.sha256(table.column("token").tobytes()).digest() != _tokens(rng):
            wrong.append(f"ranks of {print_}")
    return {
        "runs": len(runs),
        "finished": len(finished),
        "different": len(by_print),
        "lost": measurements - len(by_print),
        "twice": sum(len(mine) > 1 for mine in by_print.values()),
        "wrong": wrong,
        "artifacts": [list(names) for names in artifacts],
    }


def _tokens(rng: np.random.Generator) -> bytes:
    return hashlib.sha256(rng.integers(0, 4096, 5000).astype(np.int32).tobytes()).digest()


def main() -> None:
    """Start the services, let the writers deliver, count what is there, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--measurements", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--share", help="of one process: its numbers, as a file")
    options = parser.parse_args()
    if options.share:
        share = Path(options.share)
        write(
            json.loads(share.read_text()),
            options.writers,
            share.parent / f"{share.stem}-work",
            share.with_suffix(".out"),
            share.parent / "go",
        )
        return
    with tempfile.TemporaryDirectory(prefix="rbptrack-load-") as name:
        work = Path(name)
        with services(work) as uri:
            numbers = run(uri, work, options)
    options.results.write_text(json.dumps(numbers, indent=1))
    print(json.dumps(numbers, indent=1))


def run(uri: str, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Let all writers begin at once, wait for them, and count."""
    os.environ["MLFLOW_TRACKING_URI"] = uri
    shares: list[list[int]] = [[] for _ in range(options.processes)]
    for number in range(options.measurements):
        shares[number % options.processes].append(number)
        if number % TWICE == 0:
            shares[(number + 1) % options.processes].append(number)
    processes = []
    for index, share in enumerate(shares):
        file = work / f"share-{index}.json"
        file.write_text(json.dumps(share))
        command = [sys.executable, "-m", "tools.load", "unused", "--share", str(file)]
        command += ["--writers", str(options.writers // options.processes)]
        processes.append(subprocess.Popen(command, cwd=work, env=os.environ | {"PYTHONPATH": str(ROOT)}))
    deadline = time.monotonic() + 600
    while len(list(work.glob("share-*.ready"))) < options.processes:
        if time.monotonic() > deadline:
            raise SystemExit("the writers do not come up")
        time.sleep(0.5)
    began, load = time.monotonic(), os.getloadavg()[0]
    (work / "go").touch()
    for process in processes:
        process.wait()
    seconds = time.monotonic() - began
    waiting = len(list(work.glob("mlruns/spool/*/*/record.json")))
    synced = time.monotonic()
    while list(work.glob("mlruns/spool/*/*/record.json")) and time.monotonic() - synced < 600:
        subprocess.run(
            [sys.executable, "-m", "rbptrack", "-q", "sync"], cwd=work, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
    outs = [json.loads((work / f"share-{i}.out").read_text()) for i in range(options.processes)]
    calls = [call for out in outs for call in out["calls"]]
    times = np.array([t for _, t in calls])
    worst = max(calls, key=lambda call: call[1])
    return {
        "writers": options.writers,
        "measurements": options.measurements,
        "asked twice": len(range(0, options.measurements, TWICE)),
        "seconds": seconds,
        "measurements per second": options.measurements / seconds,
        "calls": len(calls),
        "median call": float(np.median(times)),
        "99% of calls below": float(np.quantile(times, 0.99)),
        "worst call": worst[1],
        "worst call was": worst[0],
        "faults": [fault for out in outs for fault in out["faults"]],
        "kept until sync": waiting,
        "sync took": time.monotonic() - synced,
        "waited for another": sum(out["waited"] for out in outs),
        "load before": load,
    } | check(uri, options.measurements)


if __name__ == "__main__":
    main()
