"""Check that transformers uses the settings in a model's config.json that change its numbers."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Iterable
from typing import Any

from rbptrack.base.errors import BadInput
from rbptrack.models.checkpoint import local_file
from rbptrack.sources.model_files import read_json_object
from rbptrack.sources.pin import Pinned

LOGIT_SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")
"""Settings of several architectures that multiply or divide logits."""

LOGIT_SOFTCAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
"""Settings of several architectures that limit logits."""

_FACTORS = (
    # the part of each head that is rotated with the position
    *("partial_rotary_factor", "rotary_pct"),
    # factors of embeddings, of scores of attention, of each layer's contribution and of logits
    *("embedding_multiplier", "scale_emb", "attention_multiplier", "residual_multiplier", "scale_depth"),
    *LOGIT_SCALES,
)
"""Settings of several architectures that have no effect if they are 1."""
_EFFECTS = (
    *_FACTORS,
    # positions: the number of values that are rotated, their base, how they are paired, layers without rotation
    *("rotary_dim", "rotary_emb_base", "rope_local_base_freq", "use_mrope", "no_rope_layers", "alibi"),
    *("rope_interleave", "rope_interleaved", "rotary_interleaved"),
    # which tokens a token attends to, and how scores of attention are scaled, limited or normalised
    *("sliding_window", "sliding_window_pattern", "softmax_scale", "query_pre_attn_scalar"),
    *("attn_logit_softcapping", "attention_logit_cap", "clip_qkv", "qk_ln"),
    # embeddings that are scaled, and logits that are limited
    *("scale_embedding", *LOGIT_SOFTCAPS),
)
"""Settings of several architectures. A class without code for one of them would leave it out without a word."""
_ROPE = ("rope_parameters", "rope_scaling")


def check_settings(pinned: Pinned, text: Any, classes: Iterable[type]) -> None:
    """Check that transformers uses the settings of a config.json that change a model's numbers.

    Args:
        pinned: the pinned model.
        text: the part of its transformers config that describes the text decoder.
        classes: the classes of transformers that build the model.

    Raises:
        BadInput: the code of the classes does not use a setting, or two settings contradict each other.

    """
    path = local_file(pinned, "config.json")
    if path is None:
        return
    settings = read_json_object(path)
    for part in ("text_config", "attn_config"):
        settings |= settings[part] if isinstance(settings.get(part), dict) else {}
    fault = _contradiction(settings, text) or _unused_setting(settings, text, classes)
    if fault:
        raise BadInput(
            f"{pinned.location}: {fault}. The measured numbers would be wrong: correct config.json, or use a version "
            "of transformers that supports it"
        )


def _contradiction(settings: dict[str, Any], text: Any) -> str:
    """Describe two settings that contradict each other, of which transformers would use one. Empty if there are none.

    Rotary positions are compared with the settings that transformers has derived, because the names of the settings
    have changed, and some architectures have their own.
    """
    other = text.attribute_map.get("num_attention_heads")  # tensors do not show how many heads they hold
    names = [name for name in ("num_attention_heads", other) if settings.get(name) is not None]
    if any(settings[name] != settings[names[0]] for name in names):
        return f"config.json sets {' and '.join(f'{name} = {settings[name]}' for name in names)}"
    stated = [part for key in _ROPE for part in rope_parts(settings.get(key))]
    used = rope_parts(getattr(text, "rope_parameters", None))
    if settings.get(_ROPE[0]) and settings.get(_ROPE[1]) and len({_rope_type(part) for part in stated}) > 1:
        return f"config.json has both {' and '.join(_ROPE)}, with different types"
    if any(_rope_type(part) == "default" and part.get("factor") not in (None, 1) for part in used):
        return (
            "config.json gives a factor of rotary positions (rope_parameters), but the type 'default' does not use it"
        )
    top = {name: settings.get(name) for name in ("rope_theta", "partial_rotary_factor")}
    for name, value in (item for part in (top, *stated) for item in part.items()):
        values = [part[name] for part in used if name in part]
        if name == "rope_theta" and isinstance(value, int | float) and not 1 < value < math.inf:
            return f"config.json sets rope_theta = {value}, but it must be a number above 1"
        if isinstance(value, int | float) and values and value not in values:
            return f"config.json sets {name} = {value} for rotary positions, but transformers uses {values[0]}"
    return ""


def rope_parts(rules: Any) -> list[dict[str, Any]]:
    """Return the settings of rotary positions, which may stand in one part for each type of layer."""
    if not isinstance(rules, dict):
        return []
    return [part for part in rules.values() if isinstance(part, dict)] or [rules]


def _rope_type(part: dict[str, Any]) -> str:
    return str(part.get("rope_type", part.get("type", "default")))


def _unused_setting(settings: dict[str, Any], text: Any, classes: Iterable[type]) -> str:
    """Describe a setting whose name does not appear in the code of a model. Empty if there is none."""
    code = "".join(inspect.getsource(sys.modules[cls.__module__]) for cls in classes)
    config_code = inspect.getsource(sys.modules[type(text).__module__])
    names = [*_EFFECTS, *([] if hasattr(text, "rope_parameters") else _ROPE)]
    for name in names:
        value = settings.get(name)
        if not value or (name in _FACTORS and value == 1):
            continue
        if name == "sliding_window" and not _asks_for_window(settings):
            continue
        in_config = rf"(self\.|['\"]){name}\b"  # a docstring alone does not use it
        is_used = re.search(rf"\b{name}\b", code) or re.search(in_config, config_code)
        if not is_used or (name == "sliding_window" and not _has_window(text)):
            return f"config.json sets {name} = {str(value)[:60]}, but transformers' {text.model_type} does not use it"
    return ""


def _asks_for_window(settings: dict[str, Any]) -> bool:
    """Return whether a config has a sliding window, and no other setting that says which layers have it, or none."""
    window, length = settings["sliding_window"], settings.get("max_position_embeddings")
    is_long = isinstance(window, int) and isinstance(length, int) and window >= length
    has_rule = settings.get("use_sliding_window") is False or settings.keys() & {"max_window_layers", "layer_types"}
    return not is_long and not has_rule


def _has_window(text: Any) -> bool:
    """Return whether a layer has a sliding window. Qwen's has none unless the config says which layers have it."""
    types = getattr(text, "layer_types", None) or ["sliding_attention"]
    return text.sliding_window is not None and any(kind != "full_attention" for kind in types)
