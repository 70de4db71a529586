"""The Triton kernels against the definition: in Triton's interpreter, or on a GPU where there is one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rbptrack.bench.shapes import random_corpus, random_model
from rbptrack.config.schema import EngineConfig
from rbptrack.engine.measure import measure
from rbptrack.models.causal import CausalModel
from rbptrack.scoring import kernels
from rbptrack.scoring.scorer import Head, Scorer, reference
from tests.conftest import ROOT
from tests.patience import PATIENCE

pytest.importorskip("triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


# Of products; the interpreter rounds nothing to TF32, and takes the two half precisions alike.
KINDS = ["float32", "tf32", "bfloat16", *(["float16"] if DEVICE.type == "cuda" else [])]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """What the head's products are made of: float32 by cuBLAS and then reduced, all others fused."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if request.param == "tf32" else "highest")
    yield request.param
    torch.set_float32_matmul_precision(before)


def dtype_of(kind: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, kind, torch.float32)
    return dtype


@pytest.mark.parametrize(
    ("tokens", "vocabulary", "width", "bias", "softcap", "scale"),
    [
        (70, 300, 24, True, 5.0, 0.5),  # no size divides the tile
        (1, 129, 16, False, None, 1.0),
        (64, 128, 32, True, None, 2.0),  # every size does
        (40, 4500, 40, False, 3.0, 1.0),  # several programs share the vocabulary
    ],
)
def test_kernels_equal_the_definition(
    tokens: int,
    vocabulary: int,
    width: int,
    bias: bool,
    softcap: float | None,
    scale: float,
    kind: str,
) -> None:
    dtype = dtype_of(kind)
    generator = torch.Generator().manual_seed(tokens)
    hidden = torch.randn(tokens, width, generator=generator).to(dtype).to(DEVICE)
    weight = torch.randn(vocabulary, width, generator=generator).to(dtype).to(DEVICE)
    offset = torch.randn(vocabulary, generator=generator).to(dtype).to(DEVICE) if bias else None
    targets = torch.randint(vocabulary, (tokens,), generator=generator).to(DEVICE)
    weight[7], targets[0] = weight[3], 7  # two entries that always tie
    if offset is not None:
        offset[7] = offset[3]
    head = Head(weight, offset, softcap, scale)
    scorer = Scorer(head, chunk_tokens=32, kernel=True, fused=kind != "float32")
    got, want = scorer(hidden, targets), reference(head.logits(hidden), targets)
    tolerance = 1e-2 if kind == "tf32" and DEVICE.type == "cuda" else 2e-5
    for name in ("logprob", "entropy", "top_logprob"):
        torch.testing.assert_close(getattr(got, name), getattr(want, name), rtol=tolerance, atol=tolerance)
    assert (got.top != want.top).float().mean() <= 0.05
    assert got.ties[0] >= 1
    assert (got.ties >= 0).all()
    # Sums in another order: a rank may swap with a neighbour.
    assert ((got.greater - want.greater).abs() <= (1 if tolerance < 1e-3 else vocabulary // 50)).all()
    assert (got.greater != want.greater).float().mean() <= 0.05
    assert {t.dtype for t in (got.greater, got.ties, got.top)} == {torch.int32}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in the interpreter
@pytest.mark.parametrize("fused", [True, False])
def test_entries_that_are_ruled_out_and_entries_that_tie(fused: bool) -> None:
    """Whole tiles of -inf first, as a mask gives them; of equal logits, the smallest id is the top."""
    hidden, weight = torch.ones(3, 16, device=DEVICE).bfloat16(), torch.zeros(5000, 16, device=DEVICE).bfloat16()
    bias = torch.zeros(5000, device=DEVICE).index_fill_(0, torch.arange(4200, device=DEVICE), float("-inf"))
    bias[[4321, 4999]] = 2.0
    targets = torch.tensor([4999, 4321, 4300], device=DEVICE)
    got = Scorer(Head(weight, bias), chunk_tokens=2, kernel=True, fused=fused)(hidden, targets)
    want = reference(bias.expand(3, -1), targets)
    torch.testing.assert_close(got.columns, want.columns, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in the interpreter
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_logits_are_visible(bad: float, kind: str) -> None:
    hidden = torch.randn(3, 16, device=DEVICE).to(dtype_of(kind))
    hidden[1, 2] = bad
    head = Head(torch.randn(200, 16, device=DEVICE).to(dtype_of(kind)))
    scores = Scorer(head, chunk_tokens=16, kernel=True, fused=True)(hidden, torch.tensor([0, 1, 2], device=DEVICE))
    assert torch.isfinite(scores.logprob).tolist() == [True, False, True]


def proving_model(dtype: torch.dtype, *, near: bool = False) -> CausalModel:
    """A model whose hidden states are its embeddings."""
    generator = torch.Generator().manual_seed(0)
    embedding = torch.randn(200, 32, generator=generator).to(dtype).to(DEVICE)
    weight = torch.randn(200, 32, generator=generator).to(dtype)
    if near:  # every entry has six others so near that sums in another order may change their places
        weight = weight[:25].repeat(8, 1)
    head = Head(weight.to(DEVICE))
    model = random_model("pythia-14m", device=DEVICE, dtype=dtype, vocabulary=200)
    return replace(model, head=head, backbone=lambda tokens: embedding[tokens])


@pytest.mark.parametrize(  # the reducing kernel, the fused one
    ("dtype", "fault"),
    [*((torch.float32, fault) for fault in ("near", "counts", "nats", "raises")),
     *((torch.bfloat16, fault) for fault in ("", "near", "counts"))],
)  # fmt: skip
def test_a_broken_kernel_is_found_and_not_used(
    fault: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "reduce" if dtype == torch.float32 else "score"
    sound = getattr(kernels, name)

    def broken(*arguments: Any, **options: Any) -> Any:
        if fault == "raises":
            raise RuntimeError("PTX was compiled with an unsupported toolchain\nand more")
        scores = sound(*arguments, **options)
        greater, highest = (scores.greater, scores.logprob) if scores else (arguments[2], arguments[5])
        greater += 3 if fault == "counts" else 0
        greater.sub_(3 if fault == "near" else 0).clamp_(min=0)
        highest -= 0.1 if fault == "nats" else 0.0
        return scores

    monkeypatch.setattr(kernels, name, broken)
    monkeypatch.setattr(kernels, "available", lambda device: True)
    corpus = random_corpus(tokens=300, seq_len=32, vocab_size=200)
    model = proving_model(dtype, near=fault == "near")
    engine = EngineConfig(batch_tokens=100, threads=1)
    got = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path / "kernel")
    monkeypatch.setattr(kernels, "available", lambda device: False)
    want = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path / "torch")
    assert not want.notes
    np.testing.assert_allclose(got.ranks.column("logprob"), want.ranks.column("logprob"), rtol=0, atol=1e-4)
    assert (np.abs(got.ranks.rank - want.ranks.rank) <= (3 + 8 if fault == "near" else 1)).all()
    fault = fault.replace("near", "")  # explained
    said = {"": "", "counts": "ranks differ .* by up to 3 places", "nats": "by up to 0.1 nats", "raises": "PTX"}[fault]
    assert len(got.notes) == bool(fault)
    assert not fault or re.search(f"plain torch scored instead of the Triton kernel: .*{said}", got.notes[0])
    assert "\n" not in "".join(got.notes)


def test_no_tokens() -> None:
    head = Head(torch.randn(200, 16, device=DEVICE).bfloat16())
    empty = torch.zeros(0, 16, device=DEVICE), torch.zeros(0, dtype=torch.int64, device=DEVICE)
    assert Scorer(head, chunk_tokens=16, kernel=True)(*empty).logprob.shape == (0,)


def test_a_cpu_does_without() -> None:
    assert not kernels.available(torch.device("cpu"))
    assert not Scorer(Head(torch.randn(20, 4)), chunk_tokens=16).kernel


COMPILE = """
import re
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from rbptrack.scoring.triton_kernels import head_kernel, reduce_kernel

def compiled(kernel, capability, types, constants, **options):
    names = kernel.arg_names
    signature = {n: types.get(n, "i32") for n in names} | {n: "constexpr" for n in constants}
    constants = {(names.index(n),): v for n, v in constants.items()}
    source = ASTSource(kernel, signature, constants, {})
    options["enable_fp_fusion"] = False
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return made.asm["ptx"], made.metadata.shared, len(made.asm["cubin"])

common = dict(targets="*i64", counts="*i32", sums="*fp32", own="*fp32", scale="fp32", softcap="fp32")
kinds = (80, "bf16", "ieee", 32, 99), (90, "bf16", "ieee", 64, 227), (90, "fp32", "tf32", 32, 227)
for capability, number, precision, step, room in kinds:
    shape = dict(WIDTH=512, HAS_BIAS=True, HAS_SOFTCAP=True, PRECISION=precision, UPCAST=False)
    shape |= dict(BLOCK_T=BT, BLOCK_V=BV, BLOCK_K=step)
    types = common | {n: "*" + number for n in ("hidden", "weight", "bias")}
    ptx, shared, size = compiled(head_kernel, capability, types, shape, num_warps=W, num_stages=S)
    assert re.search(r"wgmma|mma\\.sync", ptx), "no matrix instruction"
    assert shared <= room * 1024, shared
    assert size
integers = dict.fromkeys(("greater", "equal", "top"), "*i32")
numbers = dict.fromkeys(("logits", "own", "maximum", "sum_of_exponentials", "sum_of_products"), "*fp32")
types = integers | numbers
compiled(reduce_kernel, 80, types, {"BLOCK_V": RV}, num_warps=8)
print("compiled")
"""


def test_they_compile_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    """With matrix instructions, and within the shared memory of every GPU since sm_80 (99 KiB; sm_90: 227)."""
    code = COMPILE.replace("BT,", f"{kernels.BLOCK_T},").replace("BV,", f"{kernels.BLOCK_V},")
    code = code.replace("=W,", f"={kernels.WARPS},").replace("=S)", f"={kernels.STAGES})")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path)}
    (tmp_path / "compile_kernels.py").write_text(code.replace("RV}", f"{kernels.REDUCE_V}}}"))
    command = [sys.executable, tmp_path / "compile_kernels.py"]
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert done.stdout.strip() == "compiled", done.stderr[-2000:]
