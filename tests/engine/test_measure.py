"""Tests of `measure`: ranks by the definition, blocks on disk, interrupts, bad logits and lack of memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from rbptrack.base.errors import BadInput, FileAccessError, MeasurementError, RbptrackError
from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine import Engine, Ranked, Transformers, blocks, collector, measure
from rbptrack.engine.batches import Batch
from rbptrack.measurement.files import RANKS_FILE
from rbptrack.ranks import RankTable
from rbptrack.scoring import Head, Scores
from tests.conftest import block_reading
from tests.definition import scores_by_definition
from tests.engine.conftest import VOCABULARY

ENGINE = EngineConfig(batch_tokens=200, chunk_tokens=16, threads=1)


def measure_model(
    model: Any, corpus: Corpus, folder: Path, *, ks: Sequence[int] = (1,), config: EngineConfig = ENGINE, **options: Any
) -> Ranked:
    """Measure a corpus with a model by the engine `Transformers`."""
    return measure(Transformers(model, corpus, config), corpus, ks=ks, folder=folder, **options)


def scores_of_full_logits(model: Any, corpus: Corpus) -> tuple[np.ndarray, Scores]:
    """Compute the logits of all sequences, and score every target by the definition.

    Returns:
        The indices of the targets in the corpus, (targets,), and their scores.
    """
    index = corpus.targets(0, len(corpus.start))
    logits = []
    for start, stop in zip(corpus.start, corpus.stop, strict=True):
        states = model.backbone(torch.from_numpy(corpus.token[None, start:stop].astype(np.int64)))[0]
        # The logits at a token predict the next one. Nothing predicts the first token of a sequence.
        logits.append(torch.cat([torch.zeros(1, model.vocab_size), model.head.logits(states)[:-1]]))
    targets = torch.from_numpy(corpus.token[index].astype(np.int64))
    return index, scores_by_definition(torch.cat(logits)[index], targets)


@pytest.fixture(autouse=True)
def _short_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten sections to 400 tokens. The corpus then has four sections."""
    monkeypatch.setattr(blocks, "SECTION_TOKENS", 400)


def test_measure_writes_a_rank_table_by_the_definition(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    table = measure_model(model, corpus, tmp_path, ks=(1, 10)).ranks
    index, expected = scores_of_full_logits(model, corpus)
    for name in ("document", "position", "field", "token"):
        assert np.array_equal(table.column(name), getattr(corpus, name)[index])
    for name in ("greater", "ties", "top"):
        assert np.array_equal(table.column(name), expected[name].numpy())
    for name in ("logprob", "entropy", "top_logprob"):
        np.testing.assert_allclose(table.column(name), expected[name].numpy(), atol=1e-5)


def test_measure_returns_the_metrics_of_its_rank_table(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    measurement = measure_model(model, corpus, tmp_path, ks=(1, 10))
    index, expected = scores_of_full_logits(model, corpus)
    table = measurement.ranks
    assert measurement.sums.histogram.ce == pytest.approx(-float(expected["logprob"].double().mean()), abs=1e-6)
    assert measurement.sums.histogram.rbp(10) == table.rbp(10)
    assert measurement.sums.counts.hits.sum(0).tolist() == [(table.rank <= k).sum() for k in (1, 10)]
    assert measurement.sums.ce_parts is not None
    assert sum(measurement.sums.ce_parts) == pytest.approx(measurement.sums.histogram.ce, abs=1e-9)
    num_bytes = corpus.num_bytes[index].sum()
    assert measurement.num_bytes == num_bytes
    bits = -float(expected["logprob"].double().sum()) / np.log(2)
    assert measurement.results()["bits_per_byte"] == pytest.approx(bits / num_bytes, rel=1e-5)
    assert measurement.engine_results["peak_memory_bytes"] > 0


def test_measure_adds_the_ties_of_all_sections(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    tied = replace(
        model,
        head=Head(
            model.head.weight.roll(1, 0).where(torch.arange(model.vocab_size)[:, None] % 2 == 1, model.head.weight)
        ),
    )
    measurement = measure_model(tied, corpus, tmp_path)
    assert measurement.sums.means["tie_rate"] == 1


def test_measure_adds_the_parts_of_a_document_in_several_sections(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    lengths = np.array([len(corpus.token)])
    one_document = replace(corpus, document_lengths=lengths, document_ids=("whole",))
    measurement = measure_model(model, one_document, tmp_path, ks=(1, 10))
    assert measurement.sums.counts.tokens.tolist() == [corpus.num_targets]
    assert measurement.sums.counts.hits.tolist() == [[(measurement.ranks.rank <= k).sum() for k in (1, 10)]]


def test_measure_reports_every_scored_token_as_progress(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    progress: list[int] = []
    measurement = measure_model(model, corpus, tmp_path, ks=(1, 10), progress=progress.append)
    index = corpus.targets(0, len(corpus.start))
    assert (
        sum(progress)
        == measurement.sums.histogram.num_tokens
        == measurement.fresh_tokens
        == corpus.num_targets
        == len(index)
    )


def test_measure_writes_a_row_group_for_each_section(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    measurement = measure_model(model, corpus, tmp_path, ks=(1, 10))
    assert pq.read_metadata(measurement.folder / RANKS_FILE).num_row_groups > 2


@pytest.mark.parametrize(
    ("batch_tokens", "chunk_tokens", "threads"), [(1, 512, 1), (64, 16, 1), (1000, 100, 3), (96, 1, 2)]
)
def test_measure_gives_the_same_numbers_for_all_sizes_and_threads(
    batch_tokens: int, chunk_tokens: int, threads: int, model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    engine = EngineConfig(batch_tokens=batch_tokens, chunk_tokens=chunk_tokens, threads=threads)
    table = measure_model(model, corpus, tmp_path, config=engine).ranks
    _, expected = scores_of_full_logits(model, corpus)
    assert np.array_equal(table.column("greater"), expected["greater"].numpy())
    np.testing.assert_allclose(table.column("logprob"), expected["logprob"].numpy(), atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_measure_restores_the_number_of_torch_threads(threads: int, model: Any, corpus: Corpus, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    measure_model(model, corpus, tmp_path, config=replace(ENGINE, threads=threads))
    assert torch.get_num_threads() == before


def largest_padding(model: Any, corpus: Corpus) -> float:
    """Return the largest probability that the reference gives to its padding rows at any target."""
    reference = model.reference.model
    padding = torch.zeros(len(corpus.token))
    for start, stop in zip(corpus.start, corpus.stop, strict=True):
        states = reference.backbone(torch.from_numpy(corpus.token[None, start:stop].astype(np.int64)))[0]
        probabilities = reference.head.logits(states).softmax(1)[:, model.reference.entries :].sum(1)
        padding[start + 1 : stop] = probabilities[:-1]  # the state of a token predicts the next one
    return float(padding[corpus.targets(0, len(corpus.start))].max())


def test_measure_with_a_reference_adds_columns_and_keeps_ranks(
    model: Any, model_with_reference: Any, corpus: Corpus, tmp_path: Path
) -> None:
    plain = measure_model(model, corpus, tmp_path / "alone")
    compared = measure_model(model_with_reference, corpus, tmp_path / "both")
    assert np.array_equal(compared.ranks.column("greater"), plain.ranks.column("greater"))
    assert compared.sums.means["kl"] == pytest.approx(float(compared.ranks.column("kl").astype(float).mean()))
    assert 0 < compared.sums.means["acceptance"] < 1
    assert compared.engine_results["padding_mass"] == pytest.approx(
        largest_padding(model_with_reference, corpus), rel=1e-4
    )
    assert "kl" not in plain.sums.means


def test_measure_refuses_a_token_that_only_the_reference_can_predict(
    model_with_reference: Any, corpus: Corpus, tmp_path: Path
) -> None:
    without_0 = replace(model_with_reference, head=model_with_reference.head.exclude([0]))
    no_target_is_0 = replace(corpus, token=np.maximum(corpus.token, 1))
    with pytest.raises(MeasurementError, match="the model gives probability 0"):
        measure_model(without_0, no_target_is_0, tmp_path)


class InterruptingProgress:
    """A progress callback that raises an error at the first call after more than `limit` tokens."""

    def __init__(self, limit: int, error: BaseException) -> None:
        self.limit = limit
        self.error = error
        self.tokens = 0

    def __call__(self, tokens: int) -> None:
        self.tokens += tokens
        if self.tokens > self.limit:
            raise self.error


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_measure_after_an_interrupt_measures_the_rest_and_writes_the_same_file(
    error: BaseException, threads: int, model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    engine = replace(ENGINE, threads=threads)
    uninterrupted = measure_model(model, corpus, tmp_path / "whole", config=engine)
    interrupt = InterruptingProgress(500, error)
    with pytest.raises(type(error)):
        measure_model(model, corpus, tmp_path / "cut", config=engine, progress=interrupt)
    progress: list[int] = []
    resumed = measure_model(model, corpus, tmp_path / "cut", config=engine, progress=progress.append)
    assert progress[0] >= interrupt.tokens
    assert resumed.fresh_tokens == uninterrupted.sums.histogram.num_tokens - progress[0]
    assert sum(progress) == uninterrupted.sums.histogram.num_tokens
    assert (resumed.folder / RANKS_FILE).read_bytes() == (uninterrupted.folder / RANKS_FILE).read_bytes()


def test_measure_after_a_kill_repeats_only_lost_and_damaged_blocks(
    model: Any, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninterrupted = measure_model(model, corpus, tmp_path / "whole")
    assert len(list((tmp_path / "whole/blocks").glob("*.parquet"))) == 3  # of all sections except the last
    monkeypatch.setattr(collector, "BLOCK_SECONDS", 0.0)
    # At this error, `measure` saves nothing. The folder then looks as if the process had been killed.
    kill = InterruptingProgress(500, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        measure_model(model, corpus, tmp_path / "cut", progress=kill)
    saved = sorted((tmp_path / "cut/blocks").glob("*.parquet"))
    rows = [pq.read_metadata(path).num_rows for path in saved]
    assert len(saved) > 2
    assert sum(rows) > 500
    whole = RankTable.read(saved[0])
    replace(whole, table=whole.table.slice(1)).write(saved[0])  # a table that lacks a token
    saved[1].write_bytes(saved[1].read_bytes()[:-100])
    saved[2].write_bytes(b"")
    resumed = measure_model(model, corpus, tmp_path / "cut")
    assert resumed.fresh_tokens == uninterrupted.sums.histogram.num_tokens - sum(rows[3:])
    assert (resumed.folder / RANKS_FILE).read_bytes() == (uninterrupted.folder / RANKS_FILE).read_bytes()


def test_measure_keeps_a_block_that_the_system_cannot_open(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    measure_model(model, corpus, tmp_path)
    block = next((tmp_path / "blocks").glob("*.parquet"))
    block_reading(block)
    with pytest.raises(FileAccessError, match=block.name):
        measure_model(model, corpus, tmp_path)
    assert block.is_symlink()


def test_measure_repeats_a_block_that_holds_other_tokens(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    uninterrupted = measure_model(model, corpus, tmp_path)
    path = next((tmp_path / "blocks").glob("*.parquet"))
    block = RankTable.read(path)
    other_tokens = pa.array(np.roll(block.column("token"), 1), pa.int32())
    replace(block, table=block.table.set_column(3, block.table.schema.field("token"), other_tokens)).write(path)
    before = (uninterrupted.folder / RANKS_FILE).read_bytes()
    assert measure_model(model, corpus, tmp_path).fresh_tokens >= len(block)
    assert (uninterrupted.folder / RANKS_FILE).read_bytes() == before


def test_measure_in_a_folder_of_a_killed_process_removes_its_unfinished_table(
    model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    unfinished = tmp_path / ".x1.tmp"
    unfinished.write_bytes(b"PAR1")
    measure_model(model, corpus, tmp_path)
    assert not unfinished.exists()


class SparseEngine(Engine):
    """An engine that computes only the columns `greater` and `logprob`, and that may leave out the last batch."""

    vocab_size = VOCABULARY
    batch_tokens = 200

    def __init__(self, *, leaves_out_last: bool = False) -> None:
        self.leaves_out_last = leaves_out_last

    def run(self, batches: Iterable[Batch]) -> Generator[tuple[Batch, Scores]]:
        scored = [(batch, Scores(greater=batch.target_ids.int(), logprob=-batch.target_ids / 10)) for batch in batches]
        yield from scored[:-1] if self.leaves_out_last else scored


def test_measure_with_an_engine_without_ties_gives_a_table_without_ties(corpus: Corpus, tmp_path: Path) -> None:
    measurement = measure(SparseEngine(), corpus, ks=(1, 10), folder=tmp_path)
    token = corpus.token[corpus.targets(0, len(corpus.start))]
    assert not measurement.ranks.ties_known
    assert np.array_equal(measurement.ranks.rank, token + 1)
    assert measurement.sums.histogram.ce == pytest.approx(float(token.mean() / 10))
    assert "tie_rate" not in measurement.sums.means


def test_measure_refuses_a_table_if_the_engine_leaves_out_tokens(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(RbptrackError):
        measure(SparseEngine(leaves_out_last=True), corpus, ks=(1,), folder=tmp_path)
    assert not (tmp_path / "ranks.parquet").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token", lambda corpus: np.roll(corpus.token, 1)),
        ("scorable", lambda corpus: np.ones_like(corpus.scorable)),
        ("first", lambda corpus: corpus.first + 1),
        ("prefix", lambda _: np.array([1])),
        ("texts_hash", lambda _: "others"),
    ],
)
def test_measure_refuses_a_folder_of_another_corpus(
    name: str, value: Callable[[Corpus], Any], model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    measure_model(model, corpus, tmp_path)
    other = replace(corpus, **{name: value(corpus)})
    with pytest.raises(MeasurementError):
        measure_model(model, other, tmp_path)


@pytest.mark.parametrize("bad_value", [float("nan"), float("inf")])
def test_measure_names_document_and_position_of_bad_logits(
    bad_value: float, model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    index = corpus.targets(0, len(corpus.start))[333]

    def damaged_backbone(tokens: Tensor) -> Tensor:
        """Put the bad value into the hidden state that predicts the token at `index`."""
        states = model.backbone(tokens)
        document = corpus.document[index]
        start = int(corpus.start[document])
        damaged_sequence = torch.from_numpy(corpus.token[start : corpus.stop[document]].astype(np.int64))
        for row, sequence in enumerate(tokens):
            if torch.equal(sequence[: len(damaged_sequence)], damaged_sequence):
                states[row, corpus.position[index] - 1, 3] = bad_value
        return states

    place = rf"document {corpus.document_ids[corpus.document[index]]}, position {corpus.position[index]}\b"
    with pytest.raises(MeasurementError, match=place):
        measure_model(replace(model, backbone=damaged_backbone), corpus, tmp_path)
    assert not (tmp_path / RANKS_FILE).exists()


def test_measure_refuses_scores_that_do_not_find_the_target_in_the_vocabulary(
    model: Any, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that computes the target's logit twice may compute two different logits. The rank is then not exact."""
    score = Transformers.score

    @torch.inference_mode()
    def score_with_one_fault(engine: Transformers, batch: Batch) -> Scores:
        scores = score(engine, batch)
        scores["ties"][-1] = -1
        return scores

    monkeypatch.setattr(Transformers, "score", score_with_one_fault)
    with pytest.raises(MeasurementError):
        measure_model(model, corpus, tmp_path)
    assert not (tmp_path / RANKS_FILE).exists()


def test_measure_refuses_sequences_longer_than_the_models_limit_before_it_makes_a_folder(
    model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    with pytest.raises(BadInput):
        measure_model(replace(model, max_length=40), corpus, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def exhaust_cpu_memory() -> None:
    """Make torch's allocator fail: a PiB is more than any address space."""
    torch.empty(1 << 50)


def exhaust_cuda_memory() -> None:
    """Raise the error of torch's CUDA allocator."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 PiB")


def exhaust_numpy_memory() -> None:
    """Make NumPy's allocator fail."""
    np.empty(1 << 60, dtype=np.int8)


def with_little_memory(model: Any, max_tokens: int, fail: Callable[[], None]) -> Any:
    """Make a copy of a model that calls `fail` for a forward pass of more than `max_tokens` tokens."""

    def backbone(tokens: Tensor) -> Tensor:
        if tokens.numel() > max_tokens:
            fail()
        return model.backbone(tokens)

    return replace(model, backbone=backbone)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("fail", [exhaust_cpu_memory, exhaust_cuda_memory, exhaust_numpy_memory])
def test_measure_halves_chunk_and_batch_if_memory_runs_out(
    fail: Callable[[], None], threads: int, model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    engine = EngineConfig(batch_tokens=400, chunk_tokens=64, threads=threads)
    progress: list[int] = []
    cramped = with_little_memory(model, 100, fail)
    measurement = measure_model(cramped, corpus, tmp_path, config=engine, progress=progress.append)
    assert measurement.engine_results["chunk_tokens"] < 64
    assert measurement.engine_results["batch_tokens"] <= 100
    # There is a note for each time that a size was halved: once for the chunk and once for the batch, and more if
    # several threads ran out of memory one after the other.
    assert len(measurement.notes) >= 2
    assert sum(progress) == measurement.sums.histogram.num_tokens  # no batch was counted twice
    _, expected = scores_of_full_logits(model, corpus)
    assert np.array_equal(measurement.ranks.column("greater"), expected["greater"].numpy())


def test_measure_names_seq_len_if_one_sequence_does_not_fit_into_memory(
    model: Any, corpus: Corpus, tmp_path: Path
) -> None:
    cramped = with_little_memory(model, 10, exhaust_cpu_memory)
    with pytest.raises(MeasurementError, match=r"one sequence of \d+ tokens .*dataset\.seq_len"):
        measure_model(cramped, corpus, tmp_path)


def test_measure_does_not_catch_errors_other_than_lack_of_memory(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    def multiply_wrong_shapes() -> None:
        torch.randn(2, 3) @ torch.randn(2, 3)

    faulty = with_little_memory(model, 10, multiply_wrong_shapes)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        measure_model(faulty, corpus, tmp_path)


def test_measure_with_strict_true_computes_rbp_of_the_strict_rank(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    rounded_head = Head(model.head.weight.round())
    with_ties = replace(model, head=rounded_head, backbone=lambda tokens: model.backbone(tokens).round())
    paper = measure_model(with_ties, corpus, tmp_path / "paper")
    strict = measure_model(with_ties, corpus, tmp_path / "strict", strict=True)
    assert paper.sums.means["tie_rate"] > 0
    assert strict.sums.histogram.rbp(1) > paper.sums.histogram.rbp(1)
    assert RankTable.read(strict.folder / RANKS_FILE).strict
