"""Choose the sizes of batches and chunks for the memory of a device, and measure the largest memory in use."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rbptrack.models.device import free_memory

if TYPE_CHECKING:
    from rbptrack.models.causal import CausalModel

MIN_CHUNK = 16
"""The fewest tokens of a chunk. Smaller chunks make the product slow and save little memory."""

_MAX_CHUNK = 512
_MAX_CHUNK_CUDA = 4096
_LOGITS_BYTES = 80_000_000  # memory for the logits of all threads together, on a CPU
_CPU_BATCH = 2048  # tokens in a batch; the activations of larger batches do not fit into the caches
_CUDA_BATCH = 32_768


def fitting_batch_tokens(model: CausalModel, longest: int, workers: int) -> int:
    """Return the number of tokens of a batch.

    It is the default size of a batch, halved until the activations of all workers take at most half of the free memory.
    It is at least `longest`, the number of tokens of the longest sequence.
    """
    size = _CUDA_BATCH if model.device.type == "cuda" else _CPU_BATCH
    fitting = free_memory(model.device) // (2 * workers * model.activation_bytes(longest))
    while size > max(fitting, longest):
        size //= 2
    return max(size, longest)


def fitting_chunk_tokens(model: CausalModel, requested: int, workers: int) -> int:
    """Return the number of tokens whose logits a worker has in memory at once, at most `requested` if it is not 0.

    The logits take a fixed amount of memory on a CPU, and at most an eighth of the free memory on a GPU.
    """
    if model.device.type == "cuda":
        largest = requested or _MAX_CHUNK_CUDA
        budget = free_memory(model.device) // 8
    else:
        largest = requested or _MAX_CHUNK
        budget = _LOGITS_BYTES // workers
    smallest = 1 if 0 < requested < MIN_CHUNK else MIN_CHUNK
    return max(smallest, min(largest, budget // (4 * model.logits_per_token)))


def reset_peak_memory(device: torch.device) -> None:
    """Let `peak_memory` begin anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # without this file, `peak_memory` returns the peak since the process started
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Return the largest memory in use since `reset_peak_memory`, in bytes.

    On CUDA it is the memory of torch's allocator, on a CPU that of the whole process.
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
