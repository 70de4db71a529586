"""Test of the reduction of logits that torch compiles. The first compilation takes about 20 s."""

import pytest
import torch

from rbptrack.scoring.scorer import choose_reduction, compiled_reduction, eager_reduction


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns
def test_compiled_reduction_equals_eager_reduction_for_another_number_of_tokens() -> None:
    logits = torch.randn(30, 700).round()  # (tokens, vocabulary)
    reduction, reason = choose_reduction(compiled_reduction(), logits, logits[:, :1])
    if "compile" in reason:
        pytest.skip(reason)
    assert reduction is compiled_reduction()
    other_logits = torch.randn(11, 700)
    targets = other_logits[:, :1]
    for value, expected in zip(reduction(other_logits, targets), eager_reduction(other_logits, targets), strict=True):
        torch.testing.assert_close(value, expected)
