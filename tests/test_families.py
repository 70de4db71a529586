from __future__ import annotations

import numpy as np
import pytest

from rbptrack.analysis import Runs, Unreadable
from rbptrack.analysis.families import Family, families, read_families
from tests.synthetic import changed, family_runs, together

SIZES = np.geomspace(1e4, 1e7, 6)


def with_value(runs: Runs, rows: list[int], column: str, value: object) -> Runs:
    runs.frame.loc[rows, column] = value
    return runs


def test_a_family_is_its_sizes_in_order() -> None:
    notes: list[str] = []
    (family,) = families(family_runs(SIZES[::-1], alpha=0.1, a=3.0), notes)
    assert str(family) == "toy on text"
    assert notes == []
    np.testing.assert_allclose(family.s, SIZES.astype(np.int64))
    assert family.run_ids == [[f"toy-text-{i}"] for i in range(5, -1, -1)]
    assert (np.diff(family.column("ce")) < 0).all()
    assert np.isnan(family.column("never_logged")).all()


@pytest.mark.parametrize(
    ("column", "value", "label"),
    [
        ("dtype", "bfloat16", "toy bfloat16"),
        ("sequence", "truncate", "toy truncate"),
        ("seq_len", 512, "toy seq_len 512"),
        ("context", 64, "toy context 64"),
        ("documents_hash", "0123456789", "toy texts 01234567"),
        ("num_tokens", 7, "toy tokens 7"),
        ("candidates", "tokenizer", "toy candidates tokenizer"),
        ("rank", "strict", "toy rank strict"),
    ],
)
def test_runs_that_do_not_compare_are_taken_apart_and_said(column: str, value: object, label: str) -> None:
    notes: list[str] = []
    runs = with_value(family_runs(SIZES, alpha=0.1, a=3.0), [0, 1], column, value)
    large, small = families(runs, notes)
    assert (len(large.s), len(small.s), small.name) == (4, 2, label)
    assert f"toy on text: its runs mix {column} (" in notes[0]
    assert ": 4 runs, " in notes[0]
    assert [len(f.s) for f in families(runs, notes, least=3)] == [4]
    assert f"{label} on text: the law needs at least 3 sizes, and there are 2." in notes


def test_checkpoints_are_laws_of_their_own_but_a_revision_per_size_is_not() -> None:
    notes: list[str] = []
    runs = together(
        with_value(family_runs(SIZES, alpha=0.1, a=3.0), list(range(6)), "revision", "step1000"),
        with_value(family_runs(SIZES, alpha=0.1, a=3.0, family="x", seed=2), list(range(6)), "revision", "step2000"),
    )
    runs.frame["family"] = "toy"
    assert [f.name for f in families(runs, notes)] == ["toy step1000", "toy step2000"]
    single = family_runs(SIZES, alpha=0.1, a=3.0)
    single.frame["revision"] = [f"r{i}" for i in range(6)]
    assert [f.name for f in families(single, notes)] == ["toy"]


def test_the_same_size_twice_is_averaged_and_said() -> None:
    notes: list[str] = []
    runs = together(family_runs(SIZES, alpha=0.1, a=3.0), family_runs(SIZES[:1], alpha=0.1, a=3.0, family="x", seed=5))
    runs.frame["family"] = "toy"
    (family,) = families(runs, notes)
    ((family, counts),) = read_families(runs, lambda _, run_id: runs.document_counts(run_id, [1, 10]), notes)
    assert set(notes) == {"toy on text: 2 runs of 10000; the mean over the runs of a size is used."}
    twice = runs.frame[runs.frame["size"] == "10000"]["rbp_10"]
    total = counts[0].sums.sum(axis=0)
    assert total[3] / total[0] == pytest.approx(twice.mean())
    assert len(counts) == 6
    assert family.column("rbp_10")[0] == pytest.approx(twice.mean())


def test_a_damaged_artifact_is_named_and_left_out() -> None:
    notes: list[str] = []
    good = family_runs(SIZES, alpha=0.1, a=3.0)

    def ranks(run_id: str) -> object:
        if run_id == "toy-text-2":
            raise OSError("Parquet magic bytes not found in footer")
        return good.ranks(run_id)

    runs = changed(good, ranks=ranks)
    ((family, counts),) = read_families(runs, lambda _, run_id: runs.document_counts(run_id, [1]), notes)
    assert (len(family.s), len(counts)) == (5, 5)
    assert notes == [
        "toy-158489 on text is left out: an artifact of run toy-text-2 is damaged or cannot be reached: "
        "Parquet magic bytes not found in footer"
    ]
    assert not list(read_families(runs, lambda _, run_id: runs.document_counts(run_id, [1]), notes, least=6))
    assert notes[-1] == "toy on text: only 5 of 6 sizes can be read, and at least 6 are needed."


def test_a_family_of_which_nothing_can_be_read_is_said_without_a_count() -> None:
    def load(_: Family, run_id: str) -> int:
        raise Unreadable("not kept")

    notes: list[str] = []
    assert not list(read_families(family_runs(SIZES, alpha=0.1, a=3.0), load, notes))
    assert notes[-1] == "toy on text: none of its sizes can be read."


def test_a_model_without_a_size_is_left_out() -> None:
    notes: list[str] = []
    runs = family_runs(SIZES, alpha=0.1, a=3.0)
    runs.frame.loc[1, "non_embedding_params"] = None
    assert len(families(runs, notes)[0].s) == 5
    assert notes == ["toy on text: without a size S, left out: toy-39811."]
