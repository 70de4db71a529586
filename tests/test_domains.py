"""By source: planted exponents and levels are found, equal ones are not, and small sources have no interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from rbptrack.plugins.domains import Domains

from rbptrack.analysis import Runs
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.reporting.computing import computed
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import changed, ranked, runs_of_tables

SIZES = np.geomspace(1e4, 1e7, 5)


def by_domain(
    alphas: Sequence[float], *, documents: Sequence[int], levels: Sequence[float] = (), tokens: int = 300, seed: int = 0
) -> Runs:
    """A family whose -ln RBP_1 is 2 (S/1e4)^-alpha of the document's source, and CE `level` times that."""
    source = np.repeat(np.arange(len(alphas)), documents)
    order = np.random.default_rng(9).permutation(len(source))  # documents of a source do not stand together
    source, tables = source[order], {}
    for i, s in enumerate(SIZES):
        rng = np.random.default_rng(100 * seed + i)
        y = 2 * (s / 1e4) ** -np.asarray(alphas)[np.repeat(source, tokens)]
        level = np.asarray(levels or [1.0] * len(alphas))[np.repeat(source, tokens)]
        rank = np.where(rng.random(len(y)) < np.exp(-y), 1, 31)
        logprob = -level * rng.uniform(0.5, 1.5, len(y))
        tables[f"r{i}"] = ranked(rank, documents=len(source), logprob=logprob)
    runs = runs_of_tables(SIZES, tables, groups=f"{len(alphas)} by site abc")
    return changed(runs, groups=lambda _: [f"site {i}" for i in source])


def test_planted_exponents_and_levels_are_found() -> None:
    runs = by_domain([0.1, 0.3, 0.1], documents=[30, 30, 30], levels=[1.0, 1.0, 1.5])
    report = computed(Domains(ks=[1], shown=1), runs)  # three sources: too few for other analyzers, not for this one
    rows = report.tables["summary"].frame.set_index("source")
    for i, alpha in enumerate((0.1, 0.3, 0.1)):
        assert rows.loc[f"site {i}", "alpha_low"] < alpha < rows.loc[f"site {i}", "alpha_high"]
    assert rows["share"].sum() == pytest.approx(1)
    assert rows.loc["site 2", "ce_low"] < 1.5 < rows.loc["site 2", "ce_high"]
    pairs = report.tables["contrasts"].frame.set_index(["quantity", "source", "than"])
    different = {key for key, verdict in pairs["verdict"].items() if verdict == "different"}
    assert {frozenset(key[1:]) for key in different if key[0] == "α of RBP_1"} == {
        frozenset({"site 0", "site 1"}), frozenset({"site 1", "site 2"})
    }  # fmt: skip
    assert {frozenset(key[1:]) for key in different if key[0].startswith("CE of")} == {
        frozenset({"site 0", "site 2"}), frozenset({"site 1", "site 2"})
    }  # fmt: skip
    said = " ".join(sentences_of(report.findings))
    assert "Sources differ in exponent in 2 of 3 pairs (corrected)." in said
    assert "'site 1' (they differ)" in said
    values = report.tables["values"].frame
    assert len(values) == 3 * 5 * 2
    mine = runs.document_counts("r4", [1], by_source=False)
    whole = values.query("size == '10000000' and metric == 'RBP_1'").set_index("source")["value"]
    assert (whole * rows["share"]).sum() == pytest.approx(mine.hits.sum() / mine.tokens.sum())


def test_what_cannot_be_told_has_what_could_have_been_seen() -> None:
    """Corrected for the page's tests: more than the interval's own half width."""
    findings = computed(Domains(ks=[1], shown=1), by_domain([0.2, 0.2, 0.2], documents=[15, 15, 15])).findings
    untold = [finding for finding in findings if finding.verdict == "undecided"]
    assert untold
    assert all(finding.detectable > 1.3 * (finding.high - finding.low) / 2 for finding in untold)
    assert "could have been detected (80% power)" in " ".join(sentences_of(findings))


def test_equal_sources_are_rarely_called_different() -> None:
    wrong = [
        computed(Domains(ks=[1], shown=1), by_domain([0.2, 0.2], documents=[15, 15], seed=seed)).findings
        for seed in range(20)
    ]
    assert sum(any(one.verdict == "different" for one in findings) for findings in wrong) <= 3


def test_small_sources_and_a_rest_have_numbers_without_intervals() -> None:
    report = Domains(ks=[1], shown=1, most=3).analyze(by_domain([0.2] * 5, documents=[20, 12, 9, 8, 8]))
    rows = report.tables["summary"].frame.set_index("source")
    assert list(rows.index) == ["site 0", "site 1", "site 2", "2 other sources"]
    assert np.isfinite(rows["alpha"]).all()
    assert np.isfinite(rows["ce_low"]).tolist() == np.isfinite(rows["alpha_low"]).tolist() == [True, True, False, False]
    assert set(report.tables["contrasts"].frame["source"]) == {"site 0"}
    assert any("1 of 5 sources have fewer than 10 documents (site 2)" in note for note in report.notes)
    assert any("of 5 sources the 3 of most tokens are kept apart" in note for note in report.notes)


def test_one_model_is_enough_for_levels() -> None:
    runs = by_domain([0.1, 0.1], documents=[15, 15], levels=[1.0, 1.2])
    one = changed(runs, runs.frame.iloc[-1:])
    report = Domains(ks=[1], shown=1).analyze(one)
    assert set(report.tables["contrasts"].frame["quantity"]) == {"CE of 10000000", "RBP_1 of 10000000"}
    assert "laws" not in report.tables


def test_without_sources_there_is_nothing_to_say() -> None:
    plain = by_domain([0.1, 0.1], documents=[3, 3])
    with pytest.raises(RbptrackError, match=r"dataset\.group"):
        Domains().analyze(changed(plain, plain.frame.assign(groups=None)))
    with pytest.raises(BadInput, match=r"analyzer\.shown"):
        Domains(shown=7).analyze(plain)
