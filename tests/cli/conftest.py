"""A store with four measurements, for the tests of commands that read a store."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from rbptrack.config.paths import embedded
from tests.conftest import RunCommand
from tests.tiny_models import TEXT

TEXTS = [TEXT[start : start + 300] for start in range(7200, 7200 + 24 * 900, 900)]
"""The documents of the dataset `code`: 24 texts of 300 characters. None is a near copy of another."""


@pytest.fixture(scope="session")
def store_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measure nano-6k and nano-15k on the datasets `code` (24 documents) and `few` (3). Returns the working folder."""
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
def run_in_store(store_folder: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Run a command line as `run_command` does, in the folder of the store with four measurements."""
    monkeypatch.chdir(store_folder)
    return run_command


@pytest.fixture
def opened_addresses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the program opens in the browser. No browser is started."""
    addresses: list[str] = []

    def open_address(address: str) -> bool:
        addresses.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", open_address)
    return addresses
