"""Tests of the measurement that `measure` returns: its words, its plot, its metrics and its log."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pytest

import rbptrack
from rbptrack.api import LoggableMeasurement
from rbptrack.base.errors import BadInput, RbptrackError
from tests.api.conftest import TEXTS, Nano


def test_words_of_a_measurement_hold_its_texts_and_nats(measurement: LoggableMeasurement) -> None:
    words = measurement.words()
    assert set(words["document"]) == {0, 1}
    complete = words.dropna()
    assert (complete["surprisal"] > 0).all()
    assert (complete["worst_rank"] >= 1).all()
    nats = -measurement.ranks.column("logprob").sum()
    assert 0 < complete["surprisal"].sum() <= nats + 1e-6


def test_plot_of_a_measurement_is_shown_without_a_network(measurement: LoggableMeasurement) -> None:
    chart = measurement.plot()
    with alt.renderers.enable("rbptrack"):
        html = dict(chart._repr_mimebundle_())["text/html"]
    assert "vegaEmbed(" in html
    assert not re.findall(r"<script[^>]*src=|import\(|https?://cdn", html)


def test_metrics_of_two_documents_have_no_standard_error(measurement: LoggableMeasurement) -> None:
    assert "ce_se" not in measurement.metrics()


def test_metrics_of_40_documents_have_standard_errors(nano: Nano) -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcdefgh "), size=80)) for _ in range(40)]
    measurement = rbptrack.measure(*nano, texts, seq_len=64, k=[2, 7])
    assert set(measurement.metrics()) == {"ce", "ce_se", "rbp_2", "rbp_2_se", "rbp_7", "rbp_7_se"}
    assert measurement._repr_html_().count("<tr") == 4


@pytest.mark.usefixtures("empty_folder")
def test_log_adds_a_measurement_once(nano: Nano) -> None:
    first = rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two")
    with ThreadPoolExecutor(4) as pool:
        run_ids = set(pool.map(lambda _: first.log(sweep="notebook"), range(4)))
    assert len(run_ids) == 1
    second = rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two")
    assert {second.log()} == run_ids
    assert len(rbptrack.runs(dataset="two")) == 1


@pytest.mark.usefixtures("empty_folder")
def test_log_of_the_same_ranks_under_another_name_makes_no_second_run(nano: Nano) -> None:
    """Names are labels: they are no part of the fingerprint."""
    run_ids = set()
    for family in ("mine", "other"):
        measurement = rbptrack.measure(*nano, TEXTS, seq_len=64, family=family, dataset="two")
        run_ids.add(measurement.log(sweep="notebook"))
    assert len(run_ids) == 1
    assert len(rbptrack.runs(family=["mine", "nobody"])) == 1
    assert len(rbptrack.runs("ce > 0 and family == 'mine'")) == 1


@pytest.mark.parametrize("arguments", [{"sweep": "a\nb"}, {"sweep": 3}, {"experiment": "a\nb"}, {"tracking_uri": 3}])
def test_log_refuses_a_wrong_argument_and_writes_nothing(
    arguments: dict[str, Any], measurement: LoggableMeasurement, empty_folder: Path
) -> None:
    with pytest.raises(BadInput):
        measurement.log(**arguments)
    assert not list(empty_folder.iterdir())


@pytest.mark.usefixtures("empty_folder")
def test_log_without_the_run_that_trains_the_model_logs_the_measurement_and_says_that_it_is_not_linked(
    measurement: LoggableMeasurement,
) -> None:
    with pytest.raises(RbptrackError, match="not linked"):
        measurement.log(training_run_id="0" * 32)
    assert len(rbptrack.runs()) == 1
