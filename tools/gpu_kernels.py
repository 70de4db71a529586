"""Compile the GPU's kernels for a GPU that this machine need not have.

    python -m tools.gpu_kernels [--architecture 90] [--all]

Prints a line for each kernel: the processor time of the compilation, the registers and the spilled bytes of a thread,
and the shared memory of a program. This finds code that triton cannot compile, and a tile that is too large. It cannot
find wrong numbers and slow code. `python -m pytest tests/scoring/test_kernels.py` checks numbers in triton's
interpreter, and `make gpu-proof` checks numbers and speed on a GPU.

Without --all, it compiles the kernels for bfloat16 weights without bias, scale, softcap and excluded ids. Architectures
are 80 (A100), 89 (RTX 4090, L4), 90 (H100, H200) and 100 (B200).
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from rbptrack.scoring import kernels

TYPES = {
    **dict.fromkeys(("hidden", "weight"), "*bf16"),
    **dict.fromkeys(("bias", "own", "sums", "logits"), "*fp32"),
    **dict.fromkeys(("counts",), "*i32"),
    **dict.fromkeys(("targets",), "*i64"),
    **dict.fromkeys(("is_ranked",), "*u8"),
    **dict.fromkeys(("tokens", "entries", "part_entries", "width", "hidden_stride", "weight_stride", "stride"), "i32"),
    **dict.fromkeys(("scale", "softcap"), "fp32"),
}
"""The type of each argument of a kernel."""

MULTIPLES_OF_16 = ("width", "hidden_stride", "weight_stride", "stride")
OPTIONS = ("bias", "is_ranked", "scale", "softcap")


@dataclass(frozen=True)
class Variant:
    """A kernel with the arguments that are known when it is compiled.

    Attributes:
        name: what is compiled, for the printed line.
        kernel: the kernel.
        dtype: the type of hidden states and weights.
        constants: the arguments that are known.
        stages: the number of pieces that are loaded ahead.
        warps: the number of warps of a program.
    """

    name: str
    kernel: Any
    dtype: str
    constants: Mapping[str, object]
    stages: int
    warps: int


def variants(*, all_of_them: bool) -> Iterator[Variant]:
    """Yield the kernels that a GPU may need, or only those of a plain head in bfloat16."""
    dtypes = {"bf16": 2, "fp16": 2, "fp32": 4} if all_of_them else {"bf16": 2}
    options: list[tuple[str, ...]] = [(), ("bias",), ("is_ranked",), ("scale", "softcap")] if all_of_them else [()]
    for tile in kernels.TILES if all_of_them else kernels.TILES[:1]:
        for dtype, size in dtypes.items():
            for given in options:
                if "softcap" in given and tile is not kernels.TILES[-1]:
                    continue
                constants: dict[str, object] = {name: None for name in OPTIONS if name not in given}
                constants |= {"ROWS": tile.rows, "COLUMNS": tile.columns, "DEPTH": tile.bytes // size, "UPCAST": False}
                for kernel in (kernels._target_kernel, kernels._sweep_kernel):
                    words = (kernel.__name__.strip("_"), dtype, f"{tile.rows} x {tile.columns}", *given)
                    yield Variant(", ".join(words), kernel, dtype, constants, tile.stages, tile.warps)
    constants = {"COLUMNS": kernels.LOGITS_COLUMNS}
    yield Variant("logits_kernel", kernels._logits_kernel, "fp32", constants, 3, kernels.LOGITS_WARPS)


def compile_variant(variant: Variant, architecture: int) -> str:
    """Compile a kernel down to machine code. Returns a line about it. Raises triton's error if it does not compile."""
    names = variant.kernel.arg_names
    types = {name: TYPES.get(name, "constexpr").replace("bf16", variant.dtype) for name in names}
    types |= dict.fromkeys(variant.constants, "constexpr")
    constants = {(names.index(name),): value for name, value in variant.constants.items()}
    aligned = [name for name in names if types[name].startswith("*") or name in MULTIPLES_OF_16]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = ASTSource(variant.kernel, types, constants, attributes)
    options = {"num_stages": variant.stages, "num_warps": variant.warps, **kernels.EXACT}
    begin = processor_seconds()
    binary = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    seconds = processor_seconds() - begin
    registers, spilled = resource_usage(binary.asm["cubin"])
    shared = binary.metadata.shared / 1000
    return f"{variant.name}: {seconds:.1f} s, {registers} registers, {spilled} bytes spilled, {shared:.0f} KB shared"


def processor_seconds() -> float:
    """Return the processor time of this process and of the assembler that it ran."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def resource_usage(binary: bytes) -> tuple[int, int]:
    """Return the registers of a thread and its bytes on the stack, as NVIDIA's cuobjdump reads them."""
    cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        text = subprocess.run([cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    match = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if match is None:
        raise ValueError(f"cuobjdump printed no resource usage: {text}")
    return int(match[1]), int(match[2])


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile the kernels and print a line for each. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--architecture", type=int, default=90, help="compute capability times 10; 90 by default")
    parser.add_argument("--all", action="store_true", help="all precisions, tiles and kinds of heads")
    options = parser.parse_args(arguments)
    if os.environ.get("TRITON_INTERPRET") == "1":
        parser.error("TRITON_INTERPRET=1 is set: triton then compiles nothing. Unset it.")
    for variant in variants(all_of_them=options.all):
        print(compile_variant(variant, options.architecture), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
