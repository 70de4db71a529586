"""Where a model's weights lie and how its products round: device, device map, TF32."""

from __future__ import annotations

import re
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import ModelConfig

DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")

_NO_MEMORY = re.compile("DefaultCPUAllocator|(?i:cannot allocate memory|bad_alloc|failed to map segment)")


def place(config: ModelConfig) -> tuple[torch.device, dict[str, Any]]:
    """Return the device for one that holds the whole model, and `from_pretrained`'s further arguments about places.

    Sets torch's precision for matrix products in this process, too: a loaded model is measured here.

    Raises:
        BadInput: the device does not exist here, TF32 is requested without support, or the device map is unknown.

    """
    device = device_of(config.device)
    if config.tf32 and device.type != "cuda":
        raise BadInput("model.tf32=true needs a CUDA device: other devices have no such products")
    set_precision(config.tf32)
    if not config.device_map:
        return device, {}
    if config.device_map not in DEVICE_MAPS:
        raise BadInput(f"no device map is called {config.device_map}. Options: {', '.join(DEVICE_MAPS)}")
    room = {int(k) if k.isdigit() else k: v for k, v in config.max_memory.items()}
    return device, {"device_map": config.device_map, **({"max_memory": room} if room else {})}


def set_precision(tf32: bool) -> None:
    """Set TF32 in products and convolutions only where asked for (cuDNN's default is on), and sums never in half."""
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def tf32_notes(module: nn.Module) -> tuple[str, ...]:
    """Say what TF32 leaves as it is: weights that are bfloat16 numbers, as most are published, fit into its bits."""
    if all(torch.equal(p, p.bfloat16().to(p.dtype)) for p in module.parameters() if p.is_floating_point()):
        return ("every weight is exactly a bfloat16 number: TF32 rounds none of them, activations only",)
    return ()


def device_of(wanted: str) -> torch.device:
    """Return the device that `model.device` names; BadInput where it does not exist here."""
    available = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if wanted == "auto":
        return torch.device(available[-1])
    if wanted.split(":")[0] not in available:
        raise BadInput(f"model.device={wanted} is not available here. Devices: auto, {', '.join(available)}")
    return torch.device(wanted)


def is_spread(module: nn.Module) -> bool:
    """Return whether accelerate moves weights or activations between devices while the model runs."""
    return any(hasattr(m, "_hf_hook") for m in module.modules())


def resident(layer: nn.Module, name: str) -> Tensor | None:
    """Return a parameter of a layer as a tensor that stays on a device, read from where accelerate keeps it if it must
    be.
    """
    parameter = getattr(layer, name, None)
    if parameter is None or parameter.device.type != "meta":
        return None if parameter is None else parameter.detach()
    hook: Any = layer._hf_hook
    tensor: Tensor = hook.weights_map[name].to(hook.execution_device)
    return tensor


def free_memory(device: torch.device) -> int:
    """Return bytes that can be had on a device: on CUDA, what the driver has and what torch holds without using it.

    A job that was given a share of a GPU has no more than that of its memory.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device)
        share_of = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)  # not in torch 2.6
        return min(free, int(share_of(device) * total) - reserved) + reserved - torch.cuda.memory_allocated(device)
    available: int = psutil.virtual_memory().available
    return available


def out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed: on CUDA, in a library, or in torch on a CPU, which raises a plain
    RuntimeError.
    """
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or bool(_NO_MEMORY.search(str(error)))
