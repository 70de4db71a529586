"""Tests of the table of facts: which facts identify a measurement, and which must agree in the runs of one law."""

from __future__ import annotations

from rbptrack.analysis.rules import ImportedRow
from rbptrack.config.schema import Config, DatasetConfig, KConfig, ModelConfig
from rbptrack.facts import ALLOWED_DIFFERENCES, DTYPE_BY_COLUMN, FACTS, IMPORTABLE_COLUMNS, Scope
from rbptrack.sweep.cells import cell_identity

MODEL = ModelConfig(family="pythia", size="70m")


def identity() -> dict[str, object]:
    """Return the identity of a measurement with a reference, which has all keys."""
    config = Config(model=MODEL, dataset=DatasetConfig(name="wiki", seq_len=64), k=KConfig(values=[1]), reference=MODEL)
    return cell_identity(config, weights="w", tokenizer="t", tokenizer_rules="r", texts="x", reference="r")


def test_facts_show_every_key_of_the_identity() -> None:
    keys = {key for fact in FACTS for key in fact.identity}
    assert keys == set(identity())


def test_every_key_of_the_identity_must_agree_or_is_listed_with_a_reason() -> None:
    must_agree = {key for fact in FACTS if fact.equal_within is not Scope.NONE for key in fact.identity}
    assert must_agree | ALLOWED_DIFFERENCES.keys() == set(identity())


def test_each_fact_is_one_column_with_a_meaning() -> None:
    assert len(DTYPE_BY_COLUMN) == len(FACTS)
    assert all(fact.meaning for fact in FACTS)


def test_each_fact_follows_only_from_other_columns() -> None:
    assert all(set(fact.determined_by) <= DTYPE_BY_COLUMN.keys() for fact in FACTS)


def test_imported_row_has_exactly_the_importable_facts() -> None:
    assert set(ImportedRow.model_fields) == set(IMPORTABLE_COLUMNS)
