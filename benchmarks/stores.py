"""Measure how long commands take on a large store of synthetic measurements with known laws.

    python -m benchmarks.stores make FOLDER [--measurements 144] [--datasets 6] [--tokens 500000] [--documents 1000]
    python -m benchmarks.stores time FOLDER 'report --out r.html' 'analyze power_law' list

`make` writes a store as large as a real study: 24 models of four families on 6 datasets of 500,000 tokens. If a part of
it exists, `make` adds the rest. More than 24 models form further families of the same sizes. The measurements follow
-ln RBP_k = A_k S^-alpha_k with alpha_k = 0.06 + 0.012 ln k. Models scatter around the law by 1%, documents differ in
difficulty, and the difficulty of a token is similar for all models.

`time` runs commands in the folder. It prints wall time, processor time, and the peak memory of the largest process. It
works in any folder with a store, such as the demo's.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from rbptrack.config.schema import Config, DatasetConfig, KConfig, ModelConfig
from rbptrack.measurement.document import fingerprint
from rbptrack.ranks import FloatArray, RankTable, log_grid
from rbptrack.tracking import Outbox, Store
from studies.synthetic import describe_cell, draw_ranks, write_cell

ROOT = Path(__file__).parent.parent
VOCABULARY = 50_304
KS = [1, 10, 100]
_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
# The sizes S of each family.
SIZES = {
    "pythia": [1.2e6, 4.7e6, 18.9e6, 85.1e6, 302e6, 806e6, 1.2e9, 2.5e9, 6.4e9, 11.3e9],
    "gpt2": [85.1e6, 302e6, 708e6, 1.48e9],
    "opt": [85.1e6, 302e6, 1.2e9, 2.5e9, 6.4e9],
    "qwen2.5": [358e6, 1.3e9, 2.8e9, 6.5e9, 13.1e9],
}


def models(count: int) -> list[tuple[str, float]]:
    """Return the family and the size S of each model.

    Args:
        count: the number of models. If it is larger than the number of sizes in `SIZES`, the families occur again with
            the names `pythia-1`, `pythia-2` and so on.

    """
    chosen: list[tuple[str, float]] = []
    copy = 0
    while len(chosen) < count:
        for family, sizes in SIZES.items():
            name = f"{family}-{copy}" if copy else family
            chosen += [(name, s) for s in sizes]
        copy += 1
    return chosen[:count]


def draw_rank_table(s: float, *, family: str, dataset: int, documents: int, length: int) -> RankTable:
    """Draw the ranks of one model of size s on a dataset by `draw_ranks`, and the other columns of its rank table."""
    shared = np.random.default_rng(dataset)  # numbers that are the same for all models
    separate = np.random.default_rng([dataset, int(s), len(family)])  # numbers of this model
    tokens = documents * length
    grid = log_grid(VOCABULARY, per_decade=24).astype(np.float64)
    law = neg_log_rbp(grid, s, dataset)
    rank, _, _ = draw_ranks(shared, separate, grid, law, documents=documents, length=length, tau=0.01)
    zeros = np.zeros(tokens)
    return RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=np.repeat(np.arange(documents), length),
        position=np.tile(np.arange(1, length + 1), documents),
        field=zeros,
        token=shared.zipf(1.3, tokens) % VOCABULARY,
        greater=rank - 1,
        ties=zeros,
        logprob=-(0.25 * (s / 1e8) ** -0.05 + 1.1 * np.log(rank) + 0.3 * separate.exponential(size=tokens)),
        entropy=separate.exponential(size=tokens),
        top=shared.integers(VOCABULARY, size=tokens),
        top_logprob=zeros - 0.5,
    )


def neg_log_rbp(k: FloatArray, s: float, dataset: int) -> FloatArray:
    """Return -ln RBP_k of a model of size s without scatter, (ks,). It falls roughly as k^-0.4, and is 0 if k is |V|.

    Datasets with a larger number are harder.
    """
    level = (1.1 + 0.15 * dataset) * k**-0.4 * (1 - (k / VOCABULARY) ** 0.5)
    return np.asarray(level * (s / 1e8) ** -(0.06 + 0.012 * np.log(k)))


def deliver_measurement(store: Store, *, family: str, s: float, dataset: int, documents: int, length: int) -> None:
    """Write one measurement and deliver it to the store, unless the store has it already."""
    dataset_name = f"texts-{dataset}"
    config = Config(
        model=ModelConfig(family=family, size=f"{s:.3g}"),
        dataset=DatasetConfig(name=dataset_name, seq_len=length + 1),
        k=KConfig(values=KS),
    )
    if store.find(fingerprint(describe_cell(config))):
        return
    ranks = draw_rank_table(s, family=family, dataset=dataset, documents=documents, length=length)
    values = {
        "sweep": "synthetic",
        "documents_hash": dataset_name,
        "non_embedding_params": int(s),
        "total_params": int(s + 2 * VOCABULARY * 512),
    }
    folder = write_cell(ranks, config, values, documents=documents)
    Outbox(store).write_address(folder)
    Outbox(store).deliver(folder)


def make_store(folder: Path, *, measurements: int, datasets: int, tokens: int, documents: int) -> None:
    """Write all measurements to a store in a folder, one dataset after the other. This changes the working directory.

    Args:
        folder: the folder of the store. It is created if it does not exist.
        measurements: the number of measurements in all.
        datasets: the number of datasets.
        tokens: the number of tokens of a measurement.
        documents: the number of documents of a dataset.

    """
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    store = Store()
    began = time.monotonic()
    chosen = models(-(-measurements // datasets))  # rounded up
    done = 0
    for dataset in range(datasets):
        for family, s in chosen[: measurements - done]:
            deliver_measurement(
                store, family=family, s=s, dataset=dataset, documents=documents, length=tokens // documents
            )
            done += 1
        print(f"{done} measurements, {time.monotonic() - began:.0f} s", flush=True)


def time_command(folder: Path, words: str) -> str:
    """Run a command of rbptrack in a folder, and return its time and memory as a text.

    The processor time includes all processes that the command starts. The memory is that of the largest process.
    """
    # Processes whose parent has ended, such as those of a forkserver, then become children of this process. Otherwise
    # their time would be lost.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "rbptrack", *shlex.split(words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    seconds = processor_seconds = largest_bytes = 0.0
    code = 0
    with suppress(ChildProcessError):  # no process is left
        while True:
            pid, status, usage = os.wait4(-1, 0)
            processor_seconds += usage.ru_utime + usage.ru_stime
            largest_bytes = max(largest_bytes, 1024 * usage.ru_maxrss)
            if pid == process.pid:
                seconds = time.monotonic() - began
                code = process.returncode = os.waitstatus_to_exitcode(status)
    text = f"{seconds:.1f} s, {processor_seconds:.1f} s of the processors, {largest_bytes / 1e9:.2f} GB"
    return f"{text}, exit code {code}" if code else text


def main() -> None:
    """Write a store, or time commands on one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["make", "time"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("commands", nargs="*", help="commands of rbptrack with their arguments, each in quotes")
    parser.add_argument("--measurements", type=int, default=144)
    parser.add_argument("--datasets", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=500_000, help="tokens of a measurement")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1, help="number of times that each command runs")
    options = parser.parse_args()
    if options.command == "make":
        make_store(
            options.folder,
            measurements=options.measurements,
            datasets=options.datasets,
            tokens=options.tokens,
            documents=options.documents,
        )
        return
    for _ in range(options.rounds):
        for words in options.commands:
            print(f"{words}: {time_command(options.folder, words)}; load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
