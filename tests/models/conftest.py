"""Small models: in memory by their kind, or on disk by the name of a family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rbptrack.config.schema import ModelConfig
from rbptrack.models.causal import CausalModel
from rbptrack.models.loading import load_model
from rbptrack.sources.pin import pin_model
from tests.tiny_models import ROWS

SHAPE: dict[str, Any] = {
    "vocab_size": ROWS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.fixture
def shape() -> dict[str, Any]:
    """Sizes of a small Llama."""
    return dict(SHAPE)


@pytest.fixture
def model_of(shape: dict[str, Any]) -> Callable[..., Any]:
    """A transformers model of a kind, such as `llama`, with other sizes where given; None leaves one out."""

    def made(kind: str, **changes: Any) -> Any:
        torch.manual_seed(0)
        values = {key: value for key, value in (shape | changes).items() if value is not None}
        config = transformers.CONFIG_MAPPING[kind](**values)
        causal: Any = transformers.AutoModelForCausalLM
        return causal.from_config(config, dtype=torch.float32)

    return made


@pytest.fixture
def load() -> Callable[..., CausalModel]:
    """Load the model in a folder as the program does."""

    def loaded(folder: Path, *, candidates: int | None = None, **changes: Any) -> CausalModel:
        config = replace(ModelConfig(family="toy", size="1k", path=str(folder)), **changes)
        return load_model(config, pin_model(config), candidates=candidates)

    return loaded
