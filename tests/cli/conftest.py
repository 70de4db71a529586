"""A store of four measurements, made once by the Python API."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbptrack.config.paths import embedded
from tests.conftest import RunCommand
from tests.tiny_models import TEXT

TEXTS = [TEXT[300 * i : 300 * (i + 1)] for i in range(24)]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store: nano-6k and nano-15k on `code` (24 documents) and `few` (3)."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import rbptrack

    folder = tmp_path_factory.mktemp("store")
    tokenizer = AutoTokenizer.from_pretrained(embedded("tokenizer"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for size in ("6k", "15k"):
            model = AutoModelForCausalLM.from_pretrained(embedded(f"models/{size}"), dtype=torch.float32)
            for name, texts in (("code", TEXTS), ("few", TEXTS[:3])):
                measurement = rbptrack.measure(
                    model, tokenizer, texts, family="nano", size=size, dataset=name, seq_len=64, k=[1, 10, 100]
                )
                measurement.log(sweep="first" if name == "code" else "")
    return folder


@pytest.fixture
def on_store(store: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """`run_command` in the folder of that store."""
    monkeypatch.chdir(store)
    return run_command
