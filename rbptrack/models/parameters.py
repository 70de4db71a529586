"""Count the parameters of a model: S, and all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from rbptrack.base.errors import BadInput, first_line
from rbptrack.models.architecture import model_class, text_config


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers of a model's parameters. Tied parameters count once.

    Attributes:
        non_embedding: S, the number of parameters of the text part without embeddings and output head.
        total: the number of all parameters of the model.
        head: the number of parameters of the output head's weight (rows times columns).
        non_text: the number of parameters in parts that read images or audio. S leaves them out. 0 for a text model.

    """

    non_embedding: int
    total: int
    head: int
    non_text: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on how S was counted. Empty for a text model."""
        if not self.non_text:
            return ()
        return (
            "the model is multimodal and S counts its text part only: "
            f"{self.non_text:,} of {self.total:,} parameters are in other parts",
        )


def count_parameters(config: Any) -> ParameterCounts:
    """Count the parameters of the model that a transformers config describes.

    The model is built on torch's meta device. This needs no weights and almost no memory. Raises BadInput if
    transformers cannot build a model from the config.
    """
    try:
        with torch.device("meta"):
            cls = model_class(config)
            build = getattr(cls, "_from_config", None) or partial(cls.from_config, trust_remote_code=False)
            module = build(config)
    except Exception as error:
        raise BadInput(
            "config.json does not describe a model that transformers can build "
            f"({type(error).__name__}: {first_line(error)})"
        ) from error
    return count_module_parameters(module)


def count_module_parameters(module: Any) -> ParameterCounts:
    """Count the parameters of a module of transformers.

    S leaves out the token embedding, learned position embeddings, the output head and adapters of peft, so that a model
    has the same S before and after its adapter is merged. Adapters that are not in use are not counted at all. For a
    multimodal model, S counts its text part only. Raises BadInput if the module has no output embeddings.
    """
    outputs = [part.get_output_embeddings() for part in module.modules() if hasattr(part, "get_output_embeddings")]
    head = next((output for output in outputs if output is not None), None)
    if head is None:
        raise BadInput(f"{type(module).__name__} has no output embeddings, so it cannot predict tokens")
    embeddings = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    embedding_sizes = _parameter_sizes(head, *embeddings)
    text_sizes = _parameter_sizes(head, *_text_parts(module))
    adapters, unused = _adapter_parameters(module)
    text_sizes = {parameter: size for parameter, size in text_sizes.items() if parameter not in unused}
    total = sum(size for parameter, size in _parameter_sizes(module).items() if parameter not in unused)
    not_counted = {*embedding_sizes, *adapters}
    return ParameterCounts(
        non_embedding=sum(size for parameter, size in text_sizes.items() if parameter not in not_counted),
        total=total,
        head=next(head.parameters()).numel(),
        non_text=total - sum(text_sizes.values()),
    )


def _parameter_sizes(*modules: nn.Module) -> dict[int, int]:
    """Return the number of elements of each parameter by its Python id. A tied parameter appears once."""
    return {id(parameter): parameter.numel() for module in modules for parameter in module.parameters()}


def _adapter_parameters(module: nn.Module) -> tuple[set[int], set[int]]:
    """Return the Python ids of the parameters of peft's adapters, and of all parameters that adapters leave unused."""
    adapters: set[int] = set()
    unused: set[int] = set()
    part: Any
    for part in module.modules():
        holders = [getattr(part, name, None) for name in getattr(part, "adapter_layer_names", ())]
        is_copy = hasattr(part, "modules_to_save") and hasattr(part, "original_module")  # of a module trained in full
        if not is_copy and not holders:
            continue
        in_use: set[str] = set()
        if not part.disable_adapters:
            in_use = {*part.active_adapters} - {*getattr(part, "merged_adapters", ())}
        for holder in [part.modules_to_save] if is_copy else holders:
            for name, item in getattr(holder, "items", dict)():
                parameters = {*map(id, item.parameters() if isinstance(item, nn.Module) else [item])}
                if not is_copy:
                    adapters |= parameters
                if name not in in_use:
                    unused |= parameters
        if is_copy and in_use & {*part.modules_to_save}:
            unused |= {*map(id, part.original_module.parameters())}
    return adapters, unused


def _text_parts(module: Any) -> list[Any]:
    """Return the modules of the text decoder. For a text model, return the whole module."""
    text_class = type(text_config(module.config))
    if text_class is type(module.config):
        return [module]
    return [part for part in module.modules() if type(getattr(part, "config", None)) is text_class] or [module]
