"""Create the faulty files that the command lines of `command_lines.txt` name."""

from __future__ import annotations

import json
import os
import shutil
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file

from rbptrack.config.paths import embedded

COMMAND_LINES = Path(__file__).with_name("command_lines.txt")
_BINARY: dict[str, bytes] = {
    "latin1.txt": b"caf\xe9 " * 50,
    "binary.bin": bytes(range(256)) * 9,
    "bad.parquet": b"PAR1xxxxPAR1",
    "huge.jinja": b"x" * (17 << 20),
    "conf/latin1/model/x.yaml": b"family: caf\xe9",
    "rows/latin1.csv": b"model,dataset,ce\ncaf\xe9-1,w,3\n",
    "rows/deep.json": b"[" * 100_000,
}
_LINKS = {"loop": "loop", "zero.jsonl": "/dev/zero", "zero.csv": "/dev/zero", "gone": "nowhere"}
_LINKS |= {"link.html": "target.html", "link.zip": "target.zip"}
_FOLDERS = ("folder", "folder.html", "folder.zip", "folder.csv", "emptymodel")


def make(folder: Path) -> None:
    """Create the faulty files in `folder/faulty`. The folder must have a bundle `good.zip`. Others are made from it."""
    faulty = folder / "faulty"
    texts = yaml.safe_load(Path(__file__).with_name("files.yaml").read_text())
    for name, content in {**{path: text.encode() for path, text in texts.items()}, **_BINARY}.items():
        _write(faulty / name, content)
    for name in ("fifo.jsonl", "fifo.csv"):
        os.mkfifo(faulty / name)
    for name, target in _LINKS.items():
        (faulty / name).symlink_to(target)
    for name in _FOLDERS:
        (faulty / name).mkdir()
    _bundles(folder / "good.zip", faulty / "bundles")
    _models(faulty / "models")


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _bundles(good: Path, folder: Path) -> None:
    """Create copies of a good bundle in a new folder. Each has one fault."""
    folder.mkdir()
    with zipfile.ZipFile(good) as bundle:
        entries = {name: bundle.read(name) for name in bundle.namelist()}
    measurement = next(name for name in entries if name.endswith("record.json")).partition("/")[0]

    def write(name: str, entries_of_copy: dict[str, bytes], **options: Any) -> None:
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED, **options) as copy:
            for entry, content in entries_of_copy.items():
                copy.writestr(entry, content)

    def record(name: str, change: Callable[[dict[str, Any]], object]) -> None:
        data = json.loads(entries[f"{measurement}/record.json"])
        change(data)
        write(name, entries | {f"{measurement}/record.json": json.dumps(data).encode()})

    (folder / "cut.zip").write_bytes(good.read_bytes()[:5000])
    (folder / "text.zip").write_bytes(b"no zip")
    (folder / "empty.zip").write_bytes(b"")
    write("traversal.zip", entries | {f"{measurement}/../../../evil": b"x"})
    write("absolute.zip", entries | {"/tmp/evil": b"x"})
    write("pickle.zip", entries | {f"{measurement}/model.pkl": b"x"})
    write("bomb.zip", entries | {f"{measurement}/tokens.json": bytes(1 << 28)})
    write("nothing.zip", {"bundle.json": b"{}"})
    write("nomanifest.zip", {name: text for name, text in entries.items() if name != "bundle.json"})
    write("noranks.zip", {name: text for name, text in entries.items() if not name.endswith("ranks.parquet")})
    write("ranks.zip", entries | {f"{measurement}/ranks.parquet": b"PAR1xxPAR1"})
    write("deep.zip", entries | {f"{measurement}/record.json": b"[" * 100_000})
    record("ce.zip", lambda data: data["measurement"].update(ce=1.0))
    record("fingerprint.zip", lambda data: data["measurement"].update(dtype="x"))
    record("tag.zip", lambda data: data["measurement"].update({"mlflow.user": "root"}))
    record("type.zip", lambda data: data.update(measurement=[1]))
    record("nan.zip", lambda data: data["measurement"].update(ce=float("nan")))
    record("key.zip", lambda data: data.update(more=1))
    record("hash.zip", lambda data: data["files"].update({"ranks.parquet": "0" * 64}))
    record("s.zip", lambda data: data["measurement"].update(non_embedding_params=10**6))
    with zipfile.ZipFile(folder / "twice.zip", "w") as copy, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in [*entries.items(), *entries.items()]:
            copy.writestr(name, content)
    link = zipfile.ZipInfo(f"{measurement}/tokens.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(folder / "link.zip", "w") as copy:
        for name, content in entries.items():
            copy.writestr(link if name == link.filename else name, content)


def _models(folder: Path) -> None:
    """Create copies of the model nano/6k. Each has one fault."""

    def config(change: dict[str, object]) -> Callable[[Path], object]:
        def alter(place: Path) -> None:
            path = place / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | change))

        return alter

    def text(name: str, content: bytes) -> Callable[[Path], object]:
        return lambda place: _write(place / name, content)

    def tokenizer(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
        def alter(place: Path) -> None:
            data = json.loads((place / "tokenizer.json").read_text())
            change(data)
            (place / "tokenizer.json").write_text(json.dumps(data))

        return alter

    def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
        def alter(place: Path) -> None:
            path = place / "model.safetensors"
            tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
            change(tensors)
            save_file(tensors, path, metadata={"format": "pt"})

        return alter

    def unknown(data: dict[str, Any]) -> None:
        data["model"] = {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}
        data["added_tokens"] = []

    def first(tensors: dict[str, torch.Tensor], value: float) -> None:
        next(iter(tensors.values())).fill_(value)

    variants: dict[str, Callable[[Path], object]] = {
        "vocab": config({"vocab_size": 99}),
        "layers": config({"num_hidden_layers": 99}),
        "hidden": config({"hidden_size": "x"}),
        "kind": config({"model_type": "nothing"}),
        "bert": config({"model_type": "bert", "architectures": ["BertForMaskedLM"]}),
        "remote": config({"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "x.Y"}}),
        "notjson": text("config.json", b"{"),
        "listconfig": text("config.json", b"[]"),
        "cut": lambda place: os.truncate(place / "model.safetensors", 3000),
        "junk": text("model.safetensors", b"x" * 500),
        "noweights": lambda place: (place / "model.safetensors").unlink(),
        "nan": weights(lambda t: first(t, float("nan"))),
        "inf": weights(lambda t: first(t, float("inf"))),
        "zero": weights(lambda t: [tensor.zero_() for tensor in t.values()]),
        "less": weights(lambda t: t.pop(sorted(t)[3])),
        "more": weights(lambda t: t.update(other=torch.ones(3))),
        "shape": weights(lambda t: t.update({sorted(t)[0]: torch.ones(3, 3)})),
        "unknown": tokenizer(unknown),
        "negative": tokenizer(lambda data: data["model"]["vocab"].update({next(iter(data["model"]["vocab"])): -1})),
        "mapping": tokenizer(lambda data: data["model"].update(vocab=["a", "b"])),
        "bigid": tokenizer(lambda data: data["model"]["vocab"].update({"zzzz": 10**6})),
        "notokenizer": lambda place: (place / "tokenizer.json").unlink(),
        "junktokenizer": text("tokenizer.json", b"\xff\xfe"),
        "emptytokenizer": text("tokenizer.json", b"{}"),
        "pickle": lambda place: (place / "model.safetensors").rename(place / "pytorch_model.bin"),
        "adapter": text("adapter_config.json", b"{}"),
    }
    for name, alter in variants.items():
        place = folder / f"{name}-1m"
        shutil.copytree(embedded("models/6k"), place)
        for file in embedded("tokenizer").iterdir():
            shutil.copy(file, place)
        alter(place)
