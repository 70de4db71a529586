"""What a plan says of time and of GPUs: numbers that follow from what it says that it assumed."""

from __future__ import annotations

import heapq
import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from transformers import LlamaConfig, Qwen2Config

from rbptrack.analysis.executors import Executor, State
from rbptrack.base.errors import BadInput
from rbptrack.commands import plan as command
from rbptrack.config.paths import conf_folder
from rbptrack.config.request import measuring, sweep_of
from rbptrack.config.schema import Config, Dtype, FilterConfig, ModelConfig
from rbptrack.models.parameters import Parameters
from rbptrack.sources import hub
from rbptrack.sweep import resources
from rbptrack.sweep.balance import cut
from rbptrack.sweep.devices import Device, data_sheet, precision
from rbptrack.sweep.plan import Plan, memory_and_gpus, plan, too_large
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.resources import Resources
from rbptrack.tracking.store import Store
from tests.conftest import Program


def asked(*words: str) -> list[Config]:
    return sweep_of(measuring(["dataset=stdlib", *words]))[1]


def planned(device: Device, *words: str) -> Plan:
    (config,) = asked("model=nano/2m", *words)
    return plan(config, Resolver(), Store(config.tracking).reader, device, elsewhere=True)


def of(memory: float, *, share: float = 0.5) -> Device:
    return Device("some", memory, {"float32": 1e12, "tf32": 4e12, "half": 8e12}, share, "a test")


def test_time_is_operations_over_the_assumed_share_of_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = planned(of(80e9))
    assert found.flops
    assert found.seconds == found.flops / 0.5e12
    half = planned(of(80e9, share=1.0), "model.dtype=bfloat16")
    assert half.seconds == found.flops / 8e12
    assert (found.gpus, found.status) == (1, "to measure")


def test_the_gpus_that_a_model_needs_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    roomy = planned(of(80e9))
    assert roomy.total_params
    assert roomy.memory_bytes
    weights = 4 * roomy.total_params
    beside = roomy.memory_bytes - weights
    assert planned(of(roomy.memory_bytes)).gpus == 1
    assert planned(of(beside + 0.6 * weights)).gpus == 2
    none = planned(of(beside))
    assert (none.gpus, none.status) == (None, "too large")
    assert none.seconds == planned(of(80e9)).seconds  # what it would take


@dataclass(kw_only=True)
class Somewhere(Executor):
    """Runs nothing; has room for some jobs, and GPUs of some kind."""

    name: ClassVar[str] = "somewhere"
    places: int = 1
    limit: int = 0
    called: list[str] = field(default_factory=list)

    @property
    def minutes(self) -> int:
        return self.limit

    def kinds(self) -> list[str]:
        return self.called

    def room(self, gpus: float) -> int:
        return self.places

    def check(self, jobs: object) -> str:
        return ""

    def submit(self, jobs: object) -> None:
        raise AssertionError

    def states(self) -> dict[int, State]:
        return {}

    def cancel(self) -> None:
        raise AssertionError


class Sharing(Somewhere):
    shares_gpus: ClassVar[bool] = True


def fitted(executor: Executor, device: Device, monkeypatch: pytest.MonkeyPatch, *words: str) -> Resources:
    cells = asked("model=nano/6k,nano/2m", *words)
    monkeypatch.setattr(resources, "sheet_of", lambda names: device)
    resolver = Resolver()
    return Resources(executor, cells, [resolver.resolve(cell) for cell in cells])


def test_each_job_has_the_gpus_that_its_model_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    roomy = planned(of(80e9))
    assert roomy.total_params
    assert roomy.memory_bytes

    def given(memory: float, executor: Executor) -> list[tuple[float, list[str], str]]:
        pools = fitted(executor, of(memory), monkeypatch).pools()
        models = [(pool.gpus, [task.config.model for task in pool.tasks]) for pool in pools]
        return [(gpus, [model.size for model in alike], alike[0].device_map) for gpus, alike in models]

    assert given(80e9, Sharing(gpus="auto")) == [(0.1, ["2m", "6k"], "")]
    assert given(80e9, Somewhere(gpus="auto")) == [(1.0, ["2m", "6k"], "")]
    narrow = roomy.memory_bytes - 0.4 * 4 * roomy.total_params
    assert given(narrow, Sharing(gpus="auto")) == [(2.0, ["2m"], "auto"), (1.0, ["6k"], "")]
    too_narrow = roomy.memory_bytes - 4 * roomy.total_params
    with pytest.raises(BadInput, match=r"nano-2m in float32 does not fit on 8 x some; model\.dtype=bfloat16 halves"):
        given(too_narrow, Somewhere(gpus="auto"))
    monkeypatch.undo()
    cells = asked("model=nano/6k")
    for called, named in ((["tesla-x"], r" \(they are called tesla-x\)"), ([], "")):
        executor = Somewhere(gpus="auto", called=called)
        with pytest.raises(BadInput, match=rf"the kind of GPU of launch=somewhere is unknown{named}\. Name it, .*h100"):
            Resources(executor, cells, [Resolver().resolve(cells[0])])


def test_cells_are_cut_by_what_they_cost_and_come_longest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flops = [p.flops for p in (planned(of(80e9), "model=nano/6k"), planned(of(80e9)))]
    assert flops[1]
    slow = replace(of(80e9), rates={"float32": flops[1] / (0.5 * 10 * 3600)})  # ten hours for the larger cell

    def tasks(executor: Executor, *words: str) -> list[str]:
        found = fitted(executor, slow, monkeypatch, *words)
        (pool,) = found.pools()
        assert pool.jobs == min(len(pool.tasks), executor.room(1))
        assert [cell.shards for cell in found.cells] == [pool.tasks[-1].shard.count, pool.tasks[0].shard.count]
        return [task.config.model.size for task in pool.tasks]

    assert tasks(Somewhere()) == ["2m"] * 3 + ["6k"]  # four hours at most
    assert tasks(Somewhere(limit=60)) == ["2m"] * 13 + ["6k"]  # 80% of a job's time
    assert tasks(Somewhere(places=4)) == ["2m"] * 32 + ["6k"]
    assert tasks(Somewhere(places=4), "shards=1") == ["2m", "6k"]
    skipped = fitted(Somewhere(), slow, monkeypatch).pools({1})
    assert [task.number for pool in skipped for task in pool.tasks] == [0]


# Published sizes: those of conf/model.
FAMILIES = {
    family: [path.stem for path in (conf_folder() / "model" / family).glob("*.yaml")]
    for family in ("pythia", "opt", "qwen2.5", "olmo2", "qwen3")
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gpus", [1, 4, 8, 64])
def test_seven_of_eight_gpus_are_busy(family: str, gpus: int) -> None:
    """Of a sweep that takes each GPU two hours or more; a job loads weights at 1 GB/s and starts in 15 s."""
    params = [float(size[:-1]) * {"m": 1e6, "b": 1e9}[size[-1]] for size in FAMILIES[family]]
    models = [number for number in params if number < 30e9]
    cells = {n: (n % len(models), models[n % len(models)]) for n in range(6 * len(models))}
    rate = sum(params for _, params in cells.values()) / (gpus * 7200.0)
    seconds = {number: params / rate for number, (_, params) in cells.items()}
    counts = cut(seconds, jobs=gpus)
    todo = [(seconds[n] / counts[n], *cells[n]) for n in cells for _ in range(counts[n])]
    todo.sort(reverse=True)
    free = [(0.0, job) for job in range(gpus)]
    loaded: dict[int, int] = {}
    while todo:
        now, job = heapq.heappop(free)
        place = next((place for place, (_, model, _) in enumerate(todo) if model == loaded.get(job)), 0)
        length, model, params = todo.pop(place)
        started = now + (0.0 if job in loaded else 15.0)
        ready = started + (0.0 if loaded.get(job) == model else 4 * params / 1e9)
        loaded[job] = model
        heapq.heappush(free, (ready + length, job))
    assert sum(seconds.values()) / (gpus * max(free)[0]) > 7 / 8


# Published shapes, and their parameters as transformers counts them.
LARGE = {
    "72b": (
        Qwen2Config(hidden_size=8192, intermediate_size=29568, num_attention_heads=64, vocab_size=152064),
        Parameters(70_214_787_072, 72_706_203_648, 1_245_708_288, 0),
    ),
    "405b": (
        LlamaConfig(hidden_size=16384, intermediate_size=53248, num_attention_heads=128, vocab_size=128256),
        Parameters(401_650_696_192, 405_853_388_800, 2_101_346_304, 0),
    ),
}


@pytest.mark.parametrize(
    ("size", "dtype", "h100", "h200"),
    [
        ("72b", "bfloat16", 3, 2),
        ("72b", "float32", 5, 3),
        ("405b", "bfloat16", None, 8),
        ("405b", "float32", None, None),
    ],
)
def test_large_models_are_spread_over_the_gpus_of_a_node(
    size: str, dtype: str, h100: int | None, h200: int | None
) -> None:
    shape, counts = LARGE[size]
    cell = SimpleNamespace(
        architecture=shape,
        model=ModelConfig("f", size, dtype=Dtype(dtype)),
        dataset=SimpleNamespace(seq_len=2048),
        reference=None,
        count_parameters=lambda: counts,
    )
    cell.parts = [cell]
    held = [memory_and_gpus(cell, data_sheet(name).memory_bytes, most=8)[1] for name in ("h100", "h200")]  # type: ignore[arg-type]
    assert held == [h100, h200]
    remedy = "model.dtype=bfloat16 halves the memory" if dtype == "float32" else "import the ranks of another engine"
    assert remedy in too_large(size, dtype, "h100")


def test_precisions_and_data_sheets() -> None:
    model = ModelConfig(family="f", size="s")
    assert precision(model) == "float32"
    assert precision(replace(model, tf32=True)) == "tf32"
    assert precision(replace(model, dtype=Dtype.bfloat16)) == "half"
    assert data_sheet("H100").rates["float32"] == 67e12
    with pytest.raises(BadInput, match=r"on=gtx: unknown GPU\. Options: v100, .*h100"):
        data_sheet("gtx")


def test_what_was_assumed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = asked("model=nano/6k,nano/2m")
    one = Plan("nano-6k", "stdlib", flops=3.35e15, seconds=100.0, gpus=1, status="to measure")
    two = Plan("nano-2m", "stdlib", flops=1e18, seconds=72_000.0, gpus=2, status="to measure")
    command._show_time([one, two], cells, data_sheet("h100"), elsewhere=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "time: 40 GPU-hours on h100 (longest cell: nano-2m / stdlib, 20:00:00)" in said
    assert "from 67 TFLOP/s in float32 (its data sheet), assuming 50% of it is reached" in said
    assert "one GPU a job: launch=NAME: nano-6k" in said
    assert "2 GPUs a job: launch=NAME launch.gpus=2 model.device_map=auto: nano-2m" in said
    command._show_time([one], cells[:1], data_sheet("h100"), elsewhere=True)
    assert "time: 0.028 GPU-hours on h100 (longest cell: " in " ".join(capsys.readouterr().out.split())
    command._show_time([replace(one, seconds=None)], cells[:1], data_sheet("h100"), elsewhere=True)
    assert not capsys.readouterr().out  # nothing is known, so nothing is said


def test_tasks_and_jobs_are_counted_and_their_time_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = asked("model=nano/6k,nano/2m", "dataset=stdlib,pydocs")
    each = Plan("nano-6k", "stdlib", seconds=1200.0, gpus=1, status="to measure")
    plans = [each, replace(each, seconds=60.0), replace(each, seconds=4000.0), replace(each, status="measured")]

    def said(executor: Executor, *, guessed: bool = False, shards: int | str = "auto") -> str:
        command._show_jobs(plans, [replace(cell, shards=shards) for cell in cells], executor, guessed=guessed)
        return " ".join(capsys.readouterr().out.split())

    assert said(Somewhere(limit=30)) == ("launch=somewhere: 5 tasks for 1 job at a time, the longest of 0:22:13")
    assert said(Somewhere(limit=30), shards=1) == (
        "launch=somewhere: 3 tasks for 1 job at a time, the longest of 1:06:40. It is longer than the 30 minutes of a "
        "job, which goes back into the queue 2 times; launch.retries=2 allows that"
    )
    assert said(Somewhere(limit=20), shards=1).endswith("4 times; launch.retries=2 is not enough") is False
    assert said(Somewhere(limit=15), shards=1).endswith("4 times; launch.retries=2 is not enough")
    assert said(Somewhere(places=4)) == (
        "launch=somewhere: 31 tasks for 4 jobs at a time, the longest of 0:02:54; about 0:21:55 in all"
    )
    assert said(Somewhere(), guessed=True).startswith("launch=somewhere: 3 tasks for 1 job at a time; on=h100 estim")
    plans = [replace(each, status="measured")] * 4
    assert not said(Somewhere())


def test_faults_of_one_cause_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was the same sentence for each model of a family."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "online", lambda: False)
    assert command.main(["model=pythia/14m,pythia/31m", "dataset=pydocs", "on=h100"]) == 1
    out = capsys.readouterr().out
    assert out.count("cannot be reached") == 1
    assert "2 of 2 cells cannot be measured:" in out
    assert "  pythia-14m, pythia-31m / pydocs: " in out
    assert "(1 more alike)" in out
    assert "to measure" not in out


def test_cells_that_cannot_be_measured_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    ready = Plan("nano-6k", "stdlib", total_params=7000, tokens=10, seconds=1.0, gpus=1, status="to measure")
    command._show([ready, Plan("llama-7b", "wiki", status="meta-llama/x is gated")])
    printed = capsys.readouterr().out
    assert "1 to measure " in printed
    assert "1 of 2 cells cannot be measured:\n  llama-7b / wiki: meta-llama/x is gated\n" in printed
    assert printed.index("1 to measure") < printed.index("llama-7b"), "the table has only cells that can be measured"


def test_tokens_are_exact_where_the_store_knows_them(
    untouched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty cache, as on another machine: of the measured model, and of others with its tokenizer."""
    shutil.copytree(untouched, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setenv("RBPTRACK_CACHE", str(tmp_path / "empty"))
    cells = asked("model=nano/6k,nano/2m", "dataset.documents=25")
    resolver, store = Resolver(), Store(cells[0].tracking)
    measured, sibling = (plan(cell, resolver, store.reader, of(80e9), elsewhere=True) for cell in cells)
    logged = store.reader.runs(FilterConfig(model=["nano-6k"], dataset=["stdlib"]))[0]
    assert (measured.status, sibling.status) == ("measured", "to measure")
    for each in (measured, sibling):
        assert (each.tokens, each.documents) == (logged["num_tokens"], 25)
        assert not each.estimated
        assert each.flops_estimated


def test_a_folder_with_one_split_needs_no_split(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.jsonl").write_text(json.dumps({"text": "def f(x):\n    return x\n"}) + "\n")
    line = ("plan", "model=nano/6k", "dataset=hf", f"dataset.path={folder}", "format=json")
    done = program(*line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder / "validation.jsonl").write_text((folder / "train.jsonl").read_text())
    done = program(*line, cwd=tmp_path)
    assert "give dataset.split=... Splits: train, validation" in done.stdout + done.stderr
