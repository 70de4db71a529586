"""Load a causal language model's weights from the Hub or from a folder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from rbptrack.base.errors import BadInput, RbptrackError, first_line
from rbptrack.config.schema import ModelConfig
from rbptrack.models.architecture import load_config, model_class
from rbptrack.models.causal import CausalModel
from rbptrack.models.checkpoint import check_layers, check_loaded, check_stored_types, model_notes
from rbptrack.models.device import is_out_of_memory, placement, torch_device
from rbptrack.models.from_pretrained import call_from_pretrained, failure_reason
from rbptrack.models.gguf_file import check_gguf_size, check_gguf_tensors, gguf_path, gguf_type, read_gguf
from rbptrack.models.parameters import count_parameters
from rbptrack.models.precision import set_full_precision
from rbptrack.models.quantised import convert_quantised, quantisation_method
from rbptrack.models.splitting import split_model
from rbptrack.sources.manifest import reading
from rbptrack.sources.model_files import only_pickles_message
from rbptrack.sources.pin import Pinned


def load_model(
    config: ModelConfig, pinned: Pinned, *, num_candidates: int | None = None, excluded_ids: Sequence[int] = ()
) -> CausalModel:
    """Load a model, split it into backbone and head, and check that it can be measured.

    Only safetensors are read, unless the config allows pickles. The function also sets torch's precision of matrix
    products for this process.

    Args:
        config: the model's configuration.
        pinned: the pinned weights.
        num_candidates: the number of head rows, from the first, among which targets are ranked. None means all rows.
        excluded_ids: ids of rows among these that are not ranked.

    Raises:
        BadInput: the weights cannot be loaded, are incomplete or have changed since they were hashed, or the model's
            ranks would be wrong.

    """
    device, spread_options = placement(config)
    set_full_precision()
    with reading(pinned.files):
        module = _load_module(config, pinned, **spread_options)
        if not spread_options:
            if pinned.gguf or not quantisation_method(module.config):
                module.to(device)
            _copy_to_memory(module)
    model = split_model(module, config.name, num_candidates=num_candidates)
    head = model.head.exclude(excluded_ids) if excluded_ids else model.head
    quantisation = gguf_type(read_gguf(gguf_path(pinned))) if pinned.gguf else model.quantisation
    notes = (*model.notes, *model_notes(pinned, module))
    return replace(model, head=head, quantisation=quantisation, notes=notes)


def _copy_to_memory(module: Any) -> None:
    """Copy weights that are mapped from their file to memory, so that a change of the file does not change them.

    Weights on a GPU are copies already. Quantised weights are not plain tensors, and stay as they are.
    """
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device.type == "cpu" and type(tensor) in (torch.Tensor, torch.nn.Parameter):
            tensor.data = tensor.data.clone()


def _load_module(config: ModelConfig, pinned: Pinned, **options: Any) -> Any:
    """Load a module of transformers, and check that its weights are complete and of the expected types.

    `options` are further arguments of `from_pretrained`. Raises BadInput if the module cannot be loaded.
    """
    description = f"model {config.name} ({pinned.location})"
    model_config = load_config(pinned)
    dtype = getattr(torch, config.dtype.value)
    is_quantised = quantisation_method(model_config) != ""
    if pinned.gguf:
        from transformers import GgufConfig

        check_gguf_size(read_gguf(gguf_path(pinned)), count_parameters(model_config).total)
        options["quantization_config"] = GgufConfig(gguf_file=pinned.gguf, dequantize=True)
    elif is_quantised and not options:
        # Some quantised weights cannot be moved later, so they are loaded onto their device.
        options["device_map"] = {"": torch_device(config.device)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the checks below report what is wrong
            module, loading_info = call_from_pretrained(
                pinned,
                model_class(model_config).from_pretrained,
                config=model_config,
                dtype=dtype,
                attn_implementation=None if config.attention == "auto" else config.attention,
                use_safetensors=None if config.pickles else True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # `check_loaded` below names them, together with missing weights
                **options,
            )
    except RbptrackError:
        raise
    except Exception as error:  # the libraries raise exceptions of many types
        raise _loading_error(error, description, pinned, pickles=config.pickles) from error
    check_loaded(loading_info, description)
    check_layers(pinned, module, description)
    if pinned.gguf:
        check_gguf_tensors(read_gguf(gguf_path(pinned)), module)
    check_stored_types(pinned, module, description)
    if getattr(module, "_hf_peft_config_loaded", False):  # transformers adds an adapter if peft is installed
        raise BadInput(
            f"{description} has an adapter in addition to its weights (adapter_config.json), and peft has loaded both. "
            "Merge the adapter (merge_and_unload()) or move it to another folder"
        )
    if is_quantised:
        convert_quantised(module, dtype)
    return module


def _loading_error(error: Exception, description: str, pinned: Pinned, *, pickles: bool) -> BadInput:
    """Return an error that explains in one line why a model could not be loaded."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(map(is_out_of_memory, causes)):
        return BadInput(f"{description} does not fit into memory. Try model.dtype=bfloat16 or model.device_map=auto")
    if any(type(cause).__name__ == "SafetensorError" for cause in causes):
        return BadInput(
            f"the weights of {description} are damaged or cut short ({first_line(error)}): copy or download them again"
        )
    if any(type(cause).__name__ == "UnpicklingError" or "Weights only load" in str(cause) for cause in causes):
        return BadInput(f"the pickled weights of {description} hold other objects than weights, which are not loaded")
    if not pickles and isinstance(error, OSError) and "model.safetensors" in str(error):
        return BadInput(only_pickles_message(description))
    return BadInput(f"{description} cannot be loaded: {failure_reason(error, pinned)}")
