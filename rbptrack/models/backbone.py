"""The backbone of a model: its own forward pass, stopped before the output head."""

from __future__ import annotations

import inspect
import threading
import weakref
from contextlib import nullcontext
from typing import Any

from torch import Tensor, nn


class Unmeasurable(Exception):
    """Why a model cannot be split into backbone and head."""


class _AtHead(Exception):
    """Carries the head's input out of a forward pass that is not to go on."""

    def __init__(self, states: Tensor) -> None:
        super().__init__("the forward pass reached the head")
        self.states = states


class Backbone:
    """Calls a causal language model up to its head; several threads may call it at a time.

    It runs the whole model's forward pass. A hook on the head ends the pass before the product with the vocabulary. The
    states therefore include everything that the model does between its last layer and its head (a dense layer, a norm,
    a scale), and a multimodal model numbers its positions itself.

    Args:
        module: a causal language model of transformers, in evaluation mode.
        output: its head, the module that multiplies with the vocabulary.

    """

    def __init__(self, module: nn.Module, output: nn.Module) -> None:
        self._module = module
        self._options = _options(module)
        self._stops = threading.local()  # whether this thread's forward pass is to end at the head
        stops = self._stops  # the hook holds no reference to this object
        # A model that keeps its recurrent state in its modules takes one batch at a time, and none from the last.
        self._stateful = [m for m in module.modules() if "recurrent_states" in vars(m)]
        self._turn = threading.Lock() if self._stateful else nullcontext()

        def stop(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if getattr(stops, "here", False):
                raise _AtHead(args[0] if args else next(iter(kwargs.values())))

        hook = output.register_forward_pre_hook(stop, prepend=True, with_kwargs=True)
        weakref.finalize(self, hook.remove)  # the module may be another's, and live on

    def __call__(self, tokens: Tensor) -> Tensor:
        """States (batch, length, width) of token ids (batch, length) padded on the right.

        No attention mask is given: a causal model never looks at what follows, padding included.
        """
        self._stops.here = True
        try:
            self.whole(tokens)
        except _AtHead as reached:
            if reached.states.ndim != tokens.ndim + 1:
                raise Unmeasurable("its head reads several streams of states at a time") from None
            return reached.states
        finally:
            self._stops.here = False
        raise Unmeasurable("its forward pass does not call its output embeddings")

    def whole(self, tokens: Tensor) -> Tensor:
        """Logits (batch, length, vocabulary) of token ids (batch, length), as the model itself computes them."""
        with self._turn:
            for layer in self._stateful:
                layer.recurrent_states = None  # type: ignore[assignment]
            output = self._module(input_ids=tokens, **self._options)
        logits: Tensor = output.logits if hasattr(output, "logits") else output[0]
        return logits


def _options(module: nn.Module) -> dict[str, Any]:
    """`use_cache=False`, where the forward pass knows it."""
    parameters = inspect.signature(module.forward).parameters.values()
    if any(p.name == "use_cache" or p.kind is p.VAR_KEYWORD for p in parameters):
        return {"use_cache": False}
    return {}
