"""Tests of the reduction in C, against eager operations and the definition of each score."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from rbptrack.scoring import Head, Scorer
from rbptrack.scoring.cpu_reduction import compiled_cpu_reduction
from rbptrack.scoring.reduction import Reduction, eager_reduction
from tests.definition import scores_by_definition


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the built code. The tests are skipped if the machine has no C compiler."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("there is no C compiler on this machine")
    return tmp_path_factory.mktemp("built")


def reduction_in_c(vocab_size: int, folder: Path) -> Reduction:
    reduction = compiled_cpu_reduction(vocab_size, folder)
    assert reduction is not None
    return reduction


@pytest.mark.parametrize("tokens", [1, 50])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("vocab_size", [1000, 4096, 9001])
def test_reduction_in_c_gives_the_ranks_of_the_eager_one(
    vocab_size: int, threads: int, tokens: int, folder: Path
) -> None:
    # One decimal gives ties.
    head = Head(torch.randn(vocab_size, 8).round(decimals=1)).exclude([3, 999])
    hidden = torch.randn(tokens, 8).round(decimals=1)
    targets = torch.randint(4, 900, (tokens,))
    previous_threads = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        scores = Scorer(head, chunk_tokens=16, cpu_reduction=reduction_in_c(vocab_size, folder))(hidden, targets)
    finally:
        torch.set_num_threads(previous_threads)
    eager = Scorer(head, chunk_tokens=16)(hidden, targets)
    assert scores.keys() == eager.keys()
    for name, column in eager.items():
        assert scores[name].dtype == column.dtype
        if column.is_floating_point():
            torch.testing.assert_close(scores[name], column, rtol=1e-6, atol=5e-6)
        else:
            assert torch.equal(scores[name], column)


@pytest.mark.parametrize("scale", [0.01, 3, 30, 3000])
def test_reduction_in_c_is_exact_for_logits_of_every_size(scale: float, folder: Path) -> None:
    logits = scale * torch.randn(20, 5000)
    targets = torch.randint(5000, (20,))
    scores = reduction_in_c(5000, folder)(logits, logits.gather(1, targets[:, None]))
    for name, column in scores_by_definition(logits, targets).items():
        if column.is_floating_point():
            torch.testing.assert_close(scores[name], column, rtol=1e-6, atol=1e-5)
        else:
            assert torch.equal(scores[name], column)


@pytest.mark.parametrize("bad_value", [float("nan"), float("inf")])
def test_reduction_in_c_of_bad_logits_is_not_finite(bad_value: float, folder: Path) -> None:
    logits = torch.randn(2, 1000)
    logits[0, 7] = bad_value
    target_logits = logits[:, :1]
    computed = reduction_in_c(1000, folder)(logits, target_logits)["logprob"]
    expected = eager_reduction(logits, target_logits)["logprob"]
    assert torch.isfinite(computed).tolist() == torch.isfinite(expected).tolist() == [False, True]


def test_reduction_in_c_is_built_once(folder: Path) -> None:
    reduction_in_c(50, folder)
    (library,) = folder.iterdir()
    before = library.stat().st_mtime_ns
    compiled_cpu_reduction.__wrapped__(50, folder)
    assert library.stat().st_mtime_ns == before


def test_reduction_in_c_is_none_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert compiled_cpu_reduction(50, tmp_path) is None


def test_reduction_in_c_is_none_if_the_built_code_is_damaged(folder: Path, tmp_path: Path) -> None:
    reduction_in_c(50, folder)
    (library,) = folder.iterdir()
    (tmp_path / library.name).write_bytes(b"no library")
    assert compiled_cpu_reduction(50, tmp_path) is None
