"""Where a model's weights lie and how its products round: device, device map, TF32, memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import ModelConfig

DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")

_NO_MEMORY = re.compile(
    "DefaultCPUAllocator|CUBLAS_STATUS_ALLOC_FAILED|(?i:cannot allocate memory|bad_alloc|failed to map segment)"
)


def placement(config: ModelConfig) -> tuple[torch.device, dict[str, Any]]:
    """The device for a model that fits on one, and otherwise `from_pretrained`'s arguments that spread it.

    Raises:
        BadInput: the device does not exist here, TF32 is requested without support, or the device map is unknown.

    """
    device = device_of(config.device)
    if config.tf32 and device.type != "cuda":
        raise BadInput("model.tf32=true needs a CUDA device: other devices have no such products")
    if not config.device_map:
        if config.max_memory:
            raise BadInput("model.max_memory= says how a device map spreads a model: give model.device_map=auto, too")
        return device, {}
    if config.device_map not in DEVICE_MAPS:
        raise BadInput(f"no device map is called {config.device_map}. Options: {', '.join(DEVICE_MAPS)}")
    spread: dict[str, Any] = {"device_map": config.device_map}
    if config.max_memory:
        spread["max_memory"] = {int(k) if k.isdigit() else k: v for k, v in config.max_memory.items()}
    return device, spread


def set_precision(tf32: bool) -> None:
    """Set TF32 in products and convolutions only where asked for (cuDNN's default is on), and sums never in half."""
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


@contextmanager
def float32_products() -> Iterator[None]:
    """Compute float32 products in float32, whatever this process had chosen, and give it back its choice."""
    settings = _precision_settings()
    saved = []
    for holder, name in settings:
        # Where a process mixes torch's older and newer names, the older ones cannot be read; the newer ones say all.
        with suppress(RuntimeError, AttributeError):
            saved.append((holder, name, getattr(holder, name)))
    matmul = None
    with suppress(RuntimeError):
        matmul = torch.get_float32_matmul_precision()
    set_precision(False)
    try:
        yield
    finally:
        if matmul is not None:
            torch.set_float32_matmul_precision(matmul)
        for holder, name, value in saved:
            setattr(holder, name, value)


def _precision_settings() -> list[tuple[Any, str]]:
    """What `set_precision` changes beside torch's one precision of matrix products: older names, then newer ones."""
    backends: Any = torch.backends
    products = backends.cuda.matmul
    settings = [(backends.cudnn, "allow_tf32")]
    settings += [(products, f"allow_{kind}_reduced_precision_reduction") for kind in ("bf16", "fp16")]
    parts = [(backends.cudnn, "conv"), (backends.cudnn, "rnn"), (backends.mkldnn, "matmul")]
    newer = [products, *(getattr(holder, name, None) for holder, name in parts)]
    return settings + [(part, "fp32_precision") for part in newer if part is not None]


def device_of(wanted: str) -> torch.device:
    """The device that `model.device` names; BadInput where it does not exist here."""
    available = ["cpu"]
    if torch.cuda.is_available():
        available += ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if wanted == "auto":
        return torch.device("cuda" if "cuda" in available else "cpu")
    if wanted not in available:
        raise BadInput(f"model.device={wanted} is not available here. Devices: auto, {', '.join(available)}")
    return torch.device(wanted)


def is_spread(module: nn.Module) -> bool:
    """Whether accelerate moves weights or activations between devices while the model runs."""
    return any(hasattr(part, "_hf_hook") for part in module.modules())


def resident(layer: nn.Module, name: str) -> Tensor | None:
    """A layer's parameter on its device; read from where accelerate keeps it, if it must be."""
    parameter = getattr(layer, name, None)
    if parameter is None:
        return None
    if parameter.device.type != "meta":
        detached: Tensor = parameter.detach()
        return detached
    hook: Any = layer._hf_hook
    tensor: Tensor = hook.weights_map[name].to(hook.execution_device)
    return tensor


def free_memory(device: torch.device) -> int:
    """Bytes that can be had on a device: on CUDA, what the driver has and what torch holds without using it.

    A job that was given a share of a GPU has no more than that of its memory.
    """
    if device.type != "cuda":
        available: int = psutil.virtual_memory().available
        return available
    free, total = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device)
    share_of = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)  # not in torch 2.6
    within_share = int(share_of(device) * total) - reserved
    return min(free, within_share) + reserved - torch.cuda.memory_allocated(device)


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: on CUDA, in a library, or in torch on a CPU, which raises a plain RuntimeError."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or bool(_NO_MEMORY.search(str(error)))
