"""The embedded family and corpora are what they claim to be."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from transformers import AutoConfig

from rbptrack.config.compose import Composer
from rbptrack.config.patterns import size_key
from rbptrack.corpus.documents import load_documents
from rbptrack.corpus.sequences import build_corpus
from rbptrack.models.architecture import count_parameters, load_tokenizer
from rbptrack.sources.pin import of_dataset, of_model
from tests.conftest import EMBEDDED, ROOT

SIZES = sorted((p.name for p in (EMBEDDED / "models").iterdir()), key=size_key)
SHINGLE = 6  # consecutive non-blank lines


def s_of(size: str) -> int:
    return count_parameters(AutoConfig.from_pretrained(EMBEDDED / "models" / size)).non_embedding


def test_at_least_seven_sizes_even_in_ln_s() -> None:
    s = np.array([s_of(size) for size in SIZES])
    assert len(s) >= 7
    assert 4e3 < s[0] < 7e3
    assert s[-1] >= 2e6
    ratios = np.diff(np.log(s))
    assert ratios.max() / ratios.min() < 1.3
    configs = Composer("config", []).options("model")
    assert sorted((c for c in configs if c.startswith("nano/")), key=size_key) == [f"nano/{n}" for n in SIZES]


def test_the_script_makes_these_shapes() -> None:
    spec = importlib.util.spec_from_file_location("train_nano", ROOT / "tools/train_nano.py")
    assert spec
    assert spec.loader
    script = sys.modules["train_nano"] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(script)
    assert list(script.SIZES) == SIZES
    for size in SIZES:
        assert script.parameters(size) == s_of(size)
        built = script.build_model(size).config.to_dict()
        frozen = AutoConfig.from_pretrained(EMBEDDED / "models" / size).to_dict()
        ignored = {"dtype", "architectures", "_name_or_path", "transformers_version"}
        assert {k: v for k, v in built.items() if k not in ignored} == {
            k: v for k, v in frozen.items() if k not in ignored
        }


def test_one_architecture_and_one_tokenizer() -> None:
    assert (
        len({hashlib.sha256((EMBEDDED / "models" / s / "tokenizer.json").read_bytes()).hexdigest() for s in SIZES}) == 1
    )
    for size in SIZES:
        config = json.loads((EMBEDDED / "models" / size / "config.json").read_text())
        assert (config["model_type"], config["vocab_size"]) == ("gpt_neox", 4096)
        assert config["max_position_embeddings"] >= 256


def test_it_fits_in_24_mb_with_its_notice() -> None:
    """Models and corpora in 16 MB, seeds and checkpoints in 8."""
    files = [p for p in EMBEDDED.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) <= 24e6
    assert {p.suffix for p in files} <= {".safetensors", ".json", ".parquet", ".txt", ""}
    assert "PSF License" in (EMBEDDED / "NOTICE").read_text()
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in (EMBEDDED / "PSF-LICENSE.txt").read_text()


@pytest.mark.parametrize(("name", "tokens"), [("stdlib", 5e5), ("pydocs", 1.5e5)])
def test_the_corpora_are_large_enough(name: str, tokens: float) -> None:
    config = Composer("config", []).compose_typed([f"dataset={name}", "model=nano/6k"])
    documents = load_documents(config.dataset, of_dataset(config.dataset))
    tokenizer = load_tokenizer(of_model(config.model))
    corpus = build_corpus(documents, tokenizer, config.dataset)
    assert corpus.num_targets >= tokens
    lengths = np.bincount(corpus.document)
    assert lengths.max() / lengths.sum() < 0.05  # no document dominates the bootstrap


def shingles(text: str) -> set[int]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return {hash(tuple(lines[i : i + SHINGLE])) for i in range(max(1, len(lines) - SHINGLE + 1))}


def test_no_held_out_document_stands_in_the_training_set() -> None:
    trained = set((EMBEDDED / "train_files.txt").read_text().split())
    held = {
        f"{name}:{row['id']}": row["text"]
        for name in ("stdlib", "pydocs")
        for row in pq.read_table(EMBEDDED / "datasets" / name / "test.parquet").to_pylist()
    }
    assert len(trained) > 1000
    assert not {key.split(":")[1] for key in held} & trained
    root = Path(sysconfig.get_paths()["stdlib"])
    present = [root / name for name in trained if (root / name).exists()]
    if len(present) < 500:
        pytest.skip(
            "this Python lacks most of its standard library's files (its test package): nothing to compare with"
        )
    seen: set[int] = set()
    for path in present:
        seen |= shingles(path.read_text(encoding="utf-8", errors="replace"))
    shares = {}
    for key, text in held.items():
        own = shingles(text)
        shares[key] = len(own & seen) / len(own)
    worst = max(shares, key=shares.__getitem__)
    assert shares[worst] <= 0.12, (worst, shares[worst])
    assert np.mean(list(shares.values())) < 0.01
