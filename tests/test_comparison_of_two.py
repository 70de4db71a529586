"""`compare A B`: two measurements of the same tokens, in a store, in a bundle, imported; its answers are known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Runs
from rbptrack.analysis.comparison import compare
from rbptrack.analysis.findings import Verdict
from rbptrack.base.errors import BadInput
from rbptrack.commands.compare import main as compare_
from rbptrack.commands.export import main as export
from rbptrack.exchange.bundle import without_tokens
from rbptrack.ranks import RankTable, histogram_parts
from rbptrack.stats.pairs import PairSums
from tests.synthetic import Given, changed, ranked, runs_of_tables, together, unreadable


def two(a: RankTable, b: RankTable) -> Runs:
    return together(*(runs_of_tables([1e6], {dtype: one}, dtype=dtype) for dtype, one in (("float32", a), ("int8", b))))


def table(rank: np.ndarray, logprob: np.ndarray) -> RankTable:
    return ranked(rank, documents=30, vocab_size=1000, logprob=logprob)


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    rank = np.minimum(np.ceil(rng.lognormal(1, 1.5, 600)), 1000).astype(int)
    return rank, -np.log(rank) - rng.exponential(0.5, 600)


def test_the_differences_are_those_of_the_tables() -> None:
    rng = np.random.default_rng(0)
    rank, logprob = drawn(rng)
    worse = np.minimum(rank * 2, 1000)
    a, b = table(rank, logprob), table(worse, logprob - 1)
    runs = two(a, b)
    ids = list(runs.frame["run_id"])
    comparison = compare(runs, ids[0], ids[1], ks=[10, 1])
    changes = {change.label: change for change in comparison.changes}
    assert changes["CE"].estimate == pytest.approx(1)
    parts = [histogram_parts(one.histogram()) for one in (a, b)]
    assert changes["rank part of CE"].estimate == pytest.approx(parts[1][0] - parts[0][0])
    assert changes["rest of CE"].estimate == pytest.approx(parts[1][1] - parts[0][1])
    assert changes["RBP_10"].estimate == pytest.approx(b.rbp(10) - a.rbp(10))
    assert changes["RBP_10"].low < changes["RBP_10"].estimate < changes["RBP_10"].high < 0
    assert {change.label for change in comparison.shown} >= {"CE", "rank part of CE", "RBP_1", "RBP_10"}
    assert comparison.sums is not None
    assert comparison.sums.moved.sum() == (rank != worse).sum()
    assert "differ significantly in CE +1.0000" in comparison.sentences()[0]


def test_equal_models_rarely_differ_and_the_least_difference_is_named() -> None:
    """Noise of the same kind in both: at most about 5% of the comparisons show any difference."""
    rng = np.random.default_rng(1)
    shown = 0
    for _ in range(150):
        rank, logprob = drawn(rng)
        noisy = [np.clip(rank + rng.integers(0, 2, 600), 1, 1000) for _ in range(2)]
        runs = two(table(noisy[0], logprob - 1), table(noisy[1], logprob - 1))
        comparison = compare(runs, *runs.frame["run_id"])
        shown += bool(comparison.shown)
    assert shown <= 15
    undecided = [change for change in comparison.changes if change.verdict is Verdict.UNTOLD]
    assert any(change.detectable > 0 for change in undecided)
    assert any("we could have detected" in text for text in comparison.sentences())


def test_a_table_without_token_ids_is_paired_by_place() -> None:
    rank, logprob = drawn(np.random.default_rng(2))
    whole = table(rank, logprob)
    runs = two(without_tokens(whole), whole)
    comparison = compare(runs, *runs.frame["run_id"])
    assert comparison.sentences()[0] == f"All 600 ranks of {comparison.a} and {comparison.b} on text are equal."
    assert not comparison.shown
    assert np.isnan(comparison.same_top.value)


def test_an_import_without_ranks_is_compared_by_its_logged_numbers() -> None:
    rank, logprob = drawn(np.random.default_rng(3))
    runs = two(table(rank, logprob), table(rank, logprob))
    frame = runs.frame.assign(ce=[3.0, 3.1], ce_se=[0.01, 0.02], rbp_1=[0.4, 0.39], without_ranks=True)
    frame["rbp_1_se"] = np.nan
    frame["ce_rank"] = [1.5, 1.55]

    def gone(run_id: str) -> RankTable:
        from rbptrack.base.errors import MissingArtifact

        raise MissingArtifact(run_id)

    runs = Runs(frame, Given(histogram=unreadable, ranks=gone))
    comparison = compare(runs, *frame["run_id"], ks=[1])
    changes = {change.label: change for change in comparison.changes}
    assert list(changes) == ["CE", "rank part of CE", "RBP_1"]
    half = 1.959964 * np.hypot(0.01, 0.02)
    assert (changes["CE"].low, changes["CE"].high) == pytest.approx((0.1 - half, 0.1 + half))
    assert changes["CE"].verdict is Verdict.DIFFERENT
    assert np.isnan(changes["RBP_1"].p)
    assert "no rank table" in comparison.sentences()[-1]


def test_other_tokens_are_refused() -> None:
    rank, logprob = drawn(np.random.default_rng(4))
    runs = two(table(rank, logprob), table(rank, logprob))
    a, b = runs.frame["run_id"]
    with pytest.raises(BadInput, match="is one measurement"):
        compare(runs, a, a)
    other = changed(runs, runs.frame.assign(seq_len=[512, 1024]))
    with pytest.raises(BadInput, match=r"did not score the same tokens.*seq_len=512 and 1024"):
        compare(other, a, b)
    tokens = together(
        runs_of_tables([1e6], {"a": table(rank, logprob)}),
        runs_of_tables([2e6], {"b": ranked(rank, documents=30, vocab_size=1000, logprob=logprob, token=rank + 1)}),
    )
    with pytest.raises(BadInput, match="did not score the same tokens of text"):
        compare(tokens, *tokens.frame["run_id"])


def test_the_command_and_its_exit_codes(
    untouched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    shutil.copytree(untouched, folder)
    monkeypatch.chdir(folder)
    assert compare_(["nano-6k/stdlib", "nano-115k/stdlib", "out=page.html"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("nano-6k and nano-115k on stdlib differ significantly in CE -")
    page = Path("page.html").read_text()
    assert "differ significantly in CE" in page
    assert "rank part of CE" in page
    assert "k=1,10,100 level=0.95" in page
    assert compare_(["nano-6k/stdlib", "nano-115k/stdlib", "fail=true", "k=1"]) == 1
    capsys.readouterr()
    assert export(["out=base.zip", "dataset=stdlib"]) == 0
    capsys.readouterr()
    assert compare_(["base.zip", "nano-15k/stdlib", "fail=true", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["a"], document["b"]) == ("nano-15k (base.zip)", "nano-15k")
    assert (document["ranks_that_differ"], document["different"]) == (0, False)
    assert compare_(["base.zip:nano-6k", "base.zip:nano-115k", "fail=true"]) == 1
    ce = document["changes"][0]["value_A"]
    assert ce == pytest.approx(pd.read_csv(_listed(capsys), index_col="model").loc["nano-15k", "ce"])
    for words, error in (
        (["nano-6k/stdlib"], "takes two measurements; got 1"),
        (["base.zip", "base.zip"], "base.zip holds 4 measurements"),
        (["base.zip", "nano-6k/pydocs"], "base.zip holds 4 measurements"),
        (["nano-6k/stdlib", "nano-6k/pydocs"], "did not score the same tokens"),
        (["none.zip", "nano-6k/pydocs"], "no such file"),
        (["nano-6k/stdlib", "nano-15k/stdlib", "out=a.pdf"], "written as .html"),
    ):
        with pytest.raises(BadInput, match=error):
            compare_(words)


def _listed(capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    import io

    from rbptrack.commands.list_ import main as list_

    capsys.readouterr()
    assert list_(["dataset=stdlib", "format=csv"]) == 0
    return io.StringIO(capsys.readouterr().out)


def test_the_interval_of_the_rank_parts_share_covers() -> None:
    """Documents whose ranks and rests change together: of 300 draws, 95% of the intervals hold the true share."""
    rng = np.random.default_rng(5)
    inside, given = 0, 0
    for _ in range(300):
        tokens = rng.integers(10, 60, 40).astype(float)
        fall = rng.normal(0.5, 0.3, 40) * tokens
        rank = (0.8 * fall / tokens + rng.normal(0, 0.05, 40)) * tokens
        zeros = np.zeros(40)
        sums = PairSums(
            ks=(), document=np.arange(40), tokens=tokens, moves=np.zeros((1, 1), dtype=int),
            **{name: zeros for name in PairSums.SUMMED if name not in ("tokens", "nats_b", "rank_b")},
            nats_b=fall, rank_b=rank,
        )  # fmt: skip
        share = sums.rank_share(0.95)
        given += np.isfinite(share.low)
        inside += share.low <= 0.8 <= share.high
    assert given == 300
    assert 0.92 <= inside / 300 <= 0.99
