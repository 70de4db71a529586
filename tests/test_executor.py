"""Sizes chosen from memory, recovery when it runs out, interruption, and numbers that do not depend on any of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.bench.shapes import random_corpus
from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine import executor as engines
from rbptrack.engine.batches import Batch, batch_of, compose
from rbptrack.engine.executor import Engine
from rbptrack.engine.measure import measure
from rbptrack.models.causal import CausalModel, of_module
from rbptrack.models.loading import load_model
from rbptrack.scoring.scorer import Head, Scorer
from tests.test_measure import SIZES, config, corpus, source

__all__ = ["corpus"]  # the fixture
CAP = 300  # tokens above which the small device below has no memory


@pytest.fixture(scope="module")
def model() -> CausalModel:
    return load_model(config("6k"), source("6k"))


def cramped(model: CausalModel, cap: int, fail: Callable[[], object]) -> CausalModel:
    """The model on a device that has no room for more than `cap` tokens."""

    def backbone(tokens: Tensor) -> Tensor:
        if tokens.numel() > cap:
            fail()
        return model.backbone(tokens)

    return replace(model, backbone=backbone)


def cpu_fails() -> None:
    torch.empty(1 << 50)  # more than any address space: the allocator's own error


def cuda_fails() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 PiB")


def library_fails() -> None:
    np.empty(1 << 60, dtype=np.int8)


@pytest.mark.parametrize("fail", [cpu_fails, cuda_fails, library_fails])
def test_running_out_of_memory_halves_chunk_and_batch_and_goes_on(
    fail: Callable[[], object], model: CausalModel, corpus: Corpus, tmp_path: Path
) -> None:
    small = corpus.first_tokens(3000)
    engine = EngineConfig(batch_tokens=2048, chunk_tokens=512)
    want = measure(model, small, ks=(1,), engine=engine, folder=tmp_path / "roomy")
    seen: list[int] = []
    got = measure(
        cramped(model, CAP, fail), small, ks=(1,), engine=engine, folder=tmp_path / "cramped", progress=seen.append
    )
    assert not want.notes
    assert "head's chunk" in got.notes[0]
    assert any("batches are now" in note for note in got.notes)
    assert got.chunk_tokens < want.chunk_tokens
    assert sum(seen) == got.num_tokens == want.num_tokens  # no batch was counted twice
    moved = got.ranks.rank != want.ranks.rank
    assert moved.mean() <= 2e-3
    assert got.ce == pytest.approx(want.ce, abs=1e-6)


SMALL = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}
ARCHITECTURES = {
    "gpt_neox": SMALL,
    "llama": SMALL,
    "gemma2": {**SMALL, "head_dim": 16, "num_key_value_heads": 1, "sliding_window": 16},
    "mamba": {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_threads_at_work_on_one_model_do_not_disturb_each_other(architecture: str, tmp_path: Path) -> None:
    """Every batch scores the same, bit for bit, whether another thread is in the same layers or not."""
    from transformers import AutoConfig

    torch.manual_seed(0)
    settings = AutoConfig.for_model(architecture, **ARCHITECTURES[architecture])
    model = of_module(AutoModelForCausalLM.from_config(settings), architecture)
    corpus = random_corpus(tokens=3000, seq_len=48, vocab_size=300)
    one, four = (
        measure(
            model,
            corpus,
            ks=(1,),
            engine=EngineConfig(threads=threads, batch_tokens=96, chunk_tokens=32),
            folder=tmp_path / str(threads),
        )
        for threads in (1, 4)
    )
    assert one.path.read_bytes() == four.path.read_bytes()


def test_one_sequence_that_does_not_fit_says_what_to_do(model: CausalModel, corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(
        MeasurementError, match=r"one sequence of 256 tokens at a time; give a smaller dataset\.seq_len"
    ):
        measure(cramped(model, 10, cpu_fails), corpus, ks=(1,), engine=EngineConfig(), folder=tmp_path)


def test_other_errors_are_not_taken_for_a_lack_of_memory(model: CausalModel, corpus: Corpus, tmp_path: Path) -> None:
    def fail() -> None:
        torch.randn(2, 3) @ torch.randn(2, 3)

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        measure(cramped(model, 10, fail), corpus, ks=(1,), engine=EngineConfig(), folder=tmp_path)


def test_an_interruption_does_not_wait_for_slow_batches(model: CausalModel, corpus: Corpus, tmp_path: Path) -> None:
    begun: list[float] = []

    def backbone(tokens: Tensor) -> Tensor:
        if len(begun) > 1:
            for _ in range(60_000):  # ten minutes
                time.sleep(0.01)
        begun.append(time.monotonic())
        return model.backbone(tokens)

    def stop(tokens: int) -> None:
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        measure(
            replace(model, backbone=backbone),
            corpus,
            ks=(1,),
            engine=EngineConfig(threads=2, batch_tokens=256),
            folder=tmp_path,
            progress=stop,
        )
    assert time.monotonic() - begun[0] < 300
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("vocabulary", [4096, 50_304, 256_000])
def test_logits_take_no_more_memory_for_a_larger_vocabulary(vocabulary: int, model: CausalModel) -> None:
    wide = replace(model, head=Head(torch.empty(vocabulary, 8)))
    for threads in (1, 2, 64):
        with Engine(wide, EngineConfig(threads=threads), longest=4096) as chosen:
            assert chosen.workers <= threads
            assert chosen.workers * chosen.chunk_tokens * vocabulary * 4 <= 100e6
            assert chosen.chunk_tokens >= 16


def test_a_share_of_a_gpu_is_all_the_memory_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("mem_get_info", (60, 80)), ("memory_reserved", 3), ("memory_allocated", 1)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0, raising=False)
    assert engines.free_memory(torch.device("cuda")) == 62
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 0.1, raising=False)
    assert engines.free_memory(torch.device("cuda")) == 7


def test_batches_are_chosen_from_free_memory(model: CausalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def batch_tokens(free: float, wanted: int = 0) -> int:
        monkeypatch.setattr(engines, "free_memory", lambda device: int(free))
        with Engine(model, EngineConfig(batch_tokens=wanted, threads=1), longest=100) as chosen:
            return chosen.batch_tokens

    assert engines.free_memory(torch.device("cpu")) > 1e6
    per_token = model.activation_bytes(100)
    assert batch_tokens(1e12) == 2048
    assert batch_tokens(2 * 700 * per_token) == 512
    assert batch_tokens(0) == 100  # one sequence at least
    assert batch_tokens(0, wanted=3000) == 3000


def test_sizes_below_zero_are_refused() -> None:
    from omegaconf import OmegaConf

    from rbptrack.config.check import typed
    from rbptrack.config.schema import Config, DatasetConfig, KConfig, ModelConfig

    wrong = Config(
        model=ModelConfig(family="a", size="1b", path="/a"),
        dataset=DatasetConfig(name="d", path="/d", split="test", seq_len=8),
        k=KConfig([1]),
        engine=EngineConfig(batch_tokens=-1),
    )
    with pytest.raises(BadInput, match=r"engine\.batch_tokens must be at least 0; got -1"):
        typed(OmegaConf.structured(wrong))


def test_a_model_spread_over_memory_and_disk_ranks_the_same(corpus: Corpus, tmp_path: Path) -> None:
    small = corpus.first_tokens(1500)
    whole = load_model(config("115k"), source("115k"))
    settings = replace(config("115k"), device_map="auto", max_memory={"cpu": "500KB"})
    spread = load_model(settings, source("115k"))
    assert spread.spread
    assert not whole.spread
    assert spread.head.weight.device.type == "cpu"
    assert (spread.non_embedding_params, spread.total_params) == (whole.non_embedding_params, whole.total_params)
    want, got = (
        measure(m, small, ks=(1,), engine=EngineConfig(), folder=tmp_path / str(m.spread)).ranks
        for m in (whole, spread)
    )
    assert (got.rank != want.rank).mean() <= 2e-3
    assert got.ce == pytest.approx(want.ce, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device_map": "everywhere"}, "no device map is called everywhere. Options: auto, balanced"),
        ({"tf32": True, "device": "cpu"}, "model.tf32=true needs a CUDA device"),
        ({"device": "tpu"}, "model.device=tpu is not available here. Devices: auto, cpu"),
    ],
)
def test_places_that_do_not_exist(change: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        load_model(replace(config("6k"), **change), source("6k"))
    assert words in str(refused.value)


def variants(model: CausalModel, corpus: Corpus, plain: torch.nn.Module) -> Iterator[tuple[str, np.ndarray]]:
    """Ranks of the corpus's targets, in text order, by every way of batching."""

    def ranks(scored: Iterator[tuple[Tensor, Tensor, Tensor]]) -> np.ndarray:
        at, greater, ties = (torch.cat(parts).numpy() for parts in zip(*scored, strict=True))
        return np.asarray((greater + ties + 1)[np.argsort(at)])

    def run(sequences: list[list[int]], chunk: int, threads: int) -> np.ndarray:
        options = EngineConfig(chunk_tokens=chunk, threads=threads)
        with Engine(model, options, longest=256) as running:
            batches = (batch_of(corpus, s) for s in sequences)
            return ranks((b.target_index, s.greater, s.ties) for b, s in running.run(batches))

    def left(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Padded on the left, with the mask and positions that this needs."""
        lengths = torch.tensor([int(corpus.lengths[i]) for i in range(len(batch.target_counts))])
        count, length = batch.token_ids.shape
        pad = (length - lengths)[:, None]
        place = torch.arange(length)[None] - pad  # (sequences, length), negative where padded
        tokens = batch.token_ids.gather(1, place.clamp(min=0)).where(place >= 0, torch.tensor(0))
        hidden = plain.base_model(  # type: ignore[operator]
            input_ids=tokens, attention_mask=(place >= 0).long(), position_ids=place.clamp(min=0), use_cache=False
        ).last_hidden_state
        row = torch.arange(count).repeat_interleave(torch.tensor(batch.target_counts))
        states = hidden.flatten(0, 1)[batch.state_index + pad[row, 0]]
        scores = Scorer(model.head, chunk_tokens=64)(states, batch.target_ids)
        return batch.target_index, scores.greater, scores.ties

    every = list(range(len(corpus.start)))
    mixed = list(np.random.default_rng(0).permutation(every))
    yield "one at a time", run([[i] for i in every], 512, 1)
    yield "64 at a time, padded", run([every[i : i + 64] for i in range(0, len(every), 64)], 16, 1)
    yield "sorted", run(list(compose(corpus, every, 2048)), 100, 2)
    yield "shuffled, padded", run([mixed[i : i + 5] for i in range(0, len(mixed), 5)], 37, 2)
    with torch.inference_mode():
        yield "padded on the left", ranks(iter([left(batch_of(corpus, every))]))


@pytest.mark.parametrize("size", SIZES[::3])
def test_ranks_differ_only_where_logits_differ_by_less_than_rounding(size: str, corpus: Corpus) -> None:
    """Against float64: a rank may be any between those of targets a rounding error higher and lower, and rarely is."""
    model = load_model(config(size), source(size))
    small = corpus.first_tokens(1500)
    plain = AutoModelForCausalLM.from_pretrained(source(size).location, dtype=torch.float32)
    exact = AutoModelForCausalLM.from_pretrained(source(size).location, dtype=torch.float64)
    low, high, best = [], [], []
    with torch.inference_mode():
        for i in range(len(small.start)):
            batch = batch_of(small, [i])
            logits = exact(batch.token_ids).logits[0][batch.state_index]  # (targets, vocabulary), float64
            error = (plain(batch.token_ids).logits[0][batch.state_index].double() - logits).abs().max()
            assert error < 1e-4
            own = logits.gather(1, batch.target_ids[:, None])
            low.append((logits > own + 4 * error).sum(1) + 1)
            high.append((logits >= own - 4 * error).sum(1))
            best.append((logits >= own).sum(1))
    least, most, want = (torch.cat(x).numpy() for x in (low, high, best))
    assert (most - least).mean() < 0.05  # the bounds say something
    for name, ranks in variants(model, small, plain):
        assert ((ranks >= least) & (ranks <= most)).all(), name
        assert (ranks != want).mean() <= 2e-3, name


def test_precision_is_part_of_what_a_measurement_is_and_sizes_are_not() -> None:
    from rbptrack.config.compose import Composer
    from rbptrack.sweep.resolve import Resolver

    resolver = Resolver()

    def of(*overrides: str) -> str:
        return resolver.resolve(Composer("config", []).compose_typed(["model=nano/6k", *overrides])).fingerprint

    precise = {of(), of("model.tf32=true"), of("model.dtype=bfloat16"), of("model.dtype=float16")}
    assert len(precise) == 4
    assert {
        of("engine.batch_tokens=64", "engine.chunk_tokens=16", "engine.threads=1", "model.device_map=auto")
    } < precise
    with pytest.raises(BadInput, match=r"model\.tf32 rounds float32 products"):
        of("model.tf32=true", "model.dtype=bfloat16")
