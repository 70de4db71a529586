"""Read the transformers config of a model: its class, its vocabulary and its limits."""

from __future__ import annotations

from typing import Any

from rbptrack.base.errors import BadInput
from rbptrack.models.config_file import check_settings, rope_parts
from rbptrack.models.from_pretrained import load_part
from rbptrack.models.gguf_config import MAX_LAYERS, gguf_config
from rbptrack.models.gguf_file import gguf_path, read_gguf
from rbptrack.models.quantised import check_quantisation
from rbptrack.sources.manifest import reading
from rbptrack.sources.pin import Pinned


def load_config(pinned: Pinned) -> Any:
    """Load the transformers config of a model.

    Raises:
        BadInput: the config is missing, the Hub refuses access to it, transformers does not have the architecture or
            the quantisation that the config names, the config asks for more than 10,000 layers, or a GGUF file has
            another architecture or key than those that rbptrack reads. Or settings of config.json that change the
            numbers contradict each other, or are not used.

    """
    from transformers import AutoConfig

    if pinned.gguf:
        with reading(pinned.files):
            config = gguf_config(read_gguf(gguf_path(pinned)))
    else:
        config = load_part("config", pinned, AutoConfig.from_pretrained)
        check_settings(pinned, text_config(config), _code_of(config))
    check_quantisation(pinned.location, config)
    layers = getattr(text_config(config), "num_hidden_layers", None)
    if isinstance(layers, int) and layers > MAX_LAYERS:  # building them would take hours
        raise BadInput(
            f"{pinned.location}: config.json asks for {layers:,} layers; at most {MAX_LAYERS:,} can be built"
        )
    return config


def text_config(config: Any) -> Any:
    """Return the part of a transformers config that describes the text decoder. For a text model, return all of it."""
    text_part = config.get_text_config(decoder=True)
    return config if type(text_part) is type(config) else text_part


def vocab_size(config: Any) -> int:
    """Return the number of entries of a model's vocabulary, from its transformers config."""
    return int(text_config(config).vocab_size)


def model_class(config: Any) -> Any:
    """Return the transformers class that builds the model of a config: a causal or a multimodal language model.

    If the config names the class from which the checkpoint was saved, and this class generates text, it is returned.
    Otherwise the function returns the auto class of transformers that supports the config.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    text_models = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING
    image_models = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    class_names = [*text_models._model_mapping.values(), *image_models._model_mapping.values()]
    for name in config.architectures or []:
        cls = getattr(transformers, name, None)
        if name in class_names and cls is not None and cls.config_class is type(config):
            return cls
    if type(config) not in text_models and type(config) in image_models:
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def max_sequence_length(config: Any) -> int | None:
    """Return the maximum length of a sequence in tokens. Return None if the config sets no limit.

    For a model with "longrope" positions, the limit is the sequence length of the original training. One longer
    sequence would change the position encoding, and so the ranks, of all sequences in its batch.
    """
    text = text_config(config)
    limits = [getattr(text, name, None) for name in ("max_position_embeddings", "n_positions", "max_seq_len")]
    for rules in rope_parts(getattr(text, "rope_parameters", None)):
        if rules.get("rope_type") == "longrope":
            limits.append(rules.get("original_max_position_embeddings") or text.original_max_position_embeddings)
    return min((int(limit) for limit in limits if limit and int(limit) > 0), default=None)


def _code_of(config: Any) -> list[type]:
    """Return the classes of transformers that build the model of a config and its text decoder."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    mappings: tuple[Any, ...] = (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)
    kinds = {type(config), type(text_config(config))}
    return [mapping[kind] for mapping in mappings for kind in kinds if kind in mapping]
