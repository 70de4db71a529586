"""The names of the store: what one part of the program writes, every other one reads."""

from __future__ import annotations

from dataclasses import fields

import matplotlib as mpl
import numpy as np
import pytest

from rbptrack.config.compose import Composer
from rbptrack.config.keys import flat
from rbptrack.config.schema import Config
from rbptrack.tracking.params import MeasurementParams, ResolvedParams, param_names, software_versions
from rbptrack.tracking.record import Record, color, for_charts
from rbptrack.tracking.rules import is_result
from rbptrack.tracking.schema import Metric, Tag, analysis_tags, tags_now


def test_params_are_read_as_they_were_written() -> None:
    text = {field.name: f"some {field.name}" for field in fields(MeasurementParams)}
    integers = (
        "non_embedding_params",
        "total_params",
        "reference_params",
        "vocab_size",
        "num_documents",
        "scored_tokens",
        "seq_len",
        "context",
    )
    values = text | dict.fromkeys(integers, 12) | {"tf32": False, "training_tokens": 12}
    params = MeasurementParams(**values)  # type: ignore[arg-type]
    assert set(params.params()) == set(param_names().values())
    assert MeasurementParams.read(params.params()) == params
    assert MeasurementParams.read({"dataset.seq_len": "512.0", "model.repo": ""}).params() == {"dataset.seq_len": "512"}
    assert MeasurementParams.unknown().params() == {}


def test_what_is_not_resolved_stands_in_every_config() -> None:
    """So that the params of the Python API, made of the schema, are those of the command line, made of its config."""
    config: Config = Composer("config", []).compose_typed(["model=nano/6k", "dataset=pydocs"])
    assert set(param_names().values()) - set(param_names(ResolvedParams).values()) <= set(flat(config))


def test_names_of_others_results() -> None:
    names = [Metric.CE, "ce_se", "rbp_10", "rbp_10_se", "tie_rate", "bits_per_byte", "num_tokens"]
    assert all(map(is_result, names))
    assert not any(map(is_result, ["model", "rbp_curve", "neg_log_rbp_1", "tokens_per_second", "rbp_0"]))


def test_an_analysis_names_what_it_read_as_far_as_a_tag_holds() -> None:
    tags = analysis_tags("power_law", "s", [f"{i:032x}" for i in range(1000)])
    assert (tags["rbptrack.kind"], tags["rbptrack.analyzer"], tags["rbptrack.sweep"]) == ("analysis", "power_law", "s")
    assert len(tags["rbptrack.sources"]) == 8000
    assert "rbptrack.sources" not in analysis_tags("report", "s")
    assert {"versions.torch", "versions.scoring"} < set(software_versions())


def test_charts_get_the_laws_coordinates_by_dataset_and_a_run_opens_on_its_results() -> None:
    metrics = {"ce": 10.0, "rbp_1": float(np.exp(-100)), "rbp_10": 1.0, "log10_non_embedding_params": 6.0}
    record = Record("", {"rbptrack.dataset": "my@set"}, {"model.training_tokens": "3e11"}, metrics)
    assert for_charts(record) == pytest.approx(
        {
            "Results/CE": 10.0,
            "Results/RBP_1": metrics["rbp_1"],
            "Results/RBP_10": 1.0,
            "law/log10 S": 6.0,
            "law/log10 training tokens": np.log10(3e11),
            "law/my:40set/log10 CE": 1.0,
            "law/my:40set/log10 -ln RBP_1": 2.0,
        }
    )


def test_tags_that_serve_the_program_are_read_by_both_names() -> None:
    before = {"rbptrack.process": "1", "rbptrack.heartbeat": "1", "rbptrack.model": "a-1"}
    assert tags_now(before) == {Tag.PROCESS: "1", Tag.HEARTBEAT: "1", "rbptrack.model": "a-1"}
    continued = {Tag.PROCESS: "2"} | before
    assert tags_now(continued)[Tag.PROCESS] == tags_now(before | {Tag.PROCESS: "2"})[Tag.PROCESS] == "2"
    hidden = (Tag.PROCESS, Tag.HEARTBEAT, Tag.RESUMED)
    assert all(tag.startswith("mlflow.") for tag in hidden), "MLflow's page shows no tag of this prefix"


def test_families_differ_in_hue_and_sizes_in_lightness() -> None:
    def rgb(family: str, log10_s: float) -> tuple[float, ...]:
        record = Record("", {"rbptrack.family": family}, {}, {"log10_non_embedding_params": log10_s})
        return mpl.colors.to_rgb(color(record)["mlflow.runColor"])

    families = ("nano", "pythia", "gpt2", "opt", "qwen2.5")
    assert len({rgb(family, 8.0) for family in families}) == 5
    assert all(sum(rgb(family, 4.0)) > sum(rgb(family, 10.0)) for family in (*families, "mine"))
    assert color(Record("", {}, {}, {})) == {}
