"""Tests of `compare`."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

import rbptrack
from rbptrack.base.errors import BadInput
from rbptrack.config.paths import embedded
from tests.api.conftest import TEXTS, Nano


@pytest.mark.usefixtures("empty_folder")
def test_compare_of_measurements_in_memory_equals_that_of_logged_ones(nano: Nano) -> None:
    other = AutoModelForCausalLM.from_pretrained(embedded("models/15k"), dtype=torch.float32)
    first = rbptrack.measure(*nano, TEXTS, seq_len=64, family="a")
    second = rbptrack.measure(other, nano[1], TEXTS, seq_len=64, family="b")
    report = rbptrack.compare(first, second, k=[1, 7])
    changes = report.frame("change").set_index("metric")["change"]
    assert changes["ce"] == pytest.approx(second.ce - first.ce)
    assert changes["rbp_7"] == pytest.approx(second.rbp(7) - first.rbp(7))
    names = [each.name.replace(" ", "") for each in (first, second) if each.log()]
    pd.testing.assert_frame_equal(rbptrack.compare(*names, k=[1, 7]).results, report.results)
    assert set(report.figures) == {"changes", "curves"}
    with pytest.raises(BadInput):
        rbptrack.compare(first, "b")
    with pytest.raises(BadInput):
        rbptrack.compare(first, first)


@pytest.mark.usefixtures("empty_folder")
def test_compare_in_memory_counts_copies_of_a_document_as_one(nano: Nano) -> None:
    texts = [" ".join(str(number * 7919**power % 99991) for power in range(20)) for number in range(1, 31)] * 2
    other = AutoModelForCausalLM.from_pretrained(embedded("models/15k"), dtype=torch.float32)
    first = rbptrack.measure(*nano, texts, seq_len=64, family="a")
    second = rbptrack.measure(other, nano[1], texts, seq_len=64, family="b")
    assert first.measurement.groups == 30
    report = rbptrack.compare(second, first)  # CE rises, so the report has documents
    names = [each.name.replace(" ", "") for each in (second, first) if each.log()]
    logged = rbptrack.compare(*names)
    pd.testing.assert_frame_equal(report.results, logged.results)
    pd.testing.assert_frame_equal(report.tables["worst_documents"], logged.tables["worst_documents"])
    assert report.notes == logged.notes
