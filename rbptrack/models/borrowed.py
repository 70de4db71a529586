"""A model that is somebody else's while it is measured: lent to one measurement at a time, and given back as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

_locks: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_making = threading.Lock()


@contextmanager
def borrowed(module: nn.Module) -> Iterator[None]:
    """Hold a model in evaluation mode, in the precision of its weights; other threads that want it wait.

    Afterwards each of its parts is in training mode or not as it was (a frozen part is often in evaluation mode within
    a model that trains), whatever happened meanwhile.
    """
    with _making:
        lock = _locks.setdefault(module, threading.RLock())
    with lock, ExitStack() as given_back:
        for part in module.modules():
            given_back.callback(setattr, part, "training", part.training)
            if getattr(part, "layers_are_rescaled", None) is False:  # RWKV divides its weights by powers of two
                given_back.callback(_scale_back, part)
        module.eval()
        given_back.enter_context(_own_forward(module))
        device = next(module.parameters()).device.type
        given_back.enter_context(torch.autocast(device, enabled=False))
        yield


@contextmanager
def _own_forward(module: Any) -> Iterator[None]:
    """Take off the autocast that accelerate wraps around a model's forward pass for training in mixed precision."""
    wrapped, own = (vars(module).get(name) for name in ("forward", "_original_forward"))
    if wrapped is None or own is None:
        yield
        return
    module.forward = own
    try:
        yield
    finally:
        module.forward = wrapped


def _scale_back(part: Any) -> None:
    """Let an RWKV model multiply its weights as it does before it trains; those of the next pass are divided again."""
    part.training = True
    part._rescale_layers()
