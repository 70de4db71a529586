"""A sample of the survey of architectures: ranks, ties, log-probabilities are those of the full logits, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.architectures import check

RIGHT = [
    "bert", "gemma3", "gpt_oss", "hyperclovax", "llama4_text", "modernbert-decoder", "mpt (logit_scale)",
    "phi3 (longrope, not reached)", "qwen2_vl", "recurrent_gemma", "rembert", "llava",
    *(pytest.param(name, marks=pytest.mark.long) for name in ("bloom", "falcon", "inkling_text", "mixtral", "mpt")),
]  # fmt: skip
REFUSED = {
    "bert (is_decoder=False)": "depend on later tokens",
    "cpmant": "depend on later tokens",
    "llama (is_causal=False)": "depend on later tokens",
    "phi3 (longrope)": "reads at most 16 tokens at a time",
    "prophetnet": "reads several streams",
}


@pytest.mark.parametrize("name", RIGHT)
def test_measured_as_the_model_itself_says(name: str, tmp_path: Path) -> None:
    assert check(name, tmp_path) == ("right", "", True)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_a_line(name: str, tmp_path: Path) -> None:
    state, said, _ = check(name, tmp_path)
    assert state == "refused"
    assert REFUSED[name] in said
    assert "\n" not in said
