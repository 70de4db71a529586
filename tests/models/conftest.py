"""Fixtures that make small models in memory, and load models from a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rbptrack.models.causal import CausalModel
from rbptrack.models.loading import load_model
from rbptrack.sources.pin import pin_model
from tests.tiny_models import HEAD_ROWS, model_config

Load = Callable[..., CausalModel]
ModelOf = Callable[..., Any]

SHAPE: dict[str, Any] = {
    "vocab_size": HEAD_ROWS,
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
    """Return the values of the config of a small Llama."""
    return dict(SHAPE)


@pytest.fixture
def model_of(shape: dict[str, Any]) -> ModelOf:
    """Make a model with random weights.

    The arguments are the model type of transformers, such as `llama`, and values of its config that differ from
    `shape`. The value None removes a key from the config.
    """

    def make(kind: str, **changes: Any) -> Any:
        torch.manual_seed(0)
        values = {key: value for key, value in (shape | changes).items() if value is not None}
        config = transformers.CONFIG_MAPPING[kind](**values)
        causal: Any = transformers.AutoModelForCausalLM
        return causal.from_config(config, dtype=torch.float32)

    return make


@pytest.fixture
def load() -> Load:
    """Load the model in a folder as the program does. Further arguments are values of its ModelConfig."""

    def load_folder(folder: Path, *, num_candidates: int | None = None, **changes: Any) -> CausalModel:
        config = model_config(folder, **{"tokenizer": "ORG/NAME"} | changes)  # weights are loaded without a tokenizer
        return load_model(config, pin_model(config), num_candidates=num_candidates)

    return load_folder
