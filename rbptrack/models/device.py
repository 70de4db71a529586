"""Choose a model's device, and measure its free memory."""

from __future__ import annotations

import re
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
    """Return a model's device, and the arguments with which `from_pretrained` spreads the model over devices.

    If the config has no device map, the arguments are empty, and the whole model is on the device.

    Raises:
        BadInput: the device does not exist on this machine, the device map is unknown, or `max_memory` is set without a
            device map.

    """
    device = torch_device(config.device)
    if not config.device_map:
        if config.max_memory:
            raise BadInput("model.max_memory= is only used with a device map: give model.device_map=auto, too")
        return device, {}
    if config.device_map not in DEVICE_MAPS:
        raise BadInput(f"model.device_map={config.device_map} is unknown. Device maps: {', '.join(DEVICE_MAPS)}")
    options: dict[str, Any] = {"device_map": config.device_map}
    if config.max_memory:
        options["max_memory"] = {int(key) if key.isdigit() else key: limit for key, limit in config.max_memory.items()}
    return device, options


def torch_device(requested: str) -> torch.device:
    """Return the torch device for a value of `model.device`. Raises BadInput if this machine does not have it."""
    available = ["cpu"]
    if torch.cuda.is_available():
        available += ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if requested == "auto":
        return torch.device("cuda" if "cuda" in available else "cpu")
    if requested not in available:
        raise BadInput(f"model.device={requested} is not available here. Devices: auto, {', '.join(available)}")
    return torch.device(requested)


def is_spread(module: nn.Module) -> bool:
    """Return whether accelerate moves weights or activations between devices while the model runs."""
    return any(hasattr(part, "_hf_hook") for part in module.modules())


def parameter_on_device(layer: nn.Module, name: str) -> Tensor | None:
    """Return a parameter of a layer on the device that computes the layer, or None if the layer does not have it.

    accelerate may keep the parameter in the CPU's memory or on disk. It is then read and copied to the device.
    """
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
    """Return the number of bytes that this process can still allocate on a device.

    On CUDA this is the memory that the driver has free, plus the memory that torch has reserved and does not use. If
    the process may use only a share of the GPU's memory, no more than this share is counted.
    """
    if device.type != "cuda":
        available: int = psutil.virtual_memory().available
        return available
    free, total = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device)
    get_share = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)  # torch 2.6 does not have it
    free_of_share = int(get_share(device) * total) - reserved
    return min(free, free_of_share) + reserved - torch.cuda.memory_allocated(device)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out, on a GPU or on a CPU.

    On a CPU, torch raises a plain RuntimeError. The function recognises it by its message.
    """
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or bool(_NO_MEMORY.search(str(error)))
