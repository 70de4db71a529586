"""The loop against a brute-force reading of the definitions, on the embedded models."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.config.schema import DatasetConfig, EngineConfig, ModelConfig
from rbptrack.corpus.documents import Document, load_documents
from rbptrack.corpus.sequences import Corpus, build_corpus
from rbptrack.engine.measure import measure
from rbptrack.engine.parts import saved_tokens
from rbptrack.models.architecture import check_fit, load_config, load_tokenizer
from rbptrack.models.checkpoint import check_folder
from rbptrack.models.loading import load_model
from rbptrack.ranks import RankTable
from rbptrack.sources.pin import Source, of_dataset, resolve
from tests.conftest import EMBEDDED

SIZES = ["6k", "15k", "38k", "115k", "311k", "760k", "2m"]
DATASET = DatasetConfig(
    name="stdlib",
    path=str(EMBEDDED / "datasets/stdlib"),
    split="test",
    id_field="id",
    documents=3,
    seq_len=256,
    context=32,
)
ENGINE = EngineConfig()


def source(size: str) -> Source:
    return at(EMBEDDED / "models" / size)


def at(folder: Path) -> Source:
    return resolve("model", repo="", path=str(folder), revision="main")


def config(size: str) -> ModelConfig:
    return ModelConfig(family="nano", size=size, path=str(EMBEDDED / "models" / size))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    documents = load_documents(DATASET, of_dataset(DATASET))
    return build_corpus(documents, load_tokenizer(source("6k")), DATASET)


@pytest.mark.parametrize("size", SIZES)
def test_ranks_equal_a_plain_reading_of_the_definition(size: str, corpus: Corpus, tmp_path: Path) -> None:
    result = measure(load_model(config(size), source(size)), corpus, ks=(1, 10), engine=ENGINE, folder=tmp_path)
    table = result.ranks
    plain = AutoModelForCausalLM.from_pretrained(source(size).location, dtype=torch.float32)
    nats, row, wrong = 0.0, 0, 0
    with torch.inference_mode():
        for start, stop, first in zip(corpus.start, corpus.stop, corpus.first, strict=True):
            ids = torch.from_numpy(corpus.token[start:stop]).long()
            logits = plain(ids[None]).logits[0].double()
            before = logits[int(first) - int(start) - 1 : int(stop) - int(start) - 1]  # (scored, vocabulary)
            target = ids[int(first) - int(start) :, None]  # (scored, 1)
            rank = (before >= before.gather(1, target)).sum(1)
            wrong += int((rank.numpy() != table.rank[row : row + len(rank)]).sum())
            nats -= float(torch.log_softmax(before, 1).gather(1, target).sum())
            row += len(rank)
    assert row == len(table) == result.num_tokens
    # The plain reading multiplies other shapes, so that float32 rounds otherwise: a few ranks may swap neighbours.
    assert wrong <= row * 2e-3
    assert result.ce == pytest.approx(nats / row, abs=1e-6)
    assert result.rbp(1) == table.rbp(1)
    assert np.array_equal(table.column("token"), corpus.token[corpus.targets(0, len(corpus.start))])


@pytest.mark.parametrize("size", SIZES[::3])
def test_the_numbers_do_not_depend_on_the_batch(size: str, corpus: Corpus, tmp_path: Path) -> None:
    model = load_model(config(size), source(size))
    engines = [
        EngineConfig(batch_tokens=b, chunk_tokens=c, part_tokens=p)
        for b, c, p in ((1, 512, 131072), (2048, 64, 3000), (16384, 512, 131072))
    ]
    tables = [measure(model, corpus, ks=(1,), engine=e, folder=tmp_path / str(i)).ranks for i, e in enumerate(engines)]
    for other in tables[1:]:
        moved = other.rank != tables[0].rank
        assert moved.mean() <= 2e-3
        assert np.abs(other.rank - tables[0].rank)[moved].max(initial=0) <= 3
        np.testing.assert_allclose(other.column("logprob"), tables[0].column("logprob"), atol=2e-4)
        assert other.ce == pytest.approx(tables[0].ce, abs=1e-6)


def test_an_interrupted_measurement_continues_to_the_same_table(corpus: Corpus, tmp_path: Path) -> None:
    model = load_model(config("15k"), source("15k"))
    engine = EngineConfig(part_tokens=500, batch_tokens=512, part_seconds=1e-6)
    whole = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path / "whole")

    def stop(tokens: int) -> None:
        if len(list((tmp_path / "cut").glob("part-*.parquet"))) >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path / "cut", progress=stop)
    again = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path / "cut")
    assert 0 < again.fresh_tokens < again.num_tokens == whole.num_tokens
    assert again.path.read_bytes() == whole.path.read_bytes()


def test_an_interrupt_saves_every_finished_batch(corpus: Corpus, tmp_path: Path) -> None:
    """Without a part that was due: all that was reported as done is there, and the rest gives the same file."""
    model = load_model(config("15k"), source("15k"))
    engine = EngineConfig(batch_tokens=512)
    whole = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path / "whole")
    done: list[int] = []

    def stop(tokens: int) -> None:
        done.append(tokens)
        if sum(done) > 3000:
            raise KeyboardInterrupt

    folder = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        measure(model, corpus, ks=(1,), engine=engine, folder=folder, progress=stop)
    assert saved_tokens(folder) == sum(done) > 3000
    again = measure(model, corpus, ks=(1,), engine=engine, folder=folder)
    assert again.fresh_tokens == whole.num_tokens - sum(done)
    assert again.path.read_bytes() == whole.path.read_bytes()


def test_blocks_are_joined_while_the_model_is_at_work(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was measured here is not read again."""
    model = load_model(config("15k"), source("15k"))
    engine = EngineConfig(part_tokens=500, batch_tokens=512)
    begun: list[bool] = []
    with monkeypatch.context() as patch:
        patch.setattr(RankTable, "read", lambda path: pytest.fail(f"{path} is read"))
        result = measure(
            model,
            corpus,
            ks=(1,),
            engine=engine,
            folder=tmp_path,
            progress=lambda tokens: begun.append((tmp_path / "ranks.parquet.tmp").exists()),
        )
    assert begun[-1]
    assert len(result.ranks) == corpus.num_targets


def test_parts_are_saved_as_time_passes_and_a_damaged_one_is_measured_again(
    corpus: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # MLflow's migrations, in another test of this process, switch off every logger that exists.
    monkeypatch.setattr(logging.getLogger("rbptrack.engine.parts"), "disabled", False)
    model = load_model(config("15k"), source("15k"))
    engine = EngineConfig(batch_tokens=1024, part_seconds=0.0)
    seen: list[int] = []
    one = measure(model, corpus, ks=(1,), engine=replace(engine, part_seconds=1e9), folder=tmp_path / "one")
    each = measure(
        model, corpus, ks=(1,), engine=engine, folder=tmp_path / "each", on_part=lambda part: seen.append(len(part))
    )
    parts = sorted((tmp_path / "each").glob("part-*.parquet"))
    assert len(parts) == len(seen) > 5 > len(list((tmp_path / "one").glob("part-*.parquet"))) == 1
    assert sum(seen) == each.num_tokens
    assert each.path.read_bytes() == one.path.read_bytes()
    each.path.unlink()
    rows = pq.read_metadata(parts[2]).num_rows
    flipped = bytearray(parts[2].read_bytes())
    flipped[len(flipped) // 2] ^= 1
    parts[2].write_bytes(flipped)
    again = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path / "each")
    assert again.fresh_tokens == rows
    assert f"{parts[2]} is damaged: it is measured again" in caplog.text
    assert again.path.read_bytes() == one.path.read_bytes()


def test_peak_memory_is_that_of_the_cell(corpus: Corpus, tmp_path: Path) -> None:
    """What the process held before, and gave back, does not count."""
    model = load_model(config("6k"), source("6k"))
    before = np.ones(400_000_000, dtype=np.int8)
    high = psutil.Process().memory_info().rss
    del before
    small = measure(model, corpus.first_tokens(2000), ks=(1,), engine=ENGINE, folder=tmp_path / "a")
    assert 0 < small.peak_memory_bytes < high - 200_000_000


def test_nan_names_document_and_position(corpus: Corpus, tmp_path: Path) -> None:
    folder = broken(tmp_path, "nan")
    weights = load_file(folder / "model.safetensors")
    embedding = next(k for k in weights if "embed_in" in k)
    token = int(corpus.token[70])
    weights[embedding][token] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    place = at(folder)
    model = load_model(replace(config("6k"), path=str(folder)), place)
    with pytest.raises(MeasurementError, match=r"at document .+, position \d+"):
        measure(model, corpus, ks=(1,), engine=ENGINE, folder=tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.parquet*"))


def broken(tmp_path: Path, name: str) -> Path:
    return Path(shutil.copytree(EMBEDDED / "models/6k", tmp_path / name))


@pytest.mark.parametrize(
    ("missing", "what"), [("config.json", "config"), ("model.safetensors", "weights"), ("tokenizer.json", "tokenizer")]
)
def test_a_model_folder_that_lacks_something(missing: str, what: str, tmp_path: Path) -> None:
    folder = broken(tmp_path, "model")
    (folder / missing).unlink()
    with pytest.raises(BadInput, match=f"has no {what}"):
        check_folder(ModelConfig(path=str(folder)))


def test_tokenizer_larger_than_the_model(tmp_path: Path) -> None:
    folder = broken(tmp_path, "model")
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(text | {"vocab_size": 4000}))
    place = at(folder)
    with pytest.raises(BadInput, match="tokenizer has 4096 entries, the model only 4000 rows"):
        check_fit("toy", load_config(place), load_tokenizer(place), 128)


def test_sequence_longer_than_the_model(tmp_path: Path) -> None:
    place = source("6k")
    with pytest.raises(BadInput, match=r"dataset\.seq_len must be at most 512, the maximum of nano-6k; got 513"):
        check_fit("nano-6k", load_config(place), load_tokenizer(place), 513)


def test_document_text_is_what_was_scored() -> None:
    tokenizer = load_tokenizer(source("6k"))
    corpus = build_corpus([Document("a", ("def f(x):\n    return x + 1\n",))], tokenizer, DATASET)
    assert tokenizer.decode(corpus.token.tolist()) == "def f(x):\n    return x + 1\n"
