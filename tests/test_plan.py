"""What a plan says of time and of GPUs: numbers that follow from what it says that it assumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.commands import plan as command
from rbptrack.config.request import measuring, sweep_of
from rbptrack.config.schema import Config, Dtype, LaunchConfig, ModelConfig, PerJob, Where
from rbptrack.sources import hub
from rbptrack.sweep import resources
from rbptrack.sweep.devices import Device, data_sheet, precision
from rbptrack.sweep.jobs import grouped
from rbptrack.sweep.plan import Plan, plan
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.resources import Resources
from rbptrack.tracking.store import Store


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


def fitted(device: Device, where: Where, monkeypatch: pytest.MonkeyPatch, *words: str, **options: Any) -> Resources:
    cells = asked("model=nano/6k,nano/2m", *words)
    monkeypatch.setattr(resources, "sheet_of", lambda names: device)
    launch = replace(LaunchConfig(where=where), **{"gpus": "auto"} | options)
    resolver = Resolver()
    return Resources(launch, ["some"], cells, [resolver.resolve(cell) for cell in cells])


def test_each_job_has_the_gpus_that_its_model_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    roomy = planned(of(80e9))
    assert roomy.total_params
    assert roomy.memory_bytes

    def given(memory: float, where: Where) -> list[tuple[float, str]]:
        found = fitted(of(memory), where, monkeypatch)
        jobs = grouped(found.cells, PerJob.model)
        return [(found.gpus(tasks), tasks[0].config.model.device_map) for tasks in jobs]

    assert given(80e9, Where.ray) == [(0.1, "")] * 2
    assert given(80e9, Where.slurm) == [(1.0, "")] * 2  # SLURM gives whole ones
    narrow = roomy.memory_bytes - 0.4 * 4 * roomy.total_params
    assert given(narrow, Where.ray) == [(1.0, ""), (2.0, "auto")]
    with pytest.raises(
        BadInput, match=r"launch\.gpus=auto: no some, nor 8 of them, hold nano-2m; model\.dtype=bfloat16"
    ):
        given(roomy.memory_bytes - 4 * roomy.total_params, Where.slurm)
    cells = asked("model=nano/6k", "launch=slurm", "launch.gpus=auto")
    for names, listed in ((["tesla-x"], r" \(they are called tesla-x\)"), ([], "")):
        monkeypatch.undo()
        with pytest.raises(
            BadInput, match=rf"launch=slurm has is not known here{listed}: name the kind, launch\.device="
        ):
            Resources(cells[0].launch, names, cells, [Resolver().resolve(cells[0])]).gpus(
                grouped(cells, PerJob.cell)[0]
            )


def test_shards_and_the_order_of_jobs_follow_the_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flops = [p.flops for p in (planned(of(80e9), "model=nano/6k"), planned(of(80e9)))]
    assert flops[0]
    assert flops[1]
    slow = replace(of(80e9), rates={"float32": flops[1] / (0.5 * 10 * 3600)})  # ten hours for the larger cell
    found = fitted(slow, Where.ray, monkeypatch, "shards=auto")
    assert [cell.shards for cell in found.cells] == [1, 3]
    assert [cell.shards for cell in fitted(slow, Where.slurm, monkeypatch, "shards=auto", time=60).cells] == [1, 13]
    jobs = sorted(grouped(found.cells, PerJob.model), key=found.cost, reverse=True)
    assert [tasks[0].config.model.size for tasks in jobs] == ["2m", "2m", "2m", "6k"]
    assert found.cost(jobs[0]) == pytest.approx(flops[1] / 3)


def test_precisions_and_data_sheets() -> None:
    model = ModelConfig(family="f", size="s")
    assert precision(model) == "float32"
    assert precision(replace(model, tf32=True)) == "tf32"
    assert precision(replace(model, dtype=Dtype.bfloat16)) == "half"
    assert data_sheet("H100").rates["float32"] == 67e12
    with pytest.raises(BadInput, match=r"on=gtx: no such GPU is known here\. Options: v100, .*h100"):
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
    assert "time: 40 GPU-hours on h100, of which nano-2m / stdlib takes 20:00:00" in said
    assert "from 67 TFLOP/s in float32 (its data sheet), of which 50% is assumed to be reached" in said
    assert "shards=5 brings each job of that cell under four hours" in said
    assert "one GPU a job: launch=gpus, ray or slurm: nano-6k" in said
    assert "2 GPUs a job: launch=gpus, ray or slurm launch.gpus=2 model.device_map=auto: nano-2m" in said
    command._show_time([one], cells[:1], data_sheet("h100"), elsewhere=True)
    assert "time: 0.028 GPU-hours on h100, of which" in " ".join(capsys.readouterr().out.split())
    command._show_time([replace(one, seconds=None)], cells[:1], data_sheet("h100"), elsewhere=True)
    assert not capsys.readouterr().out  # nothing is known, so nothing is said


def test_jobs_of_a_launcher_are_counted_and_their_time_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = asked("model=nano/6k,nano/2m", "dataset=stdlib,pydocs", "launch=slurm", "launch.time=30")
    each = Plan("nano-6k", "stdlib", seconds=1200.0, gpus=1, status="to measure")
    plans = [each, replace(each, seconds=60.0), replace(each, seconds=4000.0), replace(each, status="measured")]

    def said(*, guessed: bool = False, **changed: Any) -> str:
        command._show_jobs(plans, cells, replace(cells[0].launch, **changed), guessed=guessed)
        return " ".join(capsys.readouterr().out.split())

    assert said() == (
        "launch=slurm: 2 jobs, the longest of 1:26:40; launch.time=30 (minutes) is over then, "
        "and it is requeued 2 times: launch.retries=2 allows that"
    )
    assert said(time=20).endswith("it is requeued 4 times: launch.retries=2, which is not enough")
    assert said(time=90) == "launch=slurm: 2 jobs, the longest of 1:26:40; launch.time=90 (minutes) is enough"
    assert said(group=PerJob.cell).startswith("launch=slurm: 3 jobs, the longest of 1:06:40")
    assert said(where=Where.ray) == "launch=ray: 2 jobs, the longest of 1:26:40"
    assert said(guessed=True).startswith("launch=slurm: 2 jobs; on=h100 estimates")
    plans = [replace(each, status="measured")] * 4
    assert not said()


def test_faults_of_one_cause_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was the same sentence for each model of a family."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "online", lambda: False)
    assert command.main(["model=pythia/14m,pythia/31m", "dataset=pydocs", "on=h100"]) == 1
    out = capsys.readouterr().out
    assert out.count("cannot be reached") == 1
    assert "pythia-14m, pythia-31m: " in out
