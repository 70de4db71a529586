"""Texts, a model and a measurement for tests of the Python API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import rbptrack
from rbptrack.api import LoggableMeasurement
from rbptrack.config.paths import embedded

TEXTS = [
    "import os\n\n\ndef walk(path):\n    return os.listdir(path)\n" * 3,
    "The function returns a list of names. " * 5,
]

Nano = tuple[Any, Any]


@pytest.fixture(scope="module")
def nano() -> Nano:
    """Return the built-in model nano-6k and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(embedded("models/6k"), dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(embedded("tokenizer"))


@pytest.fixture(scope="module")
def measurement(nano: Nano) -> LoggableMeasurement:
    """Measure nano-6k, in training mode, on the first 32 tokens of each of the two TEXTS."""
    model, tokenizer = nano
    model.train()
    measurement = rbptrack.measure(model, tokenizer, TEXTS, seq_len=32, sequence="truncate")
    assert model.training
    model.eval()
    return measurement


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, and return its path."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
