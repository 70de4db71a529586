"""Quantise one model of the embedded `nano` family with torchao, and freeze it: int8 by row, and 4 bits by group.

    python tools/quantise_nano.py        # rbptrack/embedded/quantised/115k-int8 and 115k-4bit, in seconds on a CPU

Weight-only, of the layers' matrices; embedding (the head, too, which is tied to it), norms and biases stay float16.
torchao stores 4-bit numbers on a CPU in a byte each (its packed formats need a GPU's kernels), so both files are as large.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup
from transformers import GPTNeoXForCausalLM, TorchAoConfig

SIZE = "115k"
GROUP = 28  # half a row of the narrower matrices
WAYS = {
    "int8": Int8WeightOnlyConfig(),
    "4bit": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(GROUP)),
}


def main() -> None:
    """Write both."""
    embedded = Path(__file__).parent.parent / "rbptrack" / "embedded"
    for name, way in WAYS.items():
        model = GPTNeoXForCausalLM.from_pretrained(
            embedded / "models" / SIZE, dtype=torch.float16, quantization_config=TorchAoConfig(way)
        )
        folder = embedded / "quantised" / f"{SIZE}-{name}"
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        print(f"{folder.name}: {(folder / 'model.safetensors').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
