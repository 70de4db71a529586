"""The loop against the definition, its blocks, interrupts, and numbers that do not depend on any of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine import blocks, measure
from rbptrack.ranks import RankTable
from rbptrack.scoring import Head, Scores, scores_by_definition

measuring = sys.modules["rbptrack.engine.measure"]  # the function hides the module
ENGINE = EngineConfig(batch_tokens=200, chunk_tokens=16, threads=1)


def definition(model: Any, corpus: Corpus) -> tuple[np.ndarray, Scores]:
    """Indices of the targets, and the scores of full logits, one sequence at a time."""
    index = corpus.targets(0, len(corpus.start))
    logits = []
    for start, stop in zip(corpus.start, corpus.stop, strict=True):
        states = model.backbone(torch.from_numpy(corpus.token[None, start:stop].astype(np.int64)))[0]
        logits.append(torch.cat([torch.zeros(1, model.vocab_size), model.head.logits(states)[:-1]]))
    targets = torch.from_numpy(corpus.token[index].astype(np.int64))
    return index, scores_by_definition(torch.cat(logits)[index], targets)


@pytest.fixture(autouse=True)
def _short_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SECTION", 400)  # tokens: four sections


def test_every_token_is_ranked_by_the_definition(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    seen: list[int] = []
    found = measure(model, corpus, ks=(1, 10), engine=ENGINE, folder=tmp_path, progress=seen.append)
    index, want = definition(model, corpus)
    table = found.ranks
    for name in ("document", "position", "field", "token"):
        assert np.array_equal(table.column(name), getattr(corpus, name)[index])
    for name in ("greater", "ties", "top"):
        assert np.array_equal(table.column(name), want.columns[name].numpy())
    for name in ("logprob", "entropy", "top_logprob"):
        np.testing.assert_allclose(table.column(name), want.columns[name].numpy(), atol=1e-5)
    assert sum(seen) == found.num_tokens == found.fresh_tokens == corpus.num_targets == len(index)
    assert found.ce == pytest.approx(-float(want.logprob.double().mean()), abs=1e-6)
    assert found.rbp(10) == table.rbp(10)
    assert found.counts.hits.sum(0).tolist() == [(table.rank <= k).sum() for k in (1, 10)]
    assert found.split is not None
    assert sum(found.split) == pytest.approx(found.ce, abs=1e-9)
    assert found.num_bytes == len(index)
    assert found.peak_memory_bytes > 0
    assert pq.read_metadata(found.path).num_row_groups > 2


@pytest.mark.parametrize("options", [(1, 512, 1), (64, 16, 1), (1000, 100, 3), (96, 1, 2)])
def test_the_numbers_do_not_depend_on_sizes_and_threads(
    options: tuple[int, int, int], model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    batch, chunk, threads = options
    engine = EngineConfig(batch_tokens=batch, chunk_tokens=chunk, threads=threads)
    before = torch.get_num_threads()
    found = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path)
    assert torch.get_num_threads() == before
    _, want = definition(model, corpus)
    assert np.array_equal(found.ranks.column("greater"), want.greater.numpy())
    np.testing.assert_allclose(found.ranks.column("logprob"), want.logprob.numpy(), atol=1e-5)


def test_a_reference_adds_its_columns(model: Any, compared_model: Any, corpus: Corpus, tmp_path: Path) -> None:
    found = measure(compared_model, corpus, ks=(1,), engine=ENGINE, folder=tmp_path / "both")
    plain = measure(model, corpus, ks=(1,), engine=ENGINE, folder=tmp_path / "alone")
    assert np.array_equal(found.ranks.column("greater"), plain.ranks.column("greater"))
    assert found.compared is not None
    assert found.compared.kl == pytest.approx(float(found.ranks.column("kl").astype(float).mean()))
    assert 0 < found.compared.acceptance < 1
    assert 0 < found.compared.padding_mass < 1
    assert plain.compared is None
    without = replace(compared_model, head=compared_model.head.without([0]))  # the reference has it
    with pytest.raises(MeasurementError, match="the model gives probability 0"):
        measure(without, replace(corpus, token=np.maximum(corpus.token, 1)), ks=(1,), engine=ENGINE, folder=tmp_path)


class Stops:
    """Raises at the first progress after so many tokens."""

    def __init__(self, after: int, error: BaseException) -> None:
        self.left = after
        self.error = error
        self.done = 0

    def __call__(self, tokens: int) -> None:
        self.done += tokens
        if self.done > self.left:
            raise self.error


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interrupt_saves_finished_work_and_the_rest_gives_the_same_file(
    error: BaseException, threads: int, model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    engine = replace(ENGINE, threads=threads)
    whole = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path / "whole")
    stops = Stops(500, error)
    with pytest.raises(type(error)):
        measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path / "cut", progress=stops)
    seen: list[int] = []
    again = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path / "cut", progress=seen.append)
    assert seen[0] == stops.done
    assert again.fresh_tokens == whole.num_tokens - stops.done
    assert sum(seen) == whole.num_tokens
    assert again.path.read_bytes() == whole.path.read_bytes()


def test_a_kill_loses_one_block_and_a_damaged_one_is_measured_again(
    model: Any, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measure(model, corpus, ks=(1,), engine=ENGINE, folder=tmp_path / "whole")
    assert len(list((tmp_path / "whole/blocks").glob("*.parquet"))) == 1
    monkeypatch.setattr(measuring, "BLOCK_SECONDS", 0.0)
    with pytest.raises(ZeroDivisionError):  # nothing is saved at the end, as when the process is killed
        measure(
            model, corpus, ks=(1,), engine=ENGINE, folder=tmp_path / "cut", progress=Stops(500, ZeroDivisionError())
        )
    saved = sorted((tmp_path / "cut/blocks").glob("*.parquet"))
    rows = [pq.read_metadata(path).num_rows for path in saved]
    assert len(saved) > 2
    assert sum(rows) > 500
    saved[1].write_bytes(saved[1].read_bytes()[:-100])
    saved[2].write_bytes(b"")
    again = measure(model, corpus, ks=(1,), engine=ENGINE, folder=tmp_path / "cut")
    assert again.fresh_tokens == whole.num_tokens - sum(rows) + rows[1] + rows[2]
    assert again.path.read_bytes() == whole.path.read_bytes()


def test_finished_work_is_not_measured_again(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    whole = measure(model, corpus, ks=(1,), engine=ENGINE, folder=tmp_path)
    before = whole.path.read_bytes()
    other_sizes = EngineConfig(batch_tokens=77, chunk_tokens=50, threads=1)
    again = measure(model, corpus, ks=(1, 2), engine=other_sizes, folder=tmp_path)
    assert again.fresh_tokens == 0
    assert again.path.read_bytes() == before
    assert again.ce == whole.ce


def test_a_folder_of_another_corpus_is_refused(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    measure(model, corpus, ks=(1,), engine=ENGINE, folder=tmp_path)
    other = replace(corpus, token=np.roll(corpus.token, 1))
    with pytest.raises(MeasurementError):
        measure(model, other, ks=(1,), engine=ENGINE, folder=tmp_path)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_logits_are_refused_with_document_and_position(
    bad: float, model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    index = corpus.targets(0, len(corpus.start))[333]

    def backbone(tokens: Tensor) -> Tensor:
        states = model.backbone(tokens)
        document = corpus.document[index]
        start = int(corpus.start[document])
        row = torch.from_numpy(corpus.token[start : corpus.stop[document]].astype(np.int64))
        for number, sequence in enumerate(tokens):
            if torch.equal(sequence[: len(row)], row):
                states[number, corpus.position[index] - 1, 3] = bad
        return states

    where = rf"document id-{corpus.document[index]}, position {corpus.position[index]}\b"
    with pytest.raises(MeasurementError, match=where):
        measure(replace(model, backbone=backbone), corpus, ks=(1,), engine=ENGINE, folder=tmp_path)
    assert not (tmp_path / "ranks.parquet").exists()


def test_a_model_that_cannot_read_the_texts_is_refused_first(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        measure(replace(model, longest=40), corpus, ks=(1,), engine=ENGINE, folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def cpu_fails() -> None:
    torch.empty(1 << 50)  # more than any address space: the allocator's own error


def cuda_fails() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 PiB")


def library_fails() -> None:
    np.empty(1 << 60, dtype=np.int8)


def cramped(model: Any, most: int, fail: Callable[[], None]) -> Any:
    """The model on a device that has no room for more than so many tokens."""

    def backbone(tokens: Tensor) -> Tensor:
        if tokens.numel() > most:
            fail()
        return model.backbone(tokens)

    return replace(model, backbone=backbone)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("fail", [cpu_fails, cuda_fails, library_fails])
def test_running_out_of_memory_halves_and_goes_on(
    fail: Callable[[], None], threads: int, model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    engine = EngineConfig(batch_tokens=400, chunk_tokens=64, threads=threads)
    seen: list[int] = []
    found = measure(cramped(model, 100, fail), corpus, ks=(1,), engine=engine, folder=tmp_path, progress=seen.append)
    assert found.chunk_tokens < 64
    assert found.batch_tokens <= 100
    assert len(found.notes) >= 2  # one of the chunk, one of the batch; how many more hangs on the threads' order
    assert sum(seen) == found.num_tokens  # no batch was counted twice
    _, want = definition(model, corpus)
    assert np.array_equal(found.ranks.column("greater"), want.greater.numpy())


def test_one_sequence_that_does_not_fit_says_what_to_do(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(
        MeasurementError, match=r"one sequence of \d+ tokens at a time; give a smaller dataset\.seq_len"
    ):
        measure(cramped(model, 10, cpu_fails), corpus, ks=(1,), engine=ENGINE, folder=tmp_path)


def test_other_errors_are_not_taken_for_a_lack_of_memory(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    def fail() -> None:
        torch.randn(2, 3) @ torch.randn(2, 3)

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        measure(cramped(model, 10, fail), corpus, ks=(1,), engine=ENGINE, folder=tmp_path)


def test_strict_ranks_are_those_that_metrics_count(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    tied = replace(model, head=Head(model.head.weight.round()), backbone=lambda tokens: model.backbone(tokens).round())
    paper = measure(tied, corpus, ks=(1,), engine=ENGINE, folder=tmp_path / "paper")
    strict = measure(tied, corpus, ks=(1,), engine=ENGINE, folder=tmp_path / "strict", strict=True)
    assert paper.tie_rate > 0
    assert strict.rbp(1) > paper.rbp(1)
    assert RankTable.read(strict.path).strict
