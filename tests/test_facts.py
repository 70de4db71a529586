"""The table of facts: what identifies a measurement, and which measurements share a law."""

from __future__ import annotations

from rbptrack.analysis.rules import ImportedRow
from rbptrack.config.schema import Config, DatasetConfig, KConfig, ModelConfig
from rbptrack.facts import COLUMNS, FACTS, IMPORTABLE, MAY_DIFFER, Agree
from rbptrack.sweep.cells import identity_of

MODEL = ModelConfig(family="pythia", size="70m")


def identity() -> dict[str, object]:
    config = Config(model=MODEL, dataset=DatasetConfig(name="wiki", seq_len=64), k=KConfig(values=[1]), reference=MODEL)
    return identity_of(config, weights="w", tokenizer="t", tokenizer_rules="r", texts="x", reference="r")


def test_every_key_of_the_identity_is_shown_and_must_agree_or_may_differ_for_a_reason() -> None:
    shown = {key for fact in FACTS for key in fact.identity}
    agreeing = {key for fact in FACTS if fact.agree is not Agree.NOBODY for key in fact.identity}
    assert shown == set(identity())
    assert agreeing | MAY_DIFFER.keys() == shown


def test_each_fact_has_one_row_and_a_meaning() -> None:
    assert len(COLUMNS) == len(FACTS)
    assert all(fact.meaning and set(fact.follows) <= COLUMNS.keys() for fact in FACTS)


def test_a_table_of_results_may_contain_exactly_the_importable_facts() -> None:
    assert set(ImportedRow.model_fields) == set(IMPORTABLE)
