"""The real loading code against a hub on loopback: the paper's sweep end to end, and the faults of a bad day."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.conftest import ROOT, Program
from tests.mirror import PYTHIA, Mirror, fill
from tests.patience import PATIENCE
from tests.prepared import Prepared
from tests.server import Door, free_port

TOKEN = "hf_ThisIsNotForAnybodysEyes"
Said = dict[str, tuple[str, list[str]]]  # what was said of a case, and asked of the hub
SIZES = {size for size in PYTHIA if len(size) == 3 and size.endswith("m")}


@pytest.fixture(scope="session")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    root = tmp_path_factory.mktemp("mirror")
    fill(root)
    server = Mirror(root)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def healthy(mirror: Mirror, door: Door) -> Iterator[None]:
    yield
    mirror.faults.clear()
    door.open()


@pytest.fixture(scope="session")
def door(mirror: Mirror) -> Iterator[Door]:
    """The port at which the programs of this file look for the hub."""
    opened = Door(mirror.server_address[1])
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def cache_of_paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(scope="session")
def asking(clean: dict[str, str], door: Door, cache_of_paper: Path) -> Iterator[Program]:
    """Run `python -m rbptrack ...` with the hub behind the door; forks of one process that knows its address."""
    forking = Prepared(clean | environment(f"http://127.0.0.1:{door.port}", cache_of_paper))

    def run(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        told = clean | environment(f"http://127.0.0.1:{door.port}", cache_of_paper) | more
        return forking.run(arguments, cwd=cwd, timeout=PATIENCE, environment=told)

    yield run
    forking.close()


def environment(address: str, cache: Path) -> dict[str, str]:
    return {
        "HF_ENDPOINT": address,
        "HF_HUB_OFFLINE": "",
        "HF_HOME": str(cache / "hf"),
        "RBPTRACK_CACHE": str(cache / "rbptrack"),
        "HF_TOKEN": TOKEN,
    }


def measurements(folder: Path) -> list[Run]:
    client = MlflowClient(f"sqlite:///{folder / 'mlruns/mlflow.db'}")
    experiment = client.get_experiment_by_name("rbptrack")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id], "tags.`rbptrack.kind` = 'measurement'"))


@pytest.fixture(scope="session")
def paper(asking: Program, cache_of_paper: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """The README's first command, of fewer sizes and with one analyzer: a folder, its caches, and what was printed."""
    folder = tmp_path_factory.mktemp("paper")
    done = asking("-m", "model=pythia/??m", "dataset=wiki,humaneval", "analyzers=power_law", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, cache_of_paper, done.stdout + done.stderr


def test_the_papers_sweep(paper: tuple[Path, Path, str]) -> None:
    folder, cache, said = paper
    assert f"measuring {2 * len(SIZES)} cells: {len(SIZES)} models x 2 datasets" in said
    assert f"{2 * len(SIZES)} measured" in said
    assert re.search(r"wiki +RBP_10 ", said)
    runs = measurements(folder)
    assert {r.data.tags["rbptrack.size"] for r in runs} == SIZES
    for name, documents in (("wiki", 60), ("humaneval", 20)):
        of_dataset = [r for r in runs if r.data.tags["rbptrack.dataset"] == name]
        assert len({r.data.params["dataset.texts_hash"] for r in of_dataset}) == 1
        commits = {r.data.params["dataset.commit"] for r in of_dataset}
        assert re.fullmatch(r"[\w-]+/\w+@[0-9a-f]{40}", commits.pop())
        assert not commits
        path = Path(of_dataset[0].info.artifact_uri.removeprefix("file://")) / "documents.parquet"
        listed = pd.read_parquet(path)
        assert len(listed) == documents
        expected = {f"HumanEval/{i}" for i in range(20)} if name == "humaneval" else {str(i) for i in range(60)}
        assert set(listed["id"]) == expected
    assert len(list((cache / "rbptrack/tokens").glob("*.parquet"))) == 2  # a family tokenises once


def test_prompt_and_solution_are_told_apart(paper: tuple[Path, Path, str]) -> None:
    import pyarrow.parquet as pq

    run = next(r for r in measurements(paper[0]) if r.info.run_name == "pythia-70m / humaneval")
    table = pq.read_table(Path(run.info.artifact_uri.removeprefix("file://")) / "ranks.parquet").to_pandas()
    assert set(table["field"]) == {0, 1}
    assert (table.groupby("document")["field"].apply(lambda f: f.is_monotonic_increasing)).all()


def test_paloma_is_told_apart_by_domain(asking: Program, tmp_path: Path) -> None:
    done = asking("model=nano/6k", "dataset=paloma", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = measurements(tmp_path)
    assert run.data.tags["rbptrack.dataset"] == "paloma-c4_100_domains"
    assert run.data.tags["rbptrack.groups"].startswith("3 by subdomain")
    done = asking("analyze", "domains", cwd=tmp_path)
    assert len(re.findall(r"paloma-c4_100_domains +nano +\d\d_example.org +12 ", done.stdout)) == 3


def test_the_token_is_shown_nowhere(paper: tuple[Path, Path, str], mirror: Mirror) -> None:
    folder, cache, said = paper
    assert f"Bearer {TOKEN}" in mirror.tokens_seen  # it was used
    assert TOKEN not in said
    for path in [*folder.rglob("*"), *(cache / "rbptrack").rglob("*")]:
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path


def test_cached_but_unreachable_runs_at_once(
    paper: tuple[Path, Path, str], door: Door, asking: Program, tmp_path: Path
) -> None:
    """Though the hub accepts connections: it is asked twice in all, not some times for each file."""
    door.open(held=True)
    done = asking("model=pythia/14m", "dataset=wiki,humaneval", "analyzers=[]", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 measured" in done.stdout
    assert door.met <= 2
    ours = {r.info.run_name: r.data.metrics["ce"] for r in measurements(tmp_path)}
    first = {r.info.run_name: r.data.metrics["ce"] for r in measurements(paper[0])}
    assert all(first[name] == ce for name, ce in ours.items())


def test_unreachable_says_what_is_missing_and_how_to_get_it(door: Door, asking: Program, tmp_path: Path) -> None:
    door.close()
    done = asking("-m", "model=opt/*", "dataset=wiki", cwd=tmp_path)
    assert done.returncode == 2
    assert "hf download facebook/opt-125m" in done.stderr
    assert all(word in done.stderr for word in ("HF_HOME", "model.path"))
    assert not (tmp_path / "mlruns").exists()


def test_plan_before_the_cost(paper: tuple[Path, Path, str], mirror: Mirror, asking: Program) -> None:
    folder, _, _ = paper
    mirror.requests.clear()
    arguments = ["plan", "-m", "model=pythia/14m,gpt2/small,gemma2/2b", "dataset=humaneval,hotpotqa"]
    mirror.faults["gemma-2-2b/resolve"] = [("gated", 999)]
    done = asking(*arguments, "format=csv", cwd=folder)
    assert done.returncode == 1, done.stderr  # one model is gated
    plan = pd.read_csv(__import__("io").StringIO(done.stdout)).set_index(["model", "dataset"])
    assert plan.loc[("pythia-14m", "humaneval"), "status"] == "measured"
    assert not plan.loc[("pythia-14m", "humaneval"), "estimated"]
    assert plan.loc[("pythia-14m", "humaneval"), "download_bytes"] == 0
    small = plan.loc[("gpt2-small", "humaneval")]
    weights = mirror.root / "models/openai-community/gpt2/model.safetensors"
    assert (small["status"], small["download_bytes"]) == ("to measure", weights.stat().st_size)
    run = next(r for r in measurements(folder) if r.info.run_name == "pythia-14m / humaneval")
    measured = plan.loc[("pythia-14m", "humaneval")]
    assert measured["tokens"] == run.data.metrics["num_tokens"]
    assert measured["non_embedding_params"] == int(run.data.params["model.non_embedding_params"])
    assert measured["total_params"] == int(run.data.params["model.total_params"])
    assert "is gated" in plan.loc[("gemma2-2b", "hotpotqa"), "status"]
    assert not [line for line in mirror.requests if line.startswith("GET") and "safetensors" in line]  # no weights
    mirror.faults["gemma-2-2b/resolve"] = [("gated", 999)]
    shown = asking(*arguments, cwd=folder).stdout
    assert re.search(r"gpt2-small +humaneval .* to measure", shown)
    assert "gemma2-2b / humaneval, hotpotqa: model google/gemma-2-2b is gated" in shown
    assert max(len(line) for line in shown.splitlines() if "gated: ask" not in line) <= 100, shown


SCRIPT = """
import json, sys, urllib.request
from rbptrack.config.compose import Composer
from rbptrack.config.schema import ModelConfig
from rbptrack.corpus.documents import read_documents
from rbptrack.base.errors import RbptrackError
from rbptrack.models.architecture import load_config, load_tokenizer
from rbptrack.models.loading import load_model
from rbptrack.sources import hub
from rbptrack.sources.pin import of_dataset, of_model

def mirror(faults):
    request = urllib.request.Request(sys.argv[1] + "/_faults", data=json.dumps(faults).encode(), method="POST")
    return json.load(urllib.request.urlopen(request))

def soon(said):
    hub._PATIENCE = 3.0
    return said()

def weights(repo, **more):
    config = ModelConfig(family="x", size="1m", repo=repo, **more)
    source = of_model(config)
    load_config(source), load_tokenizer(source)
    return load_model(config, source).non_embedding_params

def texts(name, *more):
    config = Composer("config", []).compose_typed([f"dataset={name}", *more]).dataset
    return len(read_documents(config, of_dataset(config)))

for name, faults, code in json.loads(sys.argv[2]):
    mirror(faults)
    hub._PATIENCE = 300.0  # a slow machine takes seconds for an attempt
    try:
        said = str(eval(code))
    except RbptrackError as error:
        said = f"{type(error).__name__}: {error}"
    asked = mirror({})
    print("RESULT", json.dumps([name, said, asked]), flush=True)
"""

DATASETS = {
    "wiki": (60, "text"),
    "humaneval": (20, "two fields"),
    "hotpotqa": (30, ""),
    "gsm8k": (25, ""),
    "auslegal": (15, ""),
    "c4": (24, ""),
    "pile_github": (12, "filtered"),
}
# name: faults, what is done, what is said
FAULTS: dict[str, tuple[dict[str, list[tuple[str, int]]], str, str]] = {
    "no such model": ({}, "weights('EleutherAI/nothing')", r"BadInput: .*is not on the hub, or is private"),
    "no such revision": ({}, "weights('EleutherAI/pythia-14m', revision='step7')", r"BadInput: .*no revision step7"),
    "not an id": ({}, "weights('a/b/c')", r"BadInput: .*not a hub id; expected organisation/name"),
    "gated": (
        {"gpt2/resolve": [("gated", 99)]},
        "weights('openai-community/gpt2')",
        r"BadInput: .*is gated: ask for access at http\S+/openai-community/gpt2, then `hf auth login`",
    ),
    "no access": ({"api/models/Qwen": [("401", 99)]}, "weights('Qwen/Qwen2.5-0.5B')", r"BadInput: .*401.*HF_TOKEN"),
    "busy twice": ({"pythia-160m": [("503", 1), ("429", 1)]}, "weights('EleutherAI/pythia-160m')", r"\d+"),
    "cut off": ({"model.safetensors": [("cut", 1)]}, "weights('EleutherAI/pythia-410m-deduped')", r"\d+"),
    "busy for ever": (
        {"api/models/EleutherAI/pythia-1b": [("503", 999)]},
        "soon(lambda: weights('EleutherAI/pythia-1b'))",
        r"RbptrackError: .*the hub is busy: it has answered 503 for \d+ s",
    ),
    "only pickles": ({}, "weights('facebook/opt-125m')", r"BadInput: .*only pickled weights.*model\.pickles=true"),
    "pickles by name": ({}, "weights('facebook/opt-125m', pickles=True)", r"\d+"),
    "a training checkpoint": ({}, "weights('EleutherAI/pythia-14m', revision='step1000')", r"\d+"),
    "dataset cut off": ({"validation.00000": [("cut", 1)], "validation.00001": [("503", 2)]}, "texts('c4')", "24"),
    "dataset gated": ({"datasets/openai/gsm8k": [("gated", 99)]}, "texts('gsm8k')", "BadInput: dataset .*is gated"),
    "no such dataset": ({}, "texts('hf', 'dataset.repo=x/y')", r"BadInput: dataset x/y is not on the hub"),
    "no such field": (
        {},
        "texts('wiki', 'dataset.fields=[body]')",
        "BadInput: .*no field body. Fields: id, url, title",
    ),
    "no such config": ({}, "texts('wiki', 'dataset.config=20200101.xx')", r"BadInput: .*20200101\.xx"),
    **{name: ({}, f"texts({name!r})", str(count)) for name, (count, _) in DATASETS.items()},
    **{
        f"{name}, as the paper selects": ({}, f"texts({name!r}, 'protocol=paper')", str(count))
        for name, (count, how) in DATASETS.items()
        if how
    },
}


@pytest.fixture(scope="session")
def results(
    asking: Program, mirror: Mirror, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, list[str]]]:
    """Every case of FAULTS, in one process."""
    cases = json.dumps([[name, faults, code] for name, (faults, code, _) in FAULTS.items()])
    cache = tmp_path_factory.mktemp("faults")
    done = asking("-c", SCRIPT, mirror.address, cases, cwd=ROOT, RBPTRACK_CACHE=str(cache))
    rows = [json.loads(line.removeprefix("RESULT ")) for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert len(rows) == len(FAULTS), done.stdout + done.stderr
    assert TOKEN not in done.stdout + done.stderr
    return {name: (said, asked) for name, said, asked in rows}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str, results: Said) -> None:
    said, _ = results[name]
    assert re.fullmatch(FAULTS[name][2] + r".*", said, re.DOTALL), said


def test_an_interrupted_download_goes_on_where_it_stopped(results: Said) -> None:
    _, asked = results["cut off"]
    gets = [line for line in asked if line.startswith("GET") and "model.safetensors" in line]
    assert len(gets) == 2
    assert re.search(r"bytes=[1-9]\d*-", gets[1])


def test_what_hf_download_put_there_is_read_without_a_network(mirror: Mirror, tmp_path: Path) -> None:
    """The remedy that the error names works: a snapshot of the dataset, then no network."""
    import os

    code = """
        import os, sys
        from huggingface_hub import snapshot_download
        snapshot_download("wikimedia/wikipedia", repo_type="dataset")
    """
    read = """
        from rbptrack.config.compose import Composer
        from rbptrack.corpus.documents import load_documents
        from rbptrack.sources.pin import of_dataset
        config = Composer("config", []).compose_typed(["dataset=wiki", "dataset.documents=7"]).dataset
        print(sorted(int(d.id) for d in load_documents(config, of_dataset(config))))
    """
    there = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | environment(mirror.address, tmp_path)
    printed = []
    for texts, endpoint in (((read, code), mirror.address), ((read,), f"http://127.0.0.1:{free_port()}")):
        clean = there | {"HF_ENDPOINT": endpoint, "RBPTRACK_CACHE": str(tmp_path / f"cache-{endpoint[-5:]}")}
        done = subprocess.run(
            [sys.executable, "-c", "".join(map(textwrap.dedent, texts))],
            env=clean,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert len(json.loads(printed[0])) == 7
