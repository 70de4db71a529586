"""Heads and models that several processes hold together, against one process; gloo on CPUs."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.bench.shapes import random_corpus
from rbptrack.config.schema import Dtype, EngineConfig, ModelConfig, Parallel
from rbptrack.engine.measure import measure
from rbptrack.models import group
from rbptrack.models.causal import CausalModel
from rbptrack.models.group import ModelProcesses
from rbptrack.models.loading import load_model
from rbptrack.models.tensor_parallel import load_share
from rbptrack.scoring.parallel import HeadRows, ParallelScorer
from rbptrack.scoring.scorer import Scorer
from rbptrack.scoring.scores import Scores
from rbptrack.sources.pin import of_model
from tests.architectures import build
from tests.patience import lives, until, until_they_end
from tests.shares import CASES, case, score_share


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_split_head_ranks_as_a_whole_one(processes: int, tmp_path: Path) -> None:
    """Byte-equal counts, in every process; log-probabilities to float32 rounding."""
    multiprocessing.set_forkserver_preload(["tests.shares"])  # imported once, for all of them
    multiprocessing.start_processes(score_share, (processes, tmp_path), processes, start_method="forkserver")
    for number in range(len(CASES)):
        head, hidden, targets, chunk = case(number)
        want = Scorer(head, chunk_tokens=chunk)(hidden, targets)
        for process in range(processes):
            got = Scores(*torch.load(tmp_path / f"{number}-{process}.pt"))
            fine = torch.isfinite(want.logprob)
            assert torch.equal(torch.isfinite(got.logprob), fine)
            for name, column in want.columns.items():
                exact = column.dtype == torch.int32
                torch.testing.assert_close(got.columns[name][fine], column[fine], rtol=0, atol=0 if exact else 5e-6)
    assert not torch.isfinite(want.logprob).all() or number > 0


MORE = (("qwen3", 2), ("pythia", 2), ("pythia", 4))  # pythia in half precision below
CORPUS = random_corpus(tokens=3000, seq_len=128, vocab_size=500)


def config(folder: Path, **options: object) -> ModelConfig:
    return ModelConfig(family="tiny", size="1k", path=str(folder), device="cpu", **options)  # type: ignore[arg-type]


def load(folder: Path, processes: int = 1, **options: object) -> CausalModel:
    if processes > 1:
        options |= {"parallel": Parallel.tensor, "processes": processes}
    wanted = config(folder, **options)
    return load_model(wanted, of_model(wanted), candidates=500)


@pytest.mark.parametrize(
    ("name", "processes"), [("llama3", 2), *(pytest.param(*p, marks=pytest.mark.long) for p in MORE)]
)
def test_a_split_model_measures_what_a_whole_one_does(name: str, processes: int, tmp_path: Path) -> None:
    # Also a head that is the embedding, as in the embedded family: GPT-NeoX's plan leaves such a head whole.
    options = {"tie_word_embeddings": processes == 2} if name == "pythia" else {"num_key_value_heads": 4}
    build(name, tmp_path / "model", **options)
    engine = EngineConfig(batch_tokens=1024)
    whole = load(tmp_path / "model")
    want = measure(whole, CORPUS, ks=(1, 10), engine=engine, folder=tmp_path / "whole")
    model = load(tmp_path / "model", processes)
    assert model.group is not None
    got = measure(model, CORPUS, ks=(1, 10), engine=engine, folder=tmp_path / "split")
    workers = [p for p in psutil.Process().children(recursive=True) if "rbptrack.models.group_process" in p.cmdline()]
    assert len(workers) == processes + 1  # and torchrun
    loaded, vocab_size = model.group.loaded, model.vocab_size
    counts = model.non_embedding_params, model.total_params
    del model
    until_they_end(workers)  # with the model
    assert vocab_size == 500
    assert counts == (whole.non_embedding_params, whole.total_params)
    assert loaded.drift < 1e-5
    assert got.num_tokens == want.num_tokens
    assert got.peak_memory_bytes > 0
    # The backbone's sums are split, so a rank may swap with a neighbour's; float32 rounding, as with another batch.
    moved = np.abs(got.ranks.rank - want.ranks.rank)
    assert moved.max() <= 1
    assert (moved > 0).mean() <= 2e-3
    np.testing.assert_allclose(got.ranks.column("logprob"), want.ranks.column("logprob"), rtol=0, atol=2e-4)


def test_a_split_in_half_precision_rounds_as_the_whole_model_does_until_a_process_is_lost(tmp_path: Path) -> None:
    """Shares are added before they are rounded; where every share was rounded by itself, 97% of the ranks moved."""
    build("pythia", tmp_path / "model", tie_word_embeddings=True)
    tables = []
    for processes in (1, 2):
        model = load(tmp_path / "model", processes, dtype=Dtype.bfloat16)
        engine, folder = EngineConfig(batch_tokens=1024), tmp_path / str(processes)
        measured = measure(model, CORPUS, ks=(1, 10), engine=engine, folder=folder)
        tables.append(measured.ranks)
    whole, split = tables
    assert (whole.rank != split.rank).mean() <= 0.05
    assert abs(whole.ce - split.ce) <= 1e-4
    assert any("split over 2 processes in bfloat16" in note for note in measured.notes)
    # A process that is lost ends the measurement in seconds.
    assert model.group is not None
    assert not model.group.over
    children = [p for p in psutil.Process().children(recursive=True) if "rbptrack.models.group_process" in p.cmdline()]
    workers = [p for p in children if "torch.distributed.run" not in p.cmdline()]
    assert len(workers) == 2
    (agent,) = set(children) - set(workers)
    for process in (agent, workers[1]):
        process.suspend()

    idle = sum(workers[0].cpu_times()[:2])

    def lose() -> None:
        """The other one is in the middle of its work, and sees it before torchrun does."""
        until(lambda: sum(workers[0].cpu_times()[:2]) > idle, "work of the other")
        workers[1].kill()
        until(lambda: not lives(workers[0]), "end of the other")
        agent.resume()

    losing = threading.Thread(target=lose)
    losing.start()
    began = time.monotonic()
    with pytest.raises(MeasurementError, match="process 2 of 2 was killed by signal 9") as caught:
        measure(model, CORPUS, ks=(1,), engine=engine, folder=tmp_path / "cell")
    assert time.monotonic() - began < 900  # gloo itself would wait for half an hour
    assert "\n" not in str(caught.value)
    losing.join()
    until_they_end(workers)
    assert model.group.over


def test_a_process_that_is_lost_while_it_connects_is_not_the_end(tmp_path: Path) -> None:
    """torchrun tells of it; here another one comes."""
    waiting = ModelProcesses.__new__(ModelProcesses)
    waiting._processes, waiting._close = 1, None
    waiting._agent = psutil.Popen(["sleep", "30"])  # type: ignore[assignment]
    links: list[Connection] = []

    def come() -> None:
        with socket.socket(socket.AF_UNIX) as lost:
            lost.connect(address)
        with Client(address, authkey=b"key") as link:
            link.send(0)
            link.poll(10)

    try:
        with Listener(address := str(tmp_path / "socket"), authkey=b"key") as listener, ThreadPoolExecutor(1) as pool:
            coming = pool.submit(come)
            waiting._accept(listener, links)
            assert len(links) == 1
            links[0].close()
            coming.result()
    finally:
        waiting._agent.kill()
        waiting._agent.wait()


def test_a_temporary_folder_of_a_long_name_has_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes 107 bytes; many a cluster's TMPDIR has more."""
    place = group._private_folder()
    assert place.parent == Path(tempfile.gettempdir())
    place.rmdir()
    (tmp_path / ("project-465000123" * 6)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("project-465000123" * 6)))
    with Listener(str((place := group._private_folder()) / group.SOCKET)):
        assert place.stat().st_mode & 0o077 == 0
    place.rmdir()


@pytest.fixture
def a_group_of_one() -> Iterator[None]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("number", [1, 2])
def test_a_split_head_takes_the_kernel(number: int, a_group_of_one: None) -> None:
    """In Triton's interpreter: the target's logit comes from its owner, then the rows at hand are reduced."""
    pytest.importorskip("triton")
    head, hidden, targets, chunk = case(number)
    rows = HeadRows(0, head.vocab_size)
    got = ParallelScorer(head, rows, chunk_tokens=chunk, kernel=True)(hidden, targets)
    want = Scorer(head, chunk_tokens=chunk)(hidden, targets)
    torch.testing.assert_close(got.columns, want.columns, rtol=0, atol=5e-6)


def test_a_share_of_a_model_is_checked_for_causality(tmp_path: Path, a_group_of_one: None) -> None:
    """As a model in one process is: what an embedding model made of Llama ranks looks good and is wrong."""
    for causal in (True, False):
        build("llama3", tmp_path / f"{causal}", is_causal=causal)
        wanted = config(tmp_path / f"{causal}")
        loading = pytest.raises(BadInput, match="its states at a token depend on later tokens")
        with nullcontext() if causal else loading:
            assert load_share(wanted, of_model(wanted), torch.device("cpu"), candidates=None)[1] < 1e-5


def test_what_cannot_be_split_is_refused_with_the_remedy(tmp_path: Path) -> None:
    build("gpt2", tmp_path / "gpt2")
    with pytest.raises(BadInput, match=r"no tensor-parallel plan for GPT2LMHeadModel; model\.device_map=auto"):
        load(tmp_path / "gpt2", 2)
    build("llama3", tmp_path / "llama")  # 2 heads of keys
    with pytest.raises(BadInput, match=r"has 2 attention heads .* 4 processes cannot share evenly.* may be 2$"):
        load(tmp_path / "llama", 4)
    with pytest.raises(BadInput, match=r"needs at least two GPUs, found 0; on a CPU, say model\.processes=2"):
        load(tmp_path / "llama", parallel=Parallel.tensor)
    with pytest.raises(BadInput, match=r"give model\.parallel or model\.device_map, not both"):
        load(tmp_path / "llama", 2, device_map="auto")
    assert load(tmp_path / "llama", parallel=Parallel.auto).group is None  # one device is enough
