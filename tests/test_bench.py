"""The benches on small shapes: what they say is what was asked, and the arithmetic behind it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from rbptrack.base.errors import BadInput
from rbptrack.bench import speed
from rbptrack.bench.shapes import random_corpus, random_model
from rbptrack.commands import bench
from rbptrack.config.schema import EngineConfig
from rbptrack.scoring.scorer import Scorer
from rbptrack.scoring.scores import Sums
from tools import gpu_proof, keeping, precision
from tools.precision import TF32, to_tf32


def test_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "speed.json"
    arguments = ["model=pythia-14m", "vocabulary=2000", "tokens=600", "seq_len=64", "rounds=2", f"out={out}"]
    assert bench.main(arguments) == 0
    (speed,) = json.loads(out.read_text())["speed"]
    assert set(speed["rounds"]) == {"bare", "ours", "limit"}
    blocks, head = 6 * 198_272 + 2 * 128, 128 * 2000  # 12 d^2 + 13 d of each layer, and the last norm
    read = speed["scored"] + len(random_corpus(tokens=600, seq_len=64, vocab_size=2000).start)  # first tokens too
    assert speed["flops"] == 2 * (blocks * read + head * speed["scored"])
    for clock in ("wall", "processor"):
        rounds = {way: [seconds[clock] for seconds in speed["rounds"][way]] for way in speed["rounds"]}
        for over in ("bare", "limit"):
            ratios = [slow / fast for slow, fast in zip(rounds[over], rounds["ours"], strict=True)]
            assert speed["ours_over"][clock][over] == pytest.approx(sum(ratios) / 2)
    shown = capsys.readouterr().out
    assert "pythia-14m: " in shown
    assert "tok/s (processor)" in shown
    assert ("GPU: none" in shown) != torch.cuda.is_available()


def test_what_slows_the_machine_slows_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order alternates, with a clock that runs slower and slower; and the processor's seconds are its own."""
    order, now = [], itertools.count()
    monkeypatch.setattr(speed, "bare", lambda *_: order.append("bare"))
    monkeypatch.setattr(speed, "ours", lambda *_: order.append("ours"))
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(now) ** 2)
    monkeypatch.setattr(speed.time, "process_time", lambda: 3 * next(now))
    model = random_model("pythia-14m", device=torch.device("cpu"), dtype=torch.float32, vocabulary=50)
    corpus = random_corpus(tokens=20, seq_len=8, vocab_size=50)
    done = speed.compare("x", model, corpus, engine=EngineConfig(threads=1), rounds=2)
    assert order == ["bare", "ours", "bare", "ours", "ours", "bare"]
    first, second = (done.rounds["ours"][i].wall / done.rounds["bare"][i].wall for i in (0, 1))
    assert first > 1 > second
    assert done.rounds["ours"][0].processor == 6
    assert done.ratio("ours", "bare", "processor") == 1


def test_keeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "TOKENS", 1000)
    monkeypatch.setattr(keeping, "_ROUNDS", 1)
    kept = keeping.keeping(tmp_path)
    assert 10 < kept.syncs < 50
    assert 0 < kept.seconds < kept.whole


def test_precision_of_the_nano_family() -> None:
    rows = {row.variant: row for row in precision.main(["nano/15k", "stdlib", "--tokens=800", "--base=float64"])}
    assert rows["float32"].moved <= 2e-3
    assert rows["tf32 split"].moved <= 5e-3
    assert rows["float32"].tie_rate < 1e-3
    assert rows["bfloat16 logits"].tie_rate > 0.1 > rows["bfloat16"].tie_rate
    assert rows["tf32 split"].moved < rows["tf32"].moved < rows["bfloat16"].moved


def test_tf32_rounds_to_nearest() -> None:
    x = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-11 + 2**-20, 1 + 2**-12, -(1 + 2**-11 + 2**-20), 0.0])
    want = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-10, 1.0, -(1 + 2**-10), 0.0])
    assert torch.equal(to_tf32(x), want)


def test_without_rounding_the_simulation_is_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product passes through it, attention's included, and nothing else changes."""
    model = random_model("pythia-14m", device=torch.device("cpu"), dtype=torch.float32, vocabulary=500)
    tokens = torch.arange(60).reshape(2, 30)
    rounded: list[int] = []

    def count(x: torch.Tensor) -> torch.Tensor:
        rounded.append(x.numel())
        return x

    monkeypatch.setattr(precision, "to_tf32", count)
    with torch.inference_mode(), TF32():
        states = model.backbone(tokens)
    with torch.inference_mode():
        torch.testing.assert_close(states, model.backbone(tokens), rtol=1e-5, atol=1e-5)
    assert len(rounded) == 6 * (4 * 2 + 2 * 2)  # layers x (linear maps and attention's two products) x factors


def test_random_documents_are_mixed_and_the_same_again() -> None:
    one, two = (random_corpus(tokens=5000, seq_len=512, vocab_size=100) for _ in range(2))
    assert (one.token == two.token).all()
    assert 5000 <= len(one.token) < 5512
    assert 16 <= one.lengths.min() < 128 < 384 < one.lengths.max() <= 512
    assert one.num_targets == len(one.token) - len(one.start)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model=pythia-15m"], "no shape matches pythia-15m. Did you mean pythia-14m"),
        (["model=nano/6k"], "give dataset=... too"),
        (["seq_len=1"], "seq_len must be at least 2; got 1"),
        (["model=nano/7k"], "no model matches nano/7k"),
        (["engine.kernel=fused", "device=cpu", "vocabulary=500"], "engine.kernel=fused needs a CUDA device and Triton"),
        (["rounds=0"], "rounds must be at least 1; got 0"),
        (["speed=1"], "no option speed."),
        (["out=/nowhere/x.json"], "out=/nowhere/x.json: its folder does not exist"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_bad_input(arguments: list[str], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        bench.main(arguments)
    assert words in str(refused.value)


def test_the_proof_on_a_gpu_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same steps with small shapes; a kernel that counts wrongly is seen."""
    rows = gpu_proof.main(["--device=cpu", f"--out={tmp_path / 'proof'}"])
    assert {row["step"] for row in rows} == {"kernels", "speed", "two batch sizes", "demo"}
    assert not any(row.get("unexplained") for row in rows)
    assert all(row["nats"] < 1e-4 for row in rows if "nats" in row)
    assert json.loads((tmp_path / "proof.json").read_text())["rows"] == rows
    assert "| pythia-14m, float32 |" in (tmp_path / "proof.md").read_text()
    (case, *_) = gpu_proof.heads(gpu_proof.CPU, torch.device("cpu"))
    reduce = Scorer.reduce

    def wrong(self: Scorer, logits: torch.Tensor, own: torch.Tensor, sums: Sums, start: int) -> None:
        reduce(self, logits, own, sums, start)
        sums.counts[0, start + 7] += 5

    monkeypatch.setattr(Scorer, "reduce", wrong)
    assert all(row["unexplained"] for row in gpu_proof.against_float64(*case))
