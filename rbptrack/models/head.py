"""What a model does with the product of states and vocabulary: recorded from the model itself, replayed on chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

from rbptrack.models.backbone import Unmeasurable
from rbptrack.models.device import resident
from rbptrack.models.quantised import is_matrix, multiplier
from rbptrack.scoring.scorer import Head

_SHAPE_ONLY = {"alias", "detach", "clone", "_to_copy", "view", "_unsafe_view", "expand", "lift_fresh"}


@dataclass(frozen=True)
class _Step:
    """One operation on what began as the head's product, as PyTorch carried it out."""

    name: str
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every operation on the head's product, and on what came of it, during one forward pass."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.product: Tensor | None = None
        self.steps: list[_Step] = []
        self._followed: dict[int, Tensor] = {}  # by identity; kept alive, so that no identity is used twice

    def begin(self, product: Tensor) -> None:
        """Follow a product, (1, tokens, vocabulary), from here on."""
        self.product = product
        self.steps = []
        self._followed = {id(product): product}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = [value for value in tree_iter((args, kwargs)) if isinstance(value, Tensor)]
        if any(id(value) in self._followed for value in given):
            self.steps.append(_Step(func.overloadpacket.__name__, func, args, kwargs, result))
            self._followed |= {id(value): value for value in tree_iter(result) if isinstance(value, Tensor)}
        return result


def record(output: nn.Module, whole: Callable[[Tensor], Tensor], tokens: Tensor) -> tuple[Tensor, Recorder]:
    """Return logits of token ids (1, length), and the steps from the head's product to them."""
    recorder = Recorder()
    hook = output.register_forward_hook(lambda module, args, product: recorder.begin(product))
    try:
        with recorder:
            logits = whole(tokens)
    finally:
        hook.remove()
    return logits, recorder


def head_of(output: nn.Module, logits: Tensor, recorder: Recorder, *, candidates: int | None) -> Head:
    """Return the head as the scorer takes it.

    Args:
        output: the model's output embeddings.
        logits: full logits (1, length, vocabulary) of a probe.
        recorder: what the model did on the way to them.
        candidates: rank targets among the first so many rows; None: all that the model gives logits for.

    Raises:
        Unmeasurable: the logits are not made from one matrix product with the vocabulary.

    """
    weight = resident(output, "weight")
    bias = resident(output, "bias")
    product = recorder.product
    multiply = None
    width = getattr(output, "in_features", None)
    if product is not None and not is_matrix(weight) and isinstance(width, int):
        stand_in = torch.zeros(1, 1, dtype=product.dtype, device=product.device)
        weight, bias = stand_in.expand(product.shape[-1], width), None  # its module adds the bias
        multiply = multiplier(output)
    if weight is None or weight.ndim != 2 or product is None or product.shape[-1] != weight.shape[0]:
        raise Unmeasurable("its output embeddings are not one matrix")
    rows = min(logits.shape[-1], candidates or logits.shape[-1])  # some models drop padded rows after the product
    if rows < weight.shape[0]:
        weight = weight[:rows]
        bias = None if bias is None else bias[:rows]
    steps_of_head = _scale_and_softcap(recorder.steps)
    if steps_of_head is not None:
        scale, softcap = steps_of_head
        return Head(weight=weight, bias=bias, softcap=softcap, scale=scale, product=multiply)
    if rows < product.shape[-1]:
        raise Unmeasurable("what it does to its logits needs every row of its vocabulary")
    return Head(weight=weight, bias=bias, then=_replay(recorder.steps, product, logits), product=multiply)


def _scale_and_softcap(steps: list[_Step]) -> tuple[float, float | None] | None:
    """Return factor and softcap, where the steps are nothing but products with numbers and at most one tanh; else
    None.
    """
    before = 1.0
    after = 1.0
    capped = False
    for step in steps:
        if step.name in _SHAPE_ONLY or _from_the_first(step):
            continue
        factor = _factor(step)
        if factor is not None:
            before, after = (before, after * factor) if capped else (before * factor, after)
        elif step.name in ("tanh", "tanh_") and not capped:
            capped = True
        else:
            return None
    if not capped:
        return before, None
    scale = before * after  # after * tanh(before * x) is c * tanh(scale * x / c) with c = after
    return (1.0 if abs(scale - 1.0) < 1e-9 else scale), after


def _from_the_first(step: _Step) -> bool:
    """Return a slice that begins at 0: all tokens, or the first rows of the vocabulary."""
    return step.name == "slice" and (len(step.args) < 3 or not step.args[2]) and step.args[4:] in ((), (1,))


def _factor(step: _Step) -> float | None:
    if step.name.rstrip("_") not in ("mul", "div") or step.kwargs or len(step.args) != 2:
        return None
    numbers = [v for v in step.args if not isinstance(v, Tensor) or v.numel() == 1]
    if len(numbers) != 1 or (step.name.startswith("div") and numbers[0] is step.args[0]):
        return None
    number = float(numbers[0])
    return 1.0 / number if step.name.startswith("div") else number


def _replay(steps: list[_Step], product: Tensor, logits: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the same operations on another product (tokens, vocabulary); tokens stand in for the recorded pass's."""
    if not any(result is logits for step in steps for result in tree_iter(step.result)):
        raise Unmeasurable("its logits are not made from the product with its output embeddings")

    def then(chunk: Tensor) -> Tensor:
        made = {id(product): chunk[None]}  # as in the model: (batch, tokens, vocabulary)

        def current(value: Any) -> Any:
            return made.get(id(value), value) if isinstance(value, Tensor) else value

        for step in steps:
            result = step.function(*tree_map(current, step.args), **tree_map(current, step.kwargs))
            for old, new in zip(tree_iter(step.result), tree_iter(result), strict=True):
                if isinstance(old, Tensor):
                    made[id(old)] = new
        return made[id(logits)][0].float()

    return then
