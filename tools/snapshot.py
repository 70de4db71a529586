"""Write every table of all analyzers as sorted CSV; compare two such folders to see whether a change moved a number.

    python -m tools.snapshot OUT [STORE ...]        # write; a store is a folder with mlruns/, or an archive of one
    python -m tools.snapshot --compare A B          # exit code 1 if anything differs

Without stores, it measures the demo (minutes), makes a synthetic store and one of checkpoints, references, precisions
and scores, so that every analyzer has a case, and takes the frozen store of tests/frozen.
OUT/STORE/measurements.csv holds what `list` prints; OUT/STORE/ANALYZER/ has TABLE.csv, metrics.csv and findings.csv.
Stores are copied first and never changed. Only the command line is used (`list` and `analyze '*'` with format=json), so
that the same file runs on the code before and after a change; it needs nothing else of this repository.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/proxies"
SYNTHETIC = (
    "--tokens",
    "20000",
    "--documents",
    "100",
    "--datasets",
    "2",
    "--models",
    "19",
)  # two long families, one short
Row = dict[str, Any]


def environment(cache: Path) -> dict[str, str]:
    """Return the variables of a program that sees neither the user's caches nor their tracking server."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "HYDRA_", "RBPTRACK_"))}
    return kept | {"RBPTRACK_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}


def rbptrack(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; its messages go to this terminal."""
    command = [sys.executable, "-m", "rbptrack", *words]
    cache = folder.parent / "cache"
    return subprocess.run(command, cwd=folder, env=environment(cache), stdout=subprocess.PIPE, text=True, check=False)


def copied(store: Path, folder: Path) -> Path:
    """Copy a store, or unpack its archive, into a folder."""
    if store.is_file():
        with tarfile.open(store) as archive:
            archive.extractall(folder, filter="data")
        dump = folder / "mlruns/mlflow.sql"
        with closing(sqlite3.connect(dump.with_suffix(".db"))) as database:
            database.executescript(dump.read_text())
        dump.unlink()
    else:
        leave_out = shutil.ignore_patterns("hydra", "partial", "*.html", "*.svg", "*.png", "*.pdf")
        shutil.copytree(store / "mlruns", folder / "mlruns", ignore=leave_out)
    return folder


def made_stores(folder: Path) -> dict[str, Path]:
    """Make the stores of a snapshot that names none: the demo's, two that give every analyzer a case, the frozen one."""
    demo, synthetic, variants = (folder / name for name in ("demo", "synthetic", "variants"))
    demo.mkdir()
    run(demo, "demo")
    subprocess.run([sys.executable, ROOT / "tools/synthetic_store.py", synthetic, *SYNTHETIC], cwd=ROOT, check=True)
    measure_variants(variants)
    return {"demo": demo, "synthetic": synthetic, "variants": variants, "frozen": frozen()}


def measure_variants(folder: Path) -> None:
    """Measure checkpoints, references and precisions on grouped texts with fields, and import scores of tasks."""
    folder.mkdir()
    with (EXAMPLE / "functions.jsonl").open() as lines:
        texts = [json.loads(line) | {"source": f"s{i % 12}"} for i, line in enumerate(islice(lines, 60))]
    (folder / "functions.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    dataset = ("dataset=files", "dataset.files=[functions.jsonl]", "dataset.name=functions", "dataset.separator=")
    dataset += ("dataset.fields=[prompt,solution]", "dataset.group=source", "analyzers=[]")
    run(folder, "-m", "model=nano-checkpoints/*,nano/6k,nano/15k,nano/38k", *dataset)
    run(folder, "-m", "model=nano/6k,nano/15k", "reference=nano/115k", *dataset)
    run(folder, "-m", "model=nano/15k,nano/38k", "model.dtype=bfloat16", *dataset)
    run(folder, "import", f"scores={EXAMPLE / 'completions.csv'}")


def run(folder: Path, *words: str) -> None:
    """Run a command that must succeed."""
    if rbptrack(folder, *words).returncode:
        sys.exit(f"rbptrack {' '.join(words)} failed; see its messages above")


def frozen() -> Path:
    """Return the archive of the newest frozen store."""
    return max((ROOT / "tests/frozen").glob("store-*.tar.xz"))


def documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON documents that follow each other in a text."""
    decoder = json.JSONDecoder()
    start = 0
    while rest := text[start:].lstrip():
        document, length = decoder.raw_decode(rest)
        start = len(text) - len(rest) + length
        yield document


def write(path: Path, rows: list[Row]) -> None:
    """Write rows in a fixed order: by their words, then by their numbers to six digits."""
    frame = pd.json_normalize(rows)
    order = sorted(range(len(frame)), key=lambda i: sort_key(frame.iloc[i]))
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.iloc[order].to_csv(path, index=False, lineterminator="\n")


def sort_key(row: pd.Series) -> tuple[list[str], list[str]]:
    """Return the key by which a row is sorted."""
    words = [str(value) for value in row if isinstance(value, str)]
    numbers = [
        f"{value:.6g}" if isinstance(value, float) else str(value) for value in row if not isinstance(value, str)
    ]
    return words, numbers


def snapshot(store: Path, out: Path) -> None:
    """Write the tables of one store into a folder."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = copied(store, Path(temporary, "store"))
        listed = rbptrack(folder, "list", "format=json")
        analyses = rbptrack(folder, "analyze", "*", "again=yes", "format=json")  # exit code 1 if one has no case here
    if listed.returncode or not analyses.stdout.strip():
        sys.exit(f"{store} cannot be analysed; see the messages above")
    write(out / "measurements.csv", json.loads(listed.stdout))
    for analysis in documents(analyses.stdout):
        target = out / analysis["analyzer"]
        tables = {
            **analysis["tables"],
            "metrics": [{"metric": name, "value": value} for name, value in analysis["metrics"].items()],
            "findings": analysis["findings"],
        }
        for name, rows in tables.items():
            if rows:
                write(target / f"{name}.csv", rows)


def differences(before: Path, after: Path, *, tolerance: float, ignored: list[str]) -> Iterator[str]:
    """Yield a line for each difference between two snapshots.

    Args:
        before: a folder that a snapshot was written into.
        after: another.
        tolerance: relative difference up to which two numbers are equal.
        ignored: patterns of STORE/ANALYZER/TABLE, or STORE/ANALYZER/TABLE/COLUMN, that are not compared.

    """
    names = sorted({path.relative_to(root) for root in (before, after) for path in root.rglob("*.csv")})
    for name in names:
        table = str(name.with_suffix(""))
        if matches(table, ignored):
            continue
        missing = next((root for root in (before, after) if not (root / name).exists()), None)
        if missing:
            yield f"{table}: missing in {missing}"
            continue
        old, new = (pd.read_csv(root / name, keep_default_na=False, dtype=str) for root in (before, after))
        yield from table_differences(table, old, new, tolerance=tolerance, ignored=ignored)


def table_differences(
    table: str, old: pd.DataFrame, new: pd.DataFrame, *, tolerance: float, ignored: list[str]
) -> Iterator[str]:
    """Yield a line for each difference between two versions of a table."""
    if len(old) != len(new):
        yield f"{table}: {len(old)} rows before, {len(new)} after"
        return
    for column in dict.fromkeys([*old.columns, *new.columns]):
        if matches(f"{table}/{column}", ignored):
            continue
        if column not in old or column not in new:
            yield f"{table}: column {column} is only in the {'new' if column in new else 'old'} one"
            continue
        numbers = [pd.to_numeric(frame[column], errors="coerce").to_numpy(float) for frame in (old, new)]
        close = np.isclose(*numbers, rtol=tolerance, atol=0.0)
        for i in np.flatnonzero((old[column] != new[column]).to_numpy() & ~close):
            yield f"{table}: row {i + 2}, {column}: {old[column][i] or 'empty'} before, {new[column][i] or 'empty'} after"


def matches(name: str, patterns: list[str]) -> bool:
    """Return whether a name fits one of the patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def compare(options: argparse.Namespace) -> int:
    """Print the first differences; return the exit code."""
    before, after = map(Path, options.compare)
    for root in (before, after):
        if not any(root.rglob("*.csv")):
            sys.exit(f"{root} holds no snapshot; write one: python -m tools.snapshot {root}")
    lines = list(differences(before, after, tolerance=options.tolerance, ignored=options.ignore))
    for line in lines[: options.show]:
        print(line)
    if len(lines) > options.show:
        print(f"and {len(lines) - options.show} more (--show {len(lines)} prints all)")
    tables = sum(1 for _ in after.rglob("*.csv"))
    print(f"differences: {len(lines)}, in {tables} tables (relative tolerance {options.tolerance:g})")
    return 1 if lines else 0


def main() -> int:
    """Write a snapshot, or compare two; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="the folder to write; it must not exist")
    parser.add_argument("stores", type=Path, nargs="*", metavar="STORE")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"))
    parser.add_argument("--tolerance", type=float, default=1e-9, help="relative; 1e-9 by default")
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="PATTERN", help="of STORE/ANALYZER/TABLE[/COLUMN]"
    )
    parser.add_argument("--show", type=int, default=30, metavar="N", help="differences to print")
    options = parser.parse_args()
    if options.compare:
        return compare(options)
    if options.out is None:
        parser.error("give a folder to write, or --compare A B")
    if options.out.exists():
        parser.error(f"{options.out} exists; give a new folder")
    with tempfile.TemporaryDirectory() as temporary:
        stores = {path.name.partition(".tar")[0]: path for path in options.stores} or made_stores(Path(temporary))
        for name, store in stores.items():
            snapshot(store, options.out / name)
    print(f"{sum(1 for _ in options.out.rglob('*.csv'))} tables of {len(stores)} stores in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
