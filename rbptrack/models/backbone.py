"""The backbone of a model: the model's own forward pass, stopped before the output head."""

from __future__ import annotations

import inspect
import threading
import weakref
from contextlib import nullcontext
from typing import Any

from torch import Tensor, nn


class Unmeasurable(Exception):
    """A model cannot be split into backbone and head. The message is the reason."""


class _ReachedHead(Exception):
    """Ends a forward pass at the head and carries the head's input to the caller."""

    def __init__(self, states: Tensor) -> None:
        super().__init__("the forward pass reached the head")
        self.states = states


class Backbone:
    """Computes the hidden states that a causal language model passes to its head.

    A call runs the whole model's forward pass. A hook on the head ends the pass before the product with the vocabulary.
    The states therefore include everything that the model does between its last layer and its head (a dense layer, a
    norm, a scale), and a multimodal model numbers its positions itself. Several threads may call a backbone at once.

    Args:
        module: a causal language model of transformers, in evaluation mode.
        output: the model's head, which is the module that multiplies states with the vocabulary.

    """

    def __init__(self, module: nn.Module, output: nn.Module) -> None:
        self._module = module
        self._options = _forward_options(module)
        self._thread = threading.local()  # `stops` is True while this thread's forward pass must end at the head
        thread = self._thread  # the hook must not hold a reference to this object
        # Some models keep their recurrent state in their modules. They run one batch at a time, and the state is
        # cleared before each batch.
        self._stateful = [part for part in module.modules() if "recurrent_states" in vars(part)]
        self._lock = threading.Lock() if self._stateful else nullcontext()

        def stop(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if getattr(thread, "stops", False):
                raise _ReachedHead(args[0] if args else next(iter(kwargs.values())))

        hook = output.register_forward_pre_hook(stop, prepend=True, with_kwargs=True)
        weakref.finalize(self, hook.remove)  # the caller may still use the module later

    def __call__(self, tokens: Tensor) -> Tensor:
        """Return hidden states (batch, length, width) of token ids (batch, length) that are padded on the right.

        The model gets no attention mask. A causal model does not read later tokens, so padding on the right does not
        change the states of a text.

        Raises:
            Unmeasurable: the forward pass does not call the head, or the head reads more than one tensor of states.

        """
        self._thread.stops = True
        try:
            self.full_logits(tokens)
        except _ReachedHead as reached:
            if reached.states.ndim != tokens.ndim + 1:
                raise Unmeasurable("its head reads several streams of hidden states at once") from None
            return reached.states
        finally:
            self._thread.stops = False
        raise Unmeasurable("its forward pass does not call its output embeddings")

    def full_logits(self, tokens: Tensor) -> Tensor:
        """Return the model's own logits (batch, length, vocabulary) of token ids (batch, length)."""
        with self._lock:
            for part in self._stateful:
                part.recurrent_states = None  # type: ignore[assignment]
            output = self._module(input_ids=tokens, **self._options)
        logits: Tensor = output.logits if hasattr(output, "logits") else output[0]
        return logits


def _forward_options(module: nn.Module) -> dict[str, Any]:
    """Return the argument `use_cache=False` if the module's forward pass accepts it."""
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.name == "use_cache" or parameter.kind is parameter.VAR_KEYWORD:
            return {"use_cache": False}
    return {}
