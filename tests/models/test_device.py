"""Tests of the names of devices and of the errors that mean a lack of memory."""

from __future__ import annotations

import pytest
import torch

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import ModelConfig
from rbptrack.models.device import is_out_of_memory, placement, torch_device


@pytest.mark.parametrize("name", ["cpu:foo", "cuda", "cuda:0", "mps", ""])
def test_torch_device_refuses_other_devices_than_the_cpu_on_a_machine_without_a_gpu(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput):
        torch_device(name)


def test_torch_device_auto_is_the_cpu_on_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert torch_device("auto") == torch.device("cpu")


@pytest.fixture
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch report two GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize(("name", "device"), [("cuda:1", "cuda:1"), ("auto", "cuda")])
def test_torch_device_accepts_a_gpu_of_this_machine(name: str, device: str) -> None:
    assert torch_device(name) == torch.device(device)


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize("name", ["cuda:2", "cuda:foo"])
def test_torch_device_refuses_a_gpu_that_this_machine_does_not_have(name: str) -> None:
    with pytest.raises(BadInput):
        torch_device(name)


def test_placement_refuses_max_memory_without_a_device_map() -> None:
    with pytest.raises(BadInput, match="device_map"):
        placement(ModelConfig(family="nano", size="6k", max_memory={"0": "1GB"}))


def test_is_out_of_memory_recognizes_an_error_of_cublas() -> None:
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
