"""Set the precision of torch's matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


def set_full_precision() -> None:
    """Switch TF32 off for this process, and sum products of half-precision numbers in float32.

    TF32 concerns matrix products and convolutions. cuDNN uses it by default.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


@contextmanager
def float32_products() -> Iterator[None]:
    """Switch TF32 off for a block, and restore this process's settings afterwards."""
    saved = []
    for holder, name in _precision_settings():
        # If a process mixes torch's older and newer settings, reading the older ones fails. The newer ones suffice.
        with suppress(RuntimeError, AttributeError):
            saved.append((holder, name, getattr(holder, name)))
    matmul_precision = None
    with suppress(RuntimeError):
        matmul_precision = torch.get_float32_matmul_precision()
    set_full_precision()
    try:
        yield
    finally:
        if matmul_precision is not None:
            torch.set_float32_matmul_precision(matmul_precision)
        for holder, name, value in saved:
            setattr(holder, name, value)


def _precision_settings() -> list[tuple[Any, str]]:
    """List the settings of torch that `set_full_precision` changes, as pairs of object and attribute.

    The precision of float32 matrix products is not in the list, because torch reads and sets it by functions.
    """
    backends: Any = torch.backends
    products = backends.cuda.matmul
    settings = [(backends.cudnn, "allow_tf32")]
    settings += [(products, f"allow_{kind}_reduced_precision_reduction") for kind in ("bf16", "fp16")]
    operations = [(backends.cudnn, "conv"), (backends.cudnn, "rnn"), (backends.mkldnn, "matmul")]
    holders = [products, *(getattr(backend, name, None) for backend, name in operations)]
    return settings + [(holder, "fp32_precision") for holder in holders if holder is not None]
