"""How fast devices are, for plans: from data sheets or measured here; and which share of it is assumed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import Dtype, ModelConfig

_SHEET_SHARE = 0.5  # assumed: nothing of rbptrack has been timed on these
MEASURED_SHARE = 0.6  # of the rate of a matrix product, on CPUs: docs/benchmarks.md has 0.57 to 0.72


@dataclass(frozen=True)
class Device:
    """One GPU, or a machine's CPU."""

    name: str  # as it is asked for
    memory_bytes: float
    rates: Mapping[str, float]  # operations per second of a dense matrix product, by precision: float32, tf32, half
    share: float  # how much of the rate a measurement is assumed to reach
    source: str  # where the rates are from, for people

    def seconds(self, flops: float, model: ModelConfig) -> float:
        """Estimate the seconds that one device takes for a model's operations."""
        return flops / (self.rates[precision(model)] * self.share)


def precision(model: ModelConfig) -> str:
    """Return the name of a model's rate: float32, tf32 or half."""
    if model.dtype is not Dtype.float32:
        return "half"
    return "tf32" if model.tf32 else "float32"


# GB, then TFLOP/s in float32, TF32 and 16 bits: dense, as NVIDIA's data sheets give them.
_SHEETS = {
    "v100": (32, 15.7, 15.7, 125),
    "t4": (16, 8.1, 8.1, 65),
    "a10": (24, 31.2, 62.5, 125),
    "a100": (80, 19.5, 156, 312),
    "a100-40gb": (40, 19.5, 156, 312),
    "l4": (24, 30.3, 60, 121),
    "l40s": (48, 91.6, 183, 362),
    "h100": (80, 67, 494, 989),
    "h200": (141, 67, 494, 989),
}
KNOWN = tuple(_SHEETS)


def data_sheet(name: str, *, option: str = "on") -> Device:
    """Return the class of GPU that a user names; BadInput with the options where none is called so."""
    if name.lower() not in _SHEETS:
        raise BadInput(f"{option}={name}: unknown GPU. Options: {', '.join(KNOWN)}")
    memory, *rates = _SHEETS[name.lower()]
    by_precision = {key: rate * 1e12 for key, rate in zip(("float32", "tf32", "half"), rates, strict=True)}
    return Device(name.lower(), memory * 1e9, by_precision, _SHEET_SHARE, "its data sheet")


_GUESSED_CPU = Device("a CPU", 16e9, {"float32": 2e11, "tf32": 2e11, "half": 1e11}, MEASURED_SHARE, "a guess")


def guessed(*, cpu: bool) -> Device:
    """Return a device for dividing work where the true one is unknown: one of two cores, or an A100."""
    return _GUESSED_CPU if cpu else data_sheet("a100")


def sheet_of(names: Iterable[str]) -> Device | None:
    """Return the smallest class of GPU among those that a machine or a cluster names; None where it names none known
    here.

    Examples:
        >>> sheet_of(["NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"]).name
        'a100-40gb'

    """
    words = [set(re.split(r"[^a-z0-9]+", name.lower())) for name in names]
    sheets = [
        max((k for k in KNOWN if set(k.split("-")) <= words_of_gpu), key=len, default="") for words_of_gpu in words
    ]
    return min((data_sheet(name) for name in sheets if name), key=lambda device: device.memory_bytes, default=None)
