"""Measurements chosen in Python: by name, by the beginning of a run ID, by position, by filters."""

from __future__ import annotations

import pickle

import pytest

from rbptrack.analysis.runs import Runs
from rbptrack.analysis.testing import example_runs
from rbptrack.base.errors import BadInput


@pytest.fixture(scope="module")
def runs() -> Runs:
    """alpha in 5 sizes and beta in 4, on code and prose; run IDs are `alpha-100000-code`."""
    return example_runs(documents=4, tokens=20)


def test_runs_iterate_and_index(runs: Runs) -> None:
    rows = list(runs)
    assert [row["run_id"] for row in rows] == list(runs.frame["run_id"])
    assert len(rows) == len(runs) == 18
    by_name, by_prefix, by_slash = runs["beta-400000/prose"], runs["beta-400000-p"], runs["beta/400000 / PROSE"]
    assert by_name["run_id"] == by_prefix["run_id"] == by_slash["run_id"] == "beta-400000-prose"
    assert runs[0]["run_id"] == rows[0]["run_id"]
    assert runs[-1]["run_id"] == rows[-1]["run_id"]
    assert "beta-400000/prose" in runs
    assert "beta-4" in runs
    assert "gamma" not in runs
    with pytest.raises(BadInput, match=r"'beta-400000' is ambiguous: .*Pick one, or pass a run ID"):
        runs["beta-400000"]
    with pytest.raises(BadInput, match=r"no measurement is called gamma\. Available: alpha-100000/code"):
        runs["gamma"]
    with pytest.raises(IndexError):
        runs[18]


def test_ranks_take_the_same_names(runs: Runs) -> None:
    run_id = "beta-400000-prose"
    for name in (run_id, "beta-400000/prose", "beta-400000-p", runs[run_id]):
        assert runs.ranks(name).table == runs.ranks(run_id).table
        assert runs.histogram(name) is runs.histogram(run_id)
        assert runs.document_counts(name, [1, 10]).hits.tolist() == runs.document_counts(run_id, [1, 10]).hits.tolist()
        assert [len(piece) for piece in runs.rank_pieces(name)] == [80]
        assert list(runs.groups(name)) == []
        assert runs.token_texts(name, [3]) == ["id 3"]
    with pytest.raises(BadInput, match="no measurement is called gamma"):
        runs.ranks("gamma")


def test_filters_keep_rows_and_their_ranks(runs: Runs) -> None:
    chosen = runs.filter(family="al*", dataset="!code", size=["100000", "400000", "!4*"])
    assert list(chosen.frame["run_id"]) == ["alpha-100000-prose"]
    assert chosen.ranks(chosen[0]).ce == runs.ranks("alpha-100000-prose").ce
    assert len(runs) == 18
    assert len(runs.filter(model="beta/*")) == 8
    assert len(runs.filter(non_embedding_params=[100_000, 400_000])) == 8
    assert set(runs.filter(model=["!alpha*"]).frame["family"]) == {"beta"}
    with pytest.raises(BadInput, match=r"no column matches famly\. Did you mean family"):
        runs.filter(famly="alpha")
    with pytest.raises(BadInput, match=r"no measurement has family=alfa\. Did you mean alpha"):
        runs.filter(family="alfa")
    with pytest.raises(
        BadInput, match=r"no measurement has seq_len=3\. The store has 201|no measurement has seq_len=3"
    ):
        runs.filter(seq_len=3)


def test_what_derives_from_the_table_is_that_of_the_chosen(runs: Runs) -> None:
    assert runs.document_counts(runs[0], [7]).ks == (7,)  # the logged k of all were looked up
    chosen = runs.filter(family="beta")
    own = chosen.own_copy()
    own.frame["family"] = "other"
    assert set(chosen.frame["family"]) == {"beta"}
    assert repr(chosen).startswith("8 measurements\n")
    assert "8 measurements" in chosen._repr_html_()
    sent = pickle.loads(pickle.dumps(chosen))
    assert sent.document_counts(sent[0], [7]).hits.tolist() == chosen.document_counts(chosen[0], [7]).hits.tolist()
