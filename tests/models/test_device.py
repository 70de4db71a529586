"""Names of devices, and what counts as a lack of memory."""

from __future__ import annotations

import pytest
import torch

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import ModelConfig
from rbptrack.models.device import is_out_of_memory, placement, torch_device


@pytest.mark.parametrize("name", ["cpu:foo", "cuda", "cuda:0", "mps", ""])
def test_what_is_not_here_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput):
        torch_device(name)
    assert torch_device("auto") == torch.device("cpu")


def test_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_device("cuda:1") == torch.device("cuda:1")
    assert torch_device("auto") == torch.device("cuda")
    for name in ("cuda:2", "cuda:foo"):
        with pytest.raises(BadInput):
            torch_device(name)


def test_memory_by_device_needs_a_device_map() -> None:
    with pytest.raises(BadInput, match="device_map"):
        placement(ModelConfig(family="nano", size="6k", max_memory={"0": "1GB"}))


def test_a_full_gpu_may_speak_through_cublas() -> None:
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
