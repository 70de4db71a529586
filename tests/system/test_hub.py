"""Tests of loading models and datasets from a mirror of the Hugging Face Hub on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.hub_mirror import Mirror, write_repositories
from tests.system.servers import free_port
from tests.system.small_stores import PATIENCE
from tests.tiny_models import edit_json, write_checkpoint

TOKEN = "hf_ThisIsNotForAnybodysEyes"
Results = dict[str, tuple[str, list[str]]]  # by case: the result or the error as a text, and the requests to the mirror


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """A running mirror with models and datasets."""
    root = tmp_path_factory.mktemp("mirror")
    write_repositories(root)
    build_model_that_splits_digits(root / "models/org/digits")
    server = Mirror(root)
    yield server
    server.shutdown()
    server.server_close()


def build_model_that_splits_digits(folder: Path) -> None:
    """Save a model with a tokenizer.json that splits numbers into digits. The class of its tokenizer does not."""
    write_checkpoint("gpt2", folder)
    pre_tokenizer = json.loads((folder / "tokenizer.json").read_text())["pre_tokenizer"]
    steps = [{"type": "Digits", "individual_digits": True}, pre_tokenizer]
    edit_json(folder / "tokenizer.json", pre_tokenizer={"type": "Sequence", "pretokenizers": steps})
    edit_json(folder / "tokenizer_config.json", add_bos_token=True)


@pytest.fixture(autouse=True)
def _remove_faults(mirror: Mirror) -> Iterator[None]:
    """Remove the faults of the mirror after each test."""
    yield
    mirror.faults.clear()
    mirror.silent.clear()


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


def hub_environment(address: str, caches: Path) -> dict[str, str]:
    """Return environment variables with the address of the Hub, a token, and caches in a folder."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return variables | {
        "HF_ENDPOINT": address,
        "HF_HOME": str(caches / "hf"),
        "RBPTRACK_CACHE": str(caches / "rbptrack"),
        "HF_TOKEN": TOKEN,
    }


def run_python(*words: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def run_rbptrack(*words: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "rbptrack", *words, cwd=cwd, env=env)


def list_measurements(cwd: Path, env: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows that `rbptrack list` prints."""
    process = run_rbptrack("list", "--format", "json", cwd=cwd, env=env)
    assert process.returncode == 0, process.stderr
    rows: list[dict[str, Any]] = json.loads(process.stdout)
    return rows


@pytest.fixture(scope="module")
def sweep(mirror: Mirror, caches: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A sweep of three sizes of one family on two datasets: the working folder, and what the command printed."""
    folder = tmp_path_factory.mktemp("sweep")
    words = ("-m", "model=pythia/??m", "dataset=wiki,humaneval", "analyzers=power_law")
    process = run_rbptrack("measure", *words, cwd=folder, env=hub_environment(mirror.address, caches))
    assert process.returncode == 0, process.stdout + process.stderr
    return folder, process.stdout + process.stderr


def test_measure_of_hub_models_and_datasets_has_all_cells(
    sweep: tuple[Path, str], mirror: Mirror, caches: Path
) -> None:
    folder, _ = sweep
    rows = list_measurements(folder, hub_environment(mirror.address, caches))
    assert {row["size"] for row in rows} == {"14m", "31m", "70m"}
    assert {row["dataset"]: row["documents"] for row in rows} == {"wiki": 60, "humaneval": 20}


def test_token_is_sent_to_hub_but_neither_printed_nor_saved(
    sweep: tuple[Path, str], mirror: Mirror, caches: Path
) -> None:
    folder, output = sweep
    assert f"Bearer {TOKEN}" in mirror.tokens_seen
    assert TOKEN not in output
    for path in [*folder.rglob("*"), *(caches / "rbptrack").rglob("*")]:
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path


def test_measure_with_cached_files_asks_silent_hub_at_most_twice(
    sweep: tuple[Path, str], mirror: Mirror, caches: Path, tmp_path: Path
) -> None:
    """The Hub accepts connections, but does not answer."""
    folder_of_sweep, _ = sweep
    mirror.silent.set()
    mirror.requests.clear()
    env = hub_environment(mirror.address, caches)
    process = run_rbptrack("measure", "model=pythia/14m", "dataset=wiki", "analyzers=[]", cwd=tmp_path, env=env)
    assert process.returncode == 0, process.stdout + process.stderr
    assert len(mirror.requests) <= 2
    mirror.silent.clear()
    (row,) = list_measurements(tmp_path, env)
    rows_of_sweep = list_measurements(folder_of_sweep, env)
    ce_of_sweep = {earlier["model"]: earlier["ce"] for earlier in rows_of_sweep if earlier["dataset"] == "wiki"}
    assert row["ce"] == ce_of_sweep[row["model"]]


@pytest.mark.parametrize("hub", ["refuses connections", "is silent"])
def test_measure_of_model_on_unreachable_hub_names_download_command_and_options(
    hub: str, mirror: Mirror, caches: Path, tmp_path: Path
) -> None:
    mirror.silent.set()
    mirror.requests.clear()
    address = mirror.address if hub == "is silent" else f"http://127.0.0.1:{free_port()}"
    process = run_rbptrack(
        "measure", "model=opt/125m", "dataset=wiki", cwd=tmp_path, env=hub_environment(address, caches)
    )
    assert process.returncode != 0
    assert len(mirror.requests) <= 2
    assert "hf download facebook/opt-125m" in process.stderr
    assert "HF_HOME" in process.stderr
    assert "model.path" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("fault", ["500", "cut"])
def test_measure_after_a_failed_download_gives_the_number_of_an_undisturbed_one(
    fault: str, sweep: tuple[Path, str], mirror: Mirror, caches: Path, tmp_path: Path
) -> None:
    folder_of_sweep, _ = sweep
    words = ("measure", "model=pythia/14m", "dataset=wiki", "analyzers=[]")
    env = hub_environment(mirror.address, tmp_path / "caches")
    mirror.faults["model.safetensors"] = [(fault, 999)]
    failed = run_rbptrack(*words, cwd=tmp_path, env=env)
    assert failed.returncode != 0
    assert "Traceback" not in failed.stderr
    assert list(tmp_path.glob("mlruns/*/*/artifacts/*")) == []
    mirror.faults.clear()
    repeated = run_rbptrack(*words, cwd=tmp_path, env=env)
    assert repeated.returncode == 0, repeated.stdout + repeated.stderr
    (row,) = list_measurements(tmp_path, env)
    rows_of_sweep = list_measurements(folder_of_sweep, hub_environment(mirror.address, caches))
    ce_by_cell = {(earlier["model"], earlier["dataset"]): earlier["ce"] for earlier in rows_of_sweep}
    assert row["ce"] == ce_by_cell[row["model"], "wiki"]


# Arguments: the address of the mirror, and the cases as JSON. For each case, the script sets the faults of the mirror,
# evaluates an expression, and prints the name, the result or the error, and the requests to the mirror.
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

for name, faults, expression in json.loads(sys.argv[2]):
    mirror(faults)
    try:
        result = str(eval(expression))
    except RbptrackError as error:
        result = f"{type(error).__name__}: {error}"
    print("RESULT", json.dumps([name, result, mirror({})]), flush=True)
"""

# By name: the number of documents, and whether the paper selects them differently.
DATASETS = {
    "wiki": (60, True),
    "humaneval": (20, True),
    "gsm8k": (25, False),
    "auslegal": (15, False),
    "c4": (24, False),
    "pile_github": (12, True),
}
# By name: the faults of the mirror, the expression that `SCRIPT` evaluates, and a pattern of its result or error.
CASES: dict[str, tuple[dict[str, list[tuple[str, int]]], str, str]] = {
    "no such model": ({}, "weights('EleutherAI/nothing')", r"BadInput: .*not on the Hub, or is private"),
    "no such revision": ({}, "weights('EleutherAI/pythia-14m', revision='step7')", r"BadInput: .*no revision step7"),
    "not an id": ({}, "weights('a/b/c')", r"BadInput: .*not a Hub id"),
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
    "no such dataset": ({}, "texts('hf', 'dataset.repo=x/y')", "BadInput: dataset x/y is not on the Hub"),
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
def results(mirror: Mirror, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results of all `CASES`, which run in one process."""
    cases = json.dumps([[name, faults, expression] for name, (faults, expression, _) in CASES.items()])
    env = hub_environment(mirror.address, tmp_path_factory.mktemp("faults"))
    process = run_python("-c", SCRIPT, mirror.address, cases, cwd=ROOT, env=env)
    rows = [
        json.loads(line.removeprefix("RESULT ")) for line in process.stdout.splitlines() if line.startswith("RESULT")
    ]
    assert len(rows) == len(CASES), process.stdout + process.stderr
    assert TOKEN not in process.stdout + process.stderr
    return {name: (result, requests) for name, result, requests in rows}


@pytest.mark.parametrize("name", CASES)
def test_loading_from_hub_succeeds_or_raises_error_in_one_line(name: str, results: Results) -> None:
    _, _, pattern = CASES[name]
    result, _ = results[name]
    assert re.match(pattern, result), result
    assert "\n" not in result


def test_interrupted_download_continues_where_it_stopped(results: Results) -> None:
    _, requests = results["cut off"]
    downloads = [line for line in requests if line.startswith("GET") and "model.safetensors" in line]
    assert len(downloads) == 2
    assert re.search(r"bytes=[1-9]\d*-", downloads[1])


def test_dataset_of_snapshot_download_is_read_without_network(mirror: Mirror, tmp_path: Path) -> None:
    """The error about an unreachable hub names this remedy."""
    download = (
        "from huggingface_hub import snapshot_download\nsnapshot_download('wikimedia/wikipedia', repo_type='dataset')\n"
    )
    read = (
        "from rbptrack.config.compose import compose\n"
        "from rbptrack.corpus.documents import load_documents\n"
        "from rbptrack.sources.pin import pin_dataset\n"
        "(config,) = compose(['model=nano/6k', 'dataset=wiki', 'dataset.documents=7'])\n"
        "print(sorted(int(d.id) for d in load_documents(config.dataset, pin_dataset(config.dataset))))\n"
    )
    with_network = hub_environment(mirror.address, tmp_path) | {"RBPTRACK_CACHE": str(tmp_path / "first cache")}
    without_network = hub_environment(f"http://127.0.0.1:{free_port()}", tmp_path)
    without_network |= {"RBPTRACK_CACHE": str(tmp_path / "second cache")}
    first = run_python("-c", download + read, cwd=ROOT, env=with_network)
    second = run_python("-c", read, cwd=ROOT, env=without_network)
    assert first.returncode == 0, first.stderr
    assert second.returncode == 0, second.stderr
    assert first.stdout == second.stdout
    assert len(json.loads(first.stdout)) == 7
