"""The benches on small shapes: what they say is what was asked, and the arithmetic behind it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from rbptrack.base.errors import BadInput
from rbptrack.bench.precision import TF32, to_tf32
from rbptrack.bench.shapes import random_corpus, random_model
from rbptrack.commands import bench


def test_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "speed.json"
    arguments = ["model=pythia-14m", "vocabulary=2000", "tokens=600", "seq_len=64", "rounds=2", f"out={out}"]
    assert bench.main(arguments) == 0
    (speed,) = json.loads(out.read_text())["speed"]
    assert set(speed["seconds"]) == {"bare", "plain", "ours", "brief", "backbone"}
    assert speed["flops_per_token"] == 2 * 6 * 198_272 + 2 * 256 + 2 * 128 * 2000  # 12 d^2 + 13 d per layer, last norm
    for way, seconds in speed["rounds"].items():
        assert len(seconds) == 2
        ratios = sorted(b / t for b, t in zip(speed["rounds"]["bare"], seconds, strict=True))
        assert speed["ratios"][way] == pytest.approx(sum(ratios) / 2)
    pairs = zip(speed["rounds"]["ours"], speed["rounds"]["brief"], strict=True)
    assert speed["columns"] == pytest.approx(sum(ours / brief - 1 for ours, brief in pairs) / 2)
    work = speed["flops_per_token"] * speed["scored"]
    assert speed["share"] >= 0.9 * min(work / speed["rate"] / t for t in speed["rounds"]["ours"])
    kept = json.loads(out.read_text())["keeping"]
    assert 10 < kept["syncs"] < 50
    assert 0 < kept["seconds"] < kept["whole"]
    shown = capsys.readouterr().out
    assert "keeping a measurement of 500,000 tokens: " in shown
    assert "pythia-14m: " in shown
    assert ("none here: nothing was run on one" in shown) != torch.cuda.is_available()


def test_speeds_at_different_clocks_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a GPU that heats up; here the clock is made up."""
    monkeypatch.setattr("rbptrack.bench.keeping.TOKENS", 1000)
    clocks = itertools.cycle([{1200}, {1980}])
    monkeypatch.setattr("rbptrack.bench.machine.clock", lambda device: next(clocks))
    assert bench.main(["model=pythia-14m", "vocabulary=500", "tokens=100", "seq_len=64", "rounds=1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "scored by plain torch" in shown
    assert "the GPU's clock went from 1200 to 1980 MHz: speeds are not compared" in shown


def test_precision_of_the_nano_family(tmp_path: Path) -> None:
    out = tmp_path / "precision.json"
    assert bench.main(["precision", "model=nano/15k", "tokens=800", f"out={out}"]) == 0
    rows = {row["variant"]: row for row in json.loads(out.read_text())["precision"]}
    assert rows["float32"]["moved"] == 0
    assert rows["float32"]["tie_rate"] < 1e-3
    assert rows["bfloat16 logits"]["tie_rate"] > 0.1 > rows["bfloat16"]["tie_rate"]
    assert 0 < rows["tf32"]["moved"] < rows["bfloat16"]["moved"]


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

    monkeypatch.setattr("rbptrack.bench.precision.to_tf32", count)
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
        (["model=nano/7k"], "no model matches nano/7k"),
        (["ways=bare,best"], "no way is called best. Options: bare, plain, ours"),
        (["engine.kernel=fused", "device=cpu", "vocabulary=500"], "engine.kernel=fused needs a CUDA device and Triton"),
        (["rounds=0"], "rounds must be at least 1; got 0"),
        (["speed=1"], "no option speed."),
        (["out=/nowhere/x.json"], "out=/nowhere/x.json: its folder does not exist"),
        (["precision", "model=pythia-14m"], "no model matches pythia-14m. Did you mean"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_bad_input(arguments: list[str], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        bench.main(arguments)
    assert words in str(refused.value)
