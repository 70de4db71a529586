"""Reduce logits to scores on a CPU in one pass, by C code that is built once for each machine.

A compiler for C takes less than a second. torch.compile would take 5 to 15 seconds for the same loop, in each process.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from rbptrack.scoring.reduction import Reduction, choose_reduction, row_maxima

log = logging.getLogger(__name__)

_SOURCE = r"""
#include <string.h>

/* Reduces rows of logits, (rows, columns). For each row with a largest entry x_max and the target's logit t:
   greater and equal: the numbers of entries above t and equal to t; total: the sum of e^(x - x_max);
   weighted: the sum of (x - x_max) e^(x - x_max). Entries of -infinity add nothing. NaN makes both sums NaN. */
void reduce(const float *logits, long rows, long columns, long stride, const float *targets, const float *highest,
            int *greater, int *equal, double *total, double *weighted) {
    for (long row = 0; row < rows; row++) {
        const float *x = logits + row * stride;
        const float t = targets[row], x_max = highest[row];
        int above = 0, same = 0;
        double sum = 0, weighted_sum = 0;
        for (long begin = 0; begin < columns; begin += 4096) {  /* float32 sums of few entries, for their precision */
            const long end = begin + 4096 < columns ? begin + 4096 : columns;
            float part = 0, weighted_part = 0;
            #pragma omp simd reduction(+ : above, same, part, weighted_part)
            for (long j = begin; j < end; j++) {
                above += x[j] > t;
                same += x[j] == t;
                const float below = x[j] - x_max;
                float power = below * 1.44269504f;               /* e^below = 2^power */
                power = power < -125.0f ? -125.0f : power;
                const float whole = (power + 12582912.0f) - 12582912.0f;  /* rounds to a whole number */
                const float f = power - whole;                   /* -0.5 to 0.5; the Taylor series of 2^f follows */
                float term = 1.52527338e-5f;
                term = term * f + 1.54035304e-4f;
                term = term * f + 1.33335581e-3f;
                term = term * f + 9.61812911e-3f;
                term = term * f + 5.55041087e-2f;
                term = term * f + 2.40226507e-1f;
                term = term * f + 6.93147181e-1f;
                term = term * f + 1.0f;
                int bits;
                memcpy(&bits, &term, sizeof bits);
                bits += (int)whole * (1 << 23);                  /* times 2^whole */
                memcpy(&term, &bits, sizeof bits);
                term = below < -86.0f ? 0.0f : term;             /* e^-86 is below float32's smallest sums */
                term = below == below ? term : below;            /* NaN */
                part += term;
                weighted_part += below < -86.0f ? 0.0f : term * below;
            }
            sum += part;
            weighted_sum += weighted_part;
        }
        greater[row] = above;
        equal[row] = same;
        total[row] = sum;
        weighted[row] = weighted_sum;
    }
}
"""
_OPTIONS = ("-O3", "-march=native", "-ffp-contract=fast", "-fopenmp-simd", "-fPIC", "-shared", "-x", "c")
_COMPILERS = ("cc", "gcc", "clang")
_SECONDS = 120  # after which a compiler is stopped


@cache
def compiled_cpu_reduction(vocab_size: int, folder: Path) -> Reduction | None:
    """Return a reduction in C for rows of `vocab_size` logits and any number of tokens.

    It uses as many threads as torch does in the calling thread. The result agrees with `eager_reduction`: counts are
    equal, and floats differ by rounding.

    Args:
        vocab_size: |V|, for which the reduction is checked against eager operations.
        folder: the folder that keeps the built code for later processes.

    Returns:
        The reduction, or None if there is no C compiler, or if its numbers differ from those of eager operations.

    """
    try:
        function = ctypes.CDLL(str(_build(folder))).reduce
    except (OSError, subprocess.SubprocessError) as error:
        log.info("logits are reduced by eager operations: the C code cannot be built or loaded (%s)", error)
        return None
    function.restype = None

    def reduce(logits: Tensor, target_logits: Tensor) -> dict[str, Tensor]:
        highest, top = row_maxima(logits)
        tokens = len(logits)
        greater, equal = torch.empty(2, tokens, dtype=torch.int32)
        total, weighted = torch.empty(2, tokens, dtype=torch.float64)
        vectors = (target_logits.contiguous(), highest.contiguous(), greater, equal, total, weighted)

        def reduce_rows(rows: slice) -> None:
            part = logits[rows]
            sizes = (len(part), logits.shape[1], logits.stride(0))
            pointers = (ctypes.c_void_p(vector[rows].data_ptr()) for vector in vectors)
            function(ctypes.c_void_p(part.data_ptr()), *map(ctypes.c_long, sizes), *pointers)

        threads = torch.get_num_threads()
        if threads == 1:
            reduce_rows(slice(tokens))
        else:
            size = -(-tokens // threads)  # rounded up
            list(_pool(threads).map(reduce_rows, [slice(start, start + size) for start in range(0, tokens, size)]))
        log_total = total.log().clamp(min=0)
        return {
            "greater": greater,
            "ties": equal - 1,
            "logprob": (target_logits[:, 0] - highest[:, 0] - log_total.float()).clamp(max=0),
            "entropy": (log_total - weighted / total).clamp(min=0).float(),
            "top": top[:, 0].int(),
            "top_logprob": -log_total.float(),
        }

    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():  # later calls are in this mode
        logits = (torch.randn(64, vocab_size, generator=generator) * 4).round(decimals=1)  # one decimal gives ties
        logits[:, -1] = float("-inf")
        target_logits = logits.gather(1, torch.randint(vocab_size - 1, (64, 1), generator=generator))
        chosen, _ = choose_reduction(reduce, logits, target_logits)
    return reduce if chosen is reduce else None


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "rbptrack-reduction")


def _build(folder: Path) -> Path:
    """Build the C code, unless a folder has it for this processor. Returns the shared library.

    Raises OSError or SubprocessError if there is no compiler, or if it fails.
    """
    key = hashlib.sha256("\n".join([_SOURCE, *_OPTIONS, platform.platform(), _processor()]).encode()).hexdigest()[:32]
    library = folder / f"reduction-{key}.so"
    if library.exists():
        return library
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise FileNotFoundError("there is no C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as build:
        built = Path(build) / "reduction.so"
        command = [compiler, *_OPTIONS, "-", "-o", str(built)]
        subprocess.run(command, input=_SOURCE.encode(), check=True, capture_output=True, timeout=_SECONDS)
        built.replace(library)  # processes that build at the same time replace each other's library by an equal one
    return library


def _processor() -> str:
    """Describe the processor, because code that is built for one may use instructions that another lacks."""
    cpuinfo = Path("/proc/cpuinfo")  # on Linux only
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = ("model name", "flags", "Features", "CPU part")
    described = sorted({line for line in lines if line.startswith(names)})
    return "\n".join(described) or f"{platform.machine()} {platform.processor()}"
