"""Two models in one pass: the columns of `COMPARED` against a plain computation, and the whole program."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from rbptrack.analysis.families import families
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput
from rbptrack.config.request import measuring, sweep_of
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.scoring.comparison import PairScorer
from rbptrack.scoring.scorer import Head, Scorer
from rbptrack.scoring.scores import Scores
from rbptrack.sweep.identity import identities
from rbptrack.sweep.plan import Size, memory_and_gpus, operations
from rbptrack.sweep.resolve import Resolver
from rbptrack.tracking.store import Store
from tests.conftest import EMBEDDED, Program


def heads(rows: int, reference_rows: int, *, close: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states and weights of a model and of a reference that is `close` to it."""
    generator = torch.Generator().manual_seed(7)
    hidden, weight = torch.randn(60, 8, generator=generator), torch.randn(rows, 8, generator=generator)
    other = torch.randn(reference_rows, 8, generator=generator)
    shared = min(rows, reference_rows)
    other[:shared] = weight[:shared] + close * other[:shared]
    return hidden, weight, hidden + close * torch.randn(60, 8, generator=generator), other


def scored(parts: tuple[Tensor, ...], *, entries: int, chunk: int = 7) -> tuple[Scores, PairScorer]:
    hidden, weight, reference_hidden, other = parts
    scorer, reference = (Scorer(Head(one), chunk_tokens=chunk) for one in (weight, other))
    pair = PairScorer(scorer, reference, entries=entries)
    return pair(hidden, reference_hidden, torch.arange(60) % entries), pair


def check(found: Scores, parts: tuple[Tensor, ...], *, entries: int) -> None:
    """Every column against both full distributions in float64."""
    hidden, weight, reference_hidden, other = (part.double() for part in parts)
    logits = hidden @ weight.T
    log_p = logits[:, :entries].log_softmax(1)
    log_q = (reference_hidden @ other.T)[:, :entries].log_softmax(1)
    kl = (log_q.exp() * (log_q - log_p)).sum(1)
    torch.testing.assert_close(found.kl.double(), kl, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.accept.double(), torch.minimum(log_p, log_q).exp().sum(1), rtol=1e-5, atol=1e-6)
    assert torch.equal(found.reference_top.long(), log_q.argmax(1))
    rank = (logits >= logits.gather(1, log_q.argmax(1, keepdim=True))).sum(1)
    assert torch.equal(found.reference_rank.long(), rank)
    assert (found.kl.dtype, found.reference_rank.dtype) == (torch.float32, torch.int32)


@pytest.mark.parametrize(("rows", "reference_rows", "entries"), [(600, 600, 600), (600, 640, 590), (512, 300, 300)])
def test_columns_are_those_of_both_distributions(rows: int, reference_rows: int, entries: int) -> None:
    parts = heads(rows, reference_rows)
    check(scored(parts, entries=entries)[0], parts, entries=entries)


def test_a_small_kl_is_not_lost_in_rounding() -> None:
    """Of models that differ as float32 and bfloat16 do, KL is far below what one rounded ln p is good for."""
    parts = heads(2000, 2000, close=1e-3)
    found = scored(parts, entries=2000)[0]
    hidden, weight, reference_hidden, other = (part.double() for part in parts)
    log_p, log_q = (hidden @ weight.T).log_softmax(1), (reference_hidden @ other.T).log_softmax(1)
    kl = (log_q.exp() * (log_q - log_p)).sum(1)
    assert kl.max() < 1e-4
    assert (found.kl - kl).abs().max() < 5e-7


def test_chunks_change_nothing() -> None:
    parts = heads(600, 640)
    wanted, _ = scored(parts, entries=590, chunk=60)
    for chunk in (1, 16):
        found, _ = scored(parts, entries=590, chunk=chunk)
        assert torch.equal(found.reference_top, wanted.reference_top)
        assert torch.equal(found.reference_rank, wanted.reference_rank)
        torch.testing.assert_close(found.kl, wanted.kl, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.accept, wanted.accept, rtol=1e-5, atol=1e-6)


def test_padding_is_left_out_and_its_mass_is_told() -> None:
    """Rows that the tokenizer cannot name may hold anything: neither KL nor accept move."""
    hidden, weight, reference_hidden, other = heads(600, 600)
    padded = torch.cat([other, 3 * torch.randn(40, 8)])
    plain, _ = scored((hidden, weight, reference_hidden, other), entries=600)
    found, pair = scored((hidden, weight, reference_hidden, padded), entries=600)
    torch.testing.assert_close(found.kl, plain.kl)
    assert torch.equal(found.reference_top, plain.reference_top)
    mass = (reference_hidden @ padded.T).double().softmax(1)[:, 600:].sum(1).max()
    assert pair.padding.tolist() == pytest.approx([0.0, float(mass)], rel=1e-4)


def test_the_same_model_differs_by_nothing() -> None:
    hidden, weight, _, _ = heads(600, 600)
    found, _ = scored((hidden, weight, hidden, weight), entries=600)
    assert (found.kl.max(), found.accept.min()) == (0.0, pytest.approx(1.0, abs=1e-6))
    assert torch.equal(found.reference_top, found.top)
    assert (found.reference_rank == 1).all()


def test_masked_entries_count_for_nothing() -> None:
    """Entries that both heads leave out (candidates=tokenizer) have no part in KL."""
    hidden, weight, reference_hidden, other = heads(600, 600)
    holes = [3, 44]
    scorer, reference = (Scorer(Head(one).without(holes), chunk_tokens=9) for one in (weight, other))
    pair = PairScorer(scorer, reference, entries=600)
    found = pair(hidden, reference_hidden, torch.arange(60) + 100)
    keep = torch.tensor([i for i in range(600) if i not in holes])
    log_p = (hidden.double() @ weight.double().T)[:, keep].log_softmax(1)
    log_q = (reference_hidden.double() @ other.double().T)[:, keep].log_softmax(1)
    torch.testing.assert_close(found.kl.double(), (log_q.exp() * (log_q - log_p)).sum(1), rtol=1e-5, atol=1e-6)
    assert not torch.isin(found.reference_top, torch.tensor(holes)).any()


ASKED = ("dataset=pydocs", "dataset.documents=12", "k=1,10")


@pytest.fixture(scope="module")
def compared(program: Program, empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Two nano models measured plainly, and both with a reference in chunks of another size."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "mlruns").mkdir()
    shutil.copyfile(empty_store, folder / "mlruns/mlflow.db")
    models = ("-m", "model=nano/6k,nano/15k", *ASKED, "analyzers=[]")
    said = ""
    for more in ((), ("reference=nano/115k", "engine.chunk_tokens=50")):
        done = program(*models, *more, cwd=folder)
        assert done.returncode == 0, done.stderr + done.stdout
        said += done.stdout
    return folder, said


def runs_of(folder: Path) -> Runs:
    return Store(TrackingConfig(uri=f"sqlite:///{folder / 'mlruns/mlflow.db'}")).reader.runs(FilterConfig())


def test_the_program_compares_two_models(compared: tuple[Path, str]) -> None:
    """In one pass; each has the ranks that it has alone, and KL is that of both models' own full logits."""
    folder, said = compared
    assert "nano-6k / pydocs, reference=nano-115k measured" in said
    runs = runs_of(folder)
    frame = runs.frame.set_index("run_id")
    both = frame[frame["model"] == "nano-6k"].sort_values("reference", na_position="first")
    plain, beside = (runs.ranks(run_id) for run_id in both.index)
    assert all((beside.column(name) == plain.column(name)).all() for name in ("token", "greater", "ties", "top"))
    assert abs(beside.column("logprob") - plain.column("logprob")).max() < 1e-4
    row = both.iloc[1]
    assert (row["reference"], frame["reference"].notna().sum()) == ("nano-115k", 2)
    assert row["kl"] == pytest.approx(float(beside.column("kl").astype(float).mean()))
    stored = Store(TrackingConfig(uri=f"sqlite:///{folder / 'mlruns/mlflow.db'}")).reader.run(str(both.index[1]))
    assert row["fingerprint"] in (identities(stored.params) or ())  # as `verify` holds it against the params
    assert row["same_top"] == pytest.approx(float((beside.column("top") == beside.column("reference_top")).mean()))
    cell = Resolver().resolve(sweep_of(measuring(["model=nano/6k", *ASKED]))[1][0])
    tokens = torch.tensor(cell.load_corpus().inputs(0)[None, :201].astype(int))  # the first is not scored
    both_logits = [
        AutoModelForCausalLM.from_pretrained(EMBEDDED / "models" / size, dtype=torch.float64)(tokens).logits[0, :-1]
        for size in ("6k", "115k")
    ]
    log_p, log_q = (logits.detach().log_softmax(1) for logits in both_logits)
    kl = torch.tensor(beside.column("kl")[:200], dtype=torch.float64)
    torch.testing.assert_close(kl, (log_q.exp() * (log_q - log_p)).sum(1), atol=1e-5, rtol=1e-4)


def test_no_law_counts_a_model_twice(compared: tuple[Path, str]) -> None:
    notes: list[Any] = []
    (family,) = families(runs_of(compared[0]), notes)
    assert (len(family.rows), family.rows["reference"].notna().sum(), notes) == (2, 0, [])


def test_a_bundle_keeps_the_comparison_and_no_text(
    compared: tuple[Path, str], program: Program, with_store: Path
) -> None:
    """Exported without ids, imported, verified: kl and accept are there, the reference's tokens are not."""
    folder, _ = compared
    done = program("export", f"out={with_store / 'a.zip'}", cwd=folder)
    assert done.returncode == 0, done.stderr
    done = program("import", "a.zip", cwd=with_store)
    assert done.returncode == 0, done.stderr
    assert program("verify", "read_data=true", cwd=with_store).returncode == 0
    runs = runs_of(with_store)
    row = runs.frame[runs.frame["reference"].notna()].iloc[0]
    table = runs.ranks(row["run_id"])
    assert set(table.column("reference_top")) == {-1}
    assert row["kl"] == pytest.approx(float(table.column("kl").astype(float).mean()))
    assert program("export", "ranks=parquet", "out=t.parquet", cwd=with_store).returncode == 0
    exported = pd.read_parquet(with_store / "t.parquet")
    assert exported["kl"].notna().sum() == exported["kl"].size / 2
    assert "reference_top" not in exported


def other_tokenizer(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a nano model whose tokenizer.json was changed."""
    shutil.copytree(EMBEDDED / "models/15k", folder)
    said = json.loads((folder / "tokenizer.json").read_text())
    change(said)
    (folder / "tokenizer.json").write_text(json.dumps(said))
    return folder


def swap(said: dict[str, Any]) -> None:
    vocabulary = said["model"]["vocab"]
    first, second = list(vocabulary)[300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]


def lower(said: dict[str, Any]) -> None:
    said["normalizer"] = {"type": "Lowercase"}


@pytest.mark.parametrize(
    ("change", "more", "why"),
    [
        (swap, (), "has another vocabulary (2 tokens differ)"),
        (lower, (), "has another tokenizer (its normalizer)"),
        (None, ("reference=nano/9m",), "no reference matches nano/9m. Did you mean nano/2m?"),
        (None, ("reference=nowhere/at-all/5",), "no reference matches nowhere/at-all/5"),
        (None, ("reference=nano/2m", "model.device_map=auto"), "needs both models whole on one device"),
        (None, ("reference=nano/2m", "engine.kernel=fused"), "needs logits, which engine.kernel=fused does without"),
        (None, ("reference=nano/2m", "engine.columns=false"), "give one of them"),
        (None, ("reference=nano/2m", "reference.device=cuda"), "the reference runs where the model does"),
        (None, ("reference.dtype=bfloat16",), "which reference? Give reference=MODEL, too"),
    ],
)
def test_a_reference_that_cannot_be_one_is_refused(
    change: Callable[[dict[str, Any]], None] | None, more: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    more = more or (f"reference={other_tokenizer(tmp_path / 'other-15k', change)}",)  # type: ignore[arg-type]
    with pytest.raises(BadInput) as refused:
        Resolver().resolve(sweep_of(measuring(["model=nano/6k", *ASKED, *more]))[1][0])
    assert why in str(refused.value)
    assert len(str(refused.value)) < 320


def test_a_reference_is_part_of_what_is_measured() -> None:
    """Its weights and precision are in the fingerprint, which without one is what it was."""

    def found(*more: str) -> str:
        return Resolver().resolve(sweep_of(measuring(["model=nano/6k", *ASKED, *more]))[1][0]).fingerprint

    every = [found(), found("reference=nano/15k"), found("reference=nano/15k", "reference.dtype=bfloat16")]
    assert len(set(every)) == 3
    assert found(f"reference={EMBEDDED / 'models/15k'}") == every[1]


def test_what_it_costs_counts_both() -> None:
    """A plan, and the GPUs of a job, hold both models."""
    resolver, sizes = Resolver(), Size(1, 1000, 1000, estimated=False)
    alone, other, both = (
        resolver.resolve(sweep_of(measuring([*ASKED, *words]))[1][0])
        for words in (("model=nano/6k",), ("model=nano/115k",), ("model=nano/6k", "reference=nano/115k"))
    )
    assert operations(both, sizes) == (operations(alone, sizes) or 0) + (operations(other, sizes) or 0)
    weights = 4 * (alone.count_parameters().total)
    assert memory_and_gpus(both, 1e12, most=8)[0] == memory_and_gpus(other, 1e12, most=8)[0] + weights
    assert memory_and_gpus(both, 1e5, most=8)[1] is None  # neither is split
