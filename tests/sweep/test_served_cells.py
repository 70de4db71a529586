"""Tests of cells whose model runs on a server: their identity, their ranks, and what is refused."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import rbptrack
from rbptrack.base.errors import BadInput
from rbptrack.config.paths import embedded
from rbptrack.config.schema import Config, ModelConfig
from rbptrack.sources import server_connection
from rbptrack.sources.server import find_served_model
from rbptrack.sweep import Resolver, plan, resolve
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.measuring import measure_cell
from rbptrack.sweep.outcomes import Found, Measured
from rbptrack.tracking import Store
from tests.fake_vllm import FakeVllm
from tests.sweep.conftest import Configs

FOLDER = str(embedded("models/6k"))


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


@pytest.fixture
def vllm(model: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeVllm]:
    """A server of the smallest embedded model."""
    monkeypatch.setattr(server_connection, "_FIRST_PAUSE", 0.01)

    def logits(ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0].float()

    with FakeVllm(logits, name="nano", root=FOLDER, max_model_len=513) as server:
        yield server


def served_cell(configs: Configs, vllm: FakeVllm, *words: str) -> Cell:
    return resolve(*configs(f"model.server={vllm.address}", *words))


def test_measurement_equals_that_of_transformers(store: Store, configs: Configs, vllm: FakeVllm) -> None:
    served = measure_cell(served_cell(configs, vllm), store)
    here = measure_cell(resolve(*configs()), store)
    assert isinstance(served, Measured)
    assert isinstance(here, Measured)
    a, b = served.measurement, here.measurement
    assert a.rbp == b.rbp
    assert a.ce == pytest.approx(b.ce, abs=1e-5)
    for name in ("non_embedding_params", "total_params", "vocab_size", "architecture", "commit", "num_tokens"):
        assert getattr(a, name) == getattr(b, name), name
    assert (a.engine, a.head_dtype, a.dtype, a.tie_rate, a.server_name) == ("vllm 0.32.0", "float32", "", None, "")
    assert a.fingerprint != b.fingerprint
    assert measure_cell(served_cell(configs, vllm), store) == Found(served.title, served.run_id)


def test_measurement_of_a_server_passes_verify_and_can_be_read(
    run_command: Any, configs: Configs, vllm: FakeVllm
) -> None:
    words = f"model.server={vllm.address} dataset=pydocs dataset.documents=3 model=nano/6k"
    assert run_command(words)[0] == 0
    for command in ("list", "show nano-6k/pydocs", "verify", "read nano/6k pydocs", f"plan {words}", "export out.zip"):
        code, _, errors = run_command(command)
        assert code == 0, (command, errors)
    with zipfile.ZipFile("out.zip") as bundle:
        (record,) = [name for name in bundle.namelist() if name.endswith("record.json")]
        assert FOLDER.encode() not in bundle.read(record)


def test_another_address_is_the_same_measurement(configs: Configs, vllm: FakeVllm) -> None:
    with FakeVllm(vllm.logits, name="other", root=FOLDER, max_model_len=600, configuration=None) as other:
        cells = [served_cell(configs, server) for server in (vllm, other)]
    assert cells[0].fingerprint == cells[1].fingerprint


@pytest.mark.parametrize("changes", [{"version": "0.33.0"}, {"head_dtype": torch.bfloat16}])
def test_another_version_or_precision_is_another_measurement(
    changes: dict[str, Any], configs: Configs, vllm: FakeVllm
) -> None:
    before = served_cell(configs, vllm)
    for name, value in changes.items():
        setattr(vllm, name, value)
    assert served_cell(configs, vllm).fingerprint != before.fingerprint


def test_bfloat16_logits_are_found_and_noted(store: Store, configs: Configs, vllm: FakeVllm) -> None:
    vllm.head_dtype = torch.bfloat16
    outcome = measure_cell(served_cell(configs, vllm, "model.server_dtype=bfloat16"), store)
    assert isinstance(outcome, Measured)
    assert outcome.measurement.head_dtype == "bfloat16"
    assert outcome.measurement.dtype == "bfloat16"
    assert "head_dtype" in outcome.measurement.notes
    with pytest.raises(BadInput, match="bfloat16"):
        served_cell(configs, vllm, "model.server_dtype=float32")


def test_precision_that_the_user_names_is_checked_for_each_cell(configs: Configs, vllm: FakeVllm) -> None:
    vllm.head_dtype = torch.bfloat16
    right, wrong = configs(f"model.server={vllm.address}", "model.server_dtype=bfloat16,float32")
    resolver = Resolver()
    assert resolver.resolve(right).description["dtype"] == "bfloat16"
    with pytest.raises(BadInput, match="bfloat16"):
        resolver.resolve(wrong)


def test_precision_is_not_unknown_if_the_server_is_busy(configs: Configs, vllm: FakeVllm) -> None:
    vllm.faults = [None] * 5 + [503]  # the last request of the probe asks for the most likely entries
    with pytest.raises(BadInput, match="503"):
        served_cell(configs, vllm)
    assert served_cell(configs, vllm).description["head_dtype"] == "float32"


def test_precision_is_unknown_if_the_server_returns_no_entries(configs: Configs, vllm: FakeVllm) -> None:
    vllm.max_logprobs = 0
    assert served_cell(configs, vllm).description["head_dtype"] == "unknown"


@pytest.mark.parametrize("changes", [{"root": "org/other"}, {"parent": "base"}])
def test_model_of_another_origin_must_be_named(changes: dict[str, Any], configs: Configs, vllm: FakeVllm) -> None:
    unnamed = served_cell(configs, vllm)
    for name, value in changes.items():
        setattr(vllm, name, value)
    with pytest.raises(BadInput, match=r"model\.server_name=NAME"):
        served_cell(configs, vllm)
    named = served_cell(configs, vllm, "model.server_name=nano")
    assert named.description["server_name"] == "nano"
    assert named.fingerprint != unnamed.fingerprint
    with pytest.raises(BadInput, match="nano"):
        served_cell(configs, vllm, "model.server_name=nanno")


def test_revision_of_a_repository_must_be_named(configs: Configs, vllm: FakeVllm) -> None:
    model = ModelConfig(repo="org/model", revision="step1000", server=vllm.address)
    vllm.root = "org/model"
    engine = configs()[0].engine
    with pytest.raises(BadInput, match="step1000"):
        find_served_model(model, engine, 4096)
    model.server_name = "nano"
    assert find_served_model(model, engine, 4096).named_by_user


@pytest.mark.parametrize("address", ["http://host:port", "http://a..b:80"])
def test_address_that_cannot_be_used_is_refused(address: str, configs: Configs) -> None:
    with pytest.raises(BadInput, match=address):
        resolve(*configs(f"model.server={address}"))


def test_wrong_key_is_refused_and_never_shown(
    configs: Configs, vllm: FakeVllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm.key = "correct-horse-7391"
    monkeypatch.setenv("SERVER_KEY", "wrong-horse-1234")
    with pytest.raises(BadInput, match="SERVER_KEY") as error:
        served_cell(configs, vllm, "engine.key_variable=SERVER_KEY")
    assert "horse" not in str(error.value)
    monkeypatch.setenv("SERVER_KEY", vllm.key)
    cell = served_cell(configs, vllm, "engine.key_variable=SERVER_KEY")
    assert vllm.key not in repr(cell)
    monkeypatch.delenv("SERVER_KEY")
    with pytest.raises(BadInput, match="SERVER_KEY"):
        served_cell(configs, vllm, "engine.key_variable=SERVER_KEY")


def test_server_that_does_not_run_is_refused_at_once(configs: Configs, vllm: FakeVllm) -> None:
    vllm.stop()
    with pytest.raises(BadInput, match=vllm.address):
        served_cell(configs, vllm)
    vllm.start()


@pytest.mark.parametrize(
    "changes",
    [
        {"version": ""},
        {"max_model_len": None},
        {"max_model_len": 0},
        {"max_model_len": 2},
        {"name": None},
        {"version": "1\x1b[31m"},
    ],
)
def test_another_program_is_refused(changes: dict[str, Any], configs: Configs, vllm: FakeVllm) -> None:
    for name, value in changes.items():
        setattr(vllm, name, value)
    with pytest.raises(BadInput) as error:
        served_cell(configs, vllm)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("logprob", ["x", None, float("inf")])
def test_most_likely_entries_without_log_probabilities_are_refused(
    logprob: Any, configs: Configs, vllm: FakeVllm
) -> None:
    def fault(answer: dict[str, Any]) -> dict[str, Any]:
        entry = answer["choices"][0]["prompt_logprobs"][1]
        entry[next(reversed(entry))]["logprob"] = logprob
        return answer

    vllm.faults = [None] * 5 + [fault]
    with pytest.raises(BadInput):
        served_cell(configs, vllm)


def test_server_whose_answers_depend_on_other_requests_is_refused(configs: Configs, vllm: FakeVllm) -> None:
    logits = vllm.logits

    def unstable(ids: list[int]) -> torch.Tensor:
        return logits(ids) * (1 + len(vllm.prompts) / 2)

    vllm.logits = unstable
    with pytest.raises(BadInput, match="at once"):
        served_cell(configs, vllm)


def test_sequences_are_shortened_to_the_limit_of_the_server(configs: Configs, vllm: FakeVllm) -> None:
    vllm.max_model_len = 101
    cell = served_cell(configs, vllm)
    assert cell.config.dataset.seq_len == 100
    assert cell.notes


def test_plan_knows_tokens_but_no_time_of_a_server(configs: Configs, vllm: FakeVllm) -> None:
    here, served = plan(configs()), plan(configs(f"model.server={vllm.address}"))
    assert served["tokens"][0] == here["tokens"][0]
    assert served["S"][0] == here["S"][0]
    assert served["seconds"].isna().all()
    assert served["weights"][0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("rank=strict",),
        ("candidates=tokenizer",),
        ("reference=nano/15k",),
        ("model.dtype=bfloat16",),
        ("model.device=cpu",),
        ("model.device_map=auto",),
        ("model.gguf=a.gguf",),
        ("model.server=host:8000",),
        ("model.server=http://me:s3cr3t@host:8000",),
        ("model.server=http://host:8000/?key=s3cr3t",),
        ("engine.requests=-1",),
        ("engine.requests=257",),
        ("engine.timeout=0",),
        ("engine.deadline=-1",),
        ("model.server=", "model.server_name=a"),
        ("model.server=", "model.server_dtype=bfloat16"),
    ],
)
def test_options_that_a_server_cannot_fulfil_are_refused(words: tuple[str, ...], configs: Configs) -> None:
    keys = [word.partition("=")[0] for word in words]
    server = () if "model.server" in keys else ("model.server=http://127.0.0.1:9",)
    with pytest.raises(BadInput) as error:
        configs(*server, *words)
    assert "s3cr3t" not in str(error.value)


def test_a_reference_cannot_run_on_a_server(configs: Configs) -> None:
    with pytest.raises(BadInput, match=r"reference\.server"):
        _: list[Config] = configs("reference=nano/15k", "reference.server=http://127.0.0.1:9")


def test_measure_in_python_equals_the_command_line(vllm: FakeVllm, model: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    for file in embedded("tokenizer").iterdir():
        shutil.copy(file, folder)
    vllm.root = str(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["def f(x):\n    return x + 1\n", "", "import os\nprint(os.name)\n"]
    served = rbptrack.measure(server=vllm.address, tokenizer=tokenizer, texts=texts, progress=False)
    here = rbptrack.measure(model, tokenizer, texts, progress=False)
    assert served.ranks.rank.tolist() == here.ranks.rank.tolist()
    assert served.measurement.model == here.measurement.model
    assert served.measurement.non_embedding_params == here.measurement.non_embedding_params
    assert (served.measurement.engine, served.measurement.head_dtype) == ("vllm 0.32.0", "float32")
    with pytest.raises(BadInput, match="both"):
        rbptrack.measure(model, tokenizer, texts, server=vllm.address)
    with pytest.raises(BadInput, match="tokenizer"):
        rbptrack.measure(server=vllm.address, texts=texts)


def test_two_servers_give_one_law_without_the_runs_of_transformers(
    run_command: Any, configs: Configs, vllm: FakeVllm
) -> None:
    """Analyzers and pages do without the columns that a server does not return."""
    larger = AutoModelForCausalLM.from_pretrained(embedded("models/15k"), dtype=torch.float32).eval()
    root = str(embedded("models/15k"))
    common = "dataset=pydocs dataset.documents=25 dataset.sequence=truncate dataset.seq_len=64 analyzers=[]"

    def logits(ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return larger(torch.tensor([ids])).logits[0].float()

    with FakeVllm(logits, name="larger", root=root, max_model_len=513) as second:
        assert run_command(f"model=nano/6k model.server={vllm.address} sweep=s {common}")[0] == 0
        assert run_command(f"model=nano/15k model.server={second.address} sweep=s {common}")[0] == 0
    assert run_command(f"model=nano/6k,nano/15k {common}")[0] == 0
    laws = rbptrack.laws(rbptrack.runs(sweep="s"), k=(1, 10))
    assert laws["sizes"].tolist() == [2, 2, 2]
    both = rbptrack.laws(rbptrack.runs(), k=(1, 10))
    assert both["sizes"].tolist() == [2] * 6
    assert both["family"].nunique() == 2
    names = sorted(rbptrack.runs().frame["name"])
    code, _, errors = run_command("report --sweep s")
    assert code == 0, errors
    assert "failed" not in errors
    code, _, errors = run_command(f"compare {names[0]} {names[1]}")
    assert code == 0, errors
