"""The real loading code against a hub on loopback: a sweep end to end, and the faults of a bad day."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub_mirror import Mirror, fill
from tests.system.small_stores import PATIENCE
from tests.tiny_models import build

ROOT = Path(__file__).parent.parent.parent
TOKEN = "hf_ThisIsNotForAnybodysEyes"
Said = dict[str, tuple[str, list[str]]]  # what was said of a case, and asked of the hub


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    root = tmp_path_factory.mktemp("mirror")
    fill(root)
    digits(root / "models/org/digits")
    server = Mirror(root)
    yield server
    server.shutdown()
    server.server_close()


def digits(folder: Path) -> None:
    """A model whose tokenizer.json splits digits one by one, and whose class does not."""
    build("gpt2", folder)
    parts = json.loads((folder / "tokenizer.json").read_text())
    one_by_one = {"type": "Digits", "individual_digits": True}
    parts["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [one_by_one, parts["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"add_bos_token": True}))


@pytest.fixture(autouse=True)
def _healthy(mirror: Mirror) -> Iterator[None]:
    yield
    mirror.faults.clear()
    mirror.silent.clear()


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


def environment(address: str, caches: Path) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return others | {
        "HF_ENDPOINT": address,
        "HF_HOME": str(caches / "hf"),
        "RBPTRACK_CACHE": str(caches / "rbptrack"),
        "HF_TOKEN": TOKEN,
    }


def run(*words: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def rbptrack(*words: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run("-m", "rbptrack", *words, cwd=cwd, env=env)


def listed(cwd: Path, env: dict[str, str]) -> list[dict[str, Any]]:
    done = rbptrack("list", "--format", "json", cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@pytest.fixture(scope="module")
def sweep(mirror: Mirror, caches: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Three sizes of one family on two datasets: the working folder, and what was printed."""
    folder = tmp_path_factory.mktemp("sweep")
    words = ("-m", "model=pythia/??m", "dataset=wiki,humaneval", "analyzers=power_law")
    done = rbptrack("measure", *words, cwd=folder, env=environment(mirror.address, caches))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout + done.stderr


def test_a_sweep_of_hub_models_and_datasets(sweep: tuple[Path, str], mirror: Mirror, caches: Path) -> None:
    rows = listed(sweep[0], environment(mirror.address, caches))
    assert {row["size"] for row in rows} == {"14m", "31m", "70m"}
    assert {row["dataset"]: row["documents"] for row in rows} == {"wiki": 60, "humaneval": 20}


def test_the_token_is_shown_nowhere(sweep: tuple[Path, str], mirror: Mirror, caches: Path) -> None:
    folder, said = sweep
    assert f"Bearer {TOKEN}" in mirror.tokens_seen, "it was used"
    assert TOKEN not in said
    for path in [*folder.rglob("*"), *(caches / "rbptrack").rglob("*")]:
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path


def test_cached_but_unreachable_runs_at_once(
    sweep: tuple[Path, str], mirror: Mirror, caches: Path, tmp_path: Path
) -> None:
    """Though the hub accepts connections: it is asked twice in all, not some times for each file."""
    mirror.silent.set()
    mirror.requests.clear()
    env = environment(mirror.address, caches)
    done = rbptrack("measure", "model=pythia/14m", "dataset=wiki", "analyzers=[]", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(mirror.requests) <= 2
    mirror.silent.clear()
    ours = {row["model"]: row["ce"] for row in listed(tmp_path, env)}
    first = {row["model"]: row["ce"] for row in listed(sweep[0], env) if row["dataset"] == "wiki"}
    assert ours
    assert all(first[model] == ce for model, ce in ours.items())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.parametrize("answers", ["refuses", "is silent"])
def test_unreachable_says_what_is_missing_and_how_to_get_it(
    answers: str, mirror: Mirror, caches: Path, tmp_path: Path
) -> None:
    mirror.silent.set()
    mirror.requests.clear()
    address = mirror.address if answers == "is silent" else f"http://127.0.0.1:{free_port()}"
    done = rbptrack("measure", "model=opt/125m", "dataset=wiki", cwd=tmp_path, env=environment(address, caches))
    assert done.returncode != 0
    assert len(mirror.requests) <= 2
    assert "hf download facebook/opt-125m" in done.stderr
    assert all(word in done.stderr for word in ("HF_HOME", "model.path"))
    assert "Traceback" not in done.stderr


SCRIPT = """
import json, sys, urllib.request
from rbptrack.base.errors import RbptrackError
from rbptrack.config.compose import compose
from rbptrack.config.schema import ModelConfig
from rbptrack.corpus.documents import load_documents
from rbptrack.models.architecture import load_config
from rbptrack.models.loading import load_model
from rbptrack.models.tokenizer import load_tokenizer
from rbptrack.sources.pin import pin_dataset, pin_model

def mirror(faults):
    request = urllib.request.Request(sys.argv[1] + "/_faults", data=json.dumps(faults).encode(), method="POST")
    return json.load(urllib.request.urlopen(request))

def weights(repo, **more):
    config = ModelConfig(family="x", size="1m", repo=repo, **more)
    source = pin_model(config)
    load_config(source), load_tokenizer(source)
    return load_model(config, source).non_embedding_params

def tokens(repo, text):
    return load_tokenizer(pin_model(ModelConfig(family="x", size="1m", repo=repo)))(text).tokens()

def texts(name, *more):
    (config,) = compose(["model=nano/6k", f"dataset={name}", *more])
    documents = load_documents(config.dataset, pin_dataset(config.dataset))
    groups = {document.group for document in documents} - {""}
    return f"{len(documents)} of {len(groups)}" if groups else len(documents)

for name, faults, code in json.loads(sys.argv[2]):
    mirror(faults)
    try:
        said = str(eval(code))
    except RbptrackError as error:
        said = f"{type(error).__name__}: {error}"
    print("RESULT", json.dumps([name, said, mirror({})]), flush=True)
"""

DATASETS = {
    "wiki": (60, True),
    "humaneval": (20, True),
    "gsm8k": (25, False),
    "auslegal": (15, False),
    "c4": (24, False),
    "pile_github": (12, True),
}
# name: faults, what is done, what is said
FAULTS: dict[str, tuple[dict[str, list[tuple[str, int]]], str, str]] = {
    "no such model": ({}, "weights('EleutherAI/nothing')", r"BadInput: .*not on the hub, or is private"),
    "no such revision": ({}, "weights('EleutherAI/pythia-14m', revision='step7')", r"BadInput: .*no revision step7"),
    "not an id": ({}, "weights('a/b/c')", r"BadInput: .*not a hub id"),
    "gated": (
        {"gpt2/resolve": [("gated", 99)]},
        "weights('openai-community/gpt2')",
        r"BadInput: .*is gated: ask for access at http\S+/openai-community/gpt2",
    ),
    "no access": ({"api/models/openai": [("401", 99)]}, "weights('openai-community/gpt2')", r"BadInput: .*HF_TOKEN"),
    "busy": (
        {"api/models/EleutherAI/pythia-31m": [("503", 99)]},
        "weights('EleutherAI/pythia-31m')",
        r"RbptrackError: .*503",
    ),
    "busy while downloading": (
        {"pythia-160m/resolve": [("503", 1), ("429", 1)]},
        "weights('EleutherAI/pythia-160m')",
        r"\d+|RbptrackError: .*(503|429)",
    ),
    "cut off": ({"model.safetensors": [("cut", 1)]}, "weights('EleutherAI/pythia-410m-deduped')", r"\d+"),
    "only pickles": ({}, "weights('facebook/opt-125m')", r"BadInput: .*model\.pickles=true"),
    "pickles by name": ({}, "weights('facebook/opt-125m', pickles=True)", r"\d+"),
    "rules of tokenizer.json": ({}, "tokens('org/digits', '1234')", r"\['<\|endoftext\|>', '1', '2', '3', '4'\]"),
    "a training checkpoint": ({}, "weights('EleutherAI/pythia-14m', revision='step1000')", r"\d+"),
    "dataset cut off": ({"validation.00000": [("cut", 1)]}, "texts('c4')", "24"),
    "dataset gated": ({"datasets/openai/gsm8k": [("gated", 99)]}, "texts('gsm8k')", "BadInput: dataset .*is gated"),
    "no such dataset": ({}, "texts('hf', 'dataset.repo=x/y')", "BadInput: dataset x/y is not on the hub"),
    "no such field": ({}, "texts('wiki', 'dataset.fields=[body]')", "BadInput: .*Fields: id, url, title"),
    "no such config": ({}, "texts('wiki', 'dataset.config=20200101.xx')", r"BadInput: .*20200101\.xx"),
    "grouped": ({}, "texts('paloma')", "36 of 3"),
    **{name: ({}, f"texts({name!r})", str(count)) for name, (count, _) in DATASETS.items()},
    **{
        f"{name}, as the paper selects": ({}, f"texts({name!r}, 'protocol=paper')", str(count))
        for name, (count, differs) in DATASETS.items()
        if differs
    },
}


@pytest.fixture(scope="module")
def results(mirror: Mirror, tmp_path_factory: pytest.TempPathFactory) -> Said:
    """Every case of FAULTS, in one process."""
    cases = json.dumps([[name, faults, code] for name, (faults, code, _) in FAULTS.items()])
    env = environment(mirror.address, tmp_path_factory.mktemp("faults"))
    done = run("-c", SCRIPT, mirror.address, cases, cwd=ROOT, env=env)
    rows = [json.loads(line.removeprefix("RESULT ")) for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert len(rows) == len(FAULTS), done.stdout + done.stderr
    assert TOKEN not in done.stdout + done.stderr
    return {name: (said, asked) for name, said, asked in rows}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str, results: Said) -> None:
    said, _ = results[name]
    assert re.match(FAULTS[name][2], said), said
    assert "\n" not in said


def test_an_interrupted_download_goes_on_where_it_stopped(results: Said) -> None:
    _, asked = results["cut off"]
    gets = [line for line in asked if line.startswith("GET") and "model.safetensors" in line]
    assert len(gets) == 2
    assert re.search(r"bytes=[1-9]\d*-", gets[1])


def test_what_hf_download_put_there_is_read_without_a_network(mirror: Mirror, tmp_path: Path) -> None:
    """The remedy that the error names works: a snapshot of the dataset, then no network."""
    fetch = "from huggingface_hub import snapshot_download as f\nf('wikimedia/wikipedia', repo_type='dataset')\n"
    read = (
        "from rbptrack.config.compose import compose\n"
        "from rbptrack.corpus.documents import load_documents\n"
        "from rbptrack.sources.pin import pin_dataset\n"
        "(config,) = compose(['model=nano/6k', 'dataset=wiki', 'dataset.documents=7'])\n"
        "print(sorted(int(d.id) for d in load_documents(config.dataset, pin_dataset(config.dataset))))\n"
    )
    printed = []
    for code, address in ((fetch + read, mirror.address), (read, f"http://127.0.0.1:{free_port()}")):
        env = environment(address, tmp_path) | {"RBPTRACK_CACHE": str(tmp_path / f"cache-{address[-5:]}")}
        done = run("-c", code, cwd=ROOT, env=env)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert len(json.loads(printed[0])) == 7
