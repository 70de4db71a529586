"""The reduction of logits as torch compiles it: 20 s the first time."""

import pytest
import torch

from rbptrack.scoring.scorer import choose_reduction, compiled_reduction, eager_reduction


@pytest.mark.filterwarnings("ignore")  # of torch's compiler
def test_torch_compiles_the_reduction() -> None:
    """On a CPU here: the same numbers from one compiled function for any number of tokens."""
    logits = torch.randn(30, 700).round()
    used, why = choose_reduction(compiled_reduction(), logits, logits[:, :1])
    if "compile" in why:
        pytest.skip(why)
    assert used is compiled_reduction()
    more = torch.randn(11, 700)
    for got, want in zip(used(more, more[:, :1]), eager_reduction(more, more[:, :1]), strict=True):
        torch.testing.assert_close(got, want)
