"""Tests of tables in LaTeX and of the paragraph on methods."""

from __future__ import annotations

import pandas as pd
import pytest

from rbptrack.analysis import Runs
from rbptrack.analysis.testing import example_runs
from rbptrack.reporting import describe_methods, latex_table
from tests.reporting.law_reports import TABLE_WITH_SPECIAL_CHARACTERS


def test_latex_table_escapes_texts_and_aligns_numbers_on_the_right() -> None:
    assert r"50\%\_x &  \\" in latex_table(TABLE_WITH_SPECIAL_CHARACTERS, "100%")
    table = latex_table(pd.DataFrame({"metric": ["RBP_10"], "α": ["-0.1 (-0.2 to 0.0)"], "n": [3]}), "n_1")
    assert r"\begin{tabular}{lrr}" in table
    assert r"RBP$_{10}$ & $-$0.1 ($-$0.2 to 0.0) & 3 \\" in table
    assert r"\caption{n\_1}" in table
    assert r"\toprule" in table


@pytest.mark.parametrize(
    ("columns", "named", "not_named"),
    [
        ({"engine": "transformers", "rank": "paper"}, "logits in float32,", "strict"),
        ({"engine": "vllm 0.32.0", "head_dtype": "bfloat16"}, "by vllm 0.32.0 from logits in bfloat16,", "float32,"),
        ({"engine": "vllm"}, "logits in unknown precision,", "float32,"),
        ({"engine": "transformers", "rank": "strict"}, "strict rank", "equation 3"),
        ({"engine": "transformers", "candidates": "tokenizer"}, "candidates=tokenizer", "strict"),
    ],
)
def test_methods_name_the_definition_of_rank_and_the_precision_of_logits(
    columns: dict[str, str], named: str, not_named: str
) -> None:
    runs = example_runs()
    text = describe_methods(Runs(runs.frame.assign(**{"head_dtype": pd.NA, **columns}), runs.store))
    assert named in text
    assert not_named not in text
