"""The small part of docs/validity.md: a few cells, and the tool that makes the table."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from studies.validity import DOCS, EXPERIMENTS, rows, run, simulate, table


@pytest.mark.parametrize(
    ("row", "replicates"),
    [
        ("alpha/m=6 D=200 t3 tau=0.01", 200),
        ("contrast/m=6 D=200 t3 tau=0.01", 200),
        ("contrast_null/m=6 D=50 t3 tau=0", 200),
        ("irreducible/m=6 D=200 t3 tau=0.005 share=0", 60),
        ("forecast/m=6 D=200 t3 tau=0.005 share=0.3", 60),
        ("surface/m=6 D=50 t3 tau=0.05", 40),
        ("threshold/m=6 D=200 skewed tau=0 times=4", 100),
    ],
)
def test_claims_hold_within_sampling_error(row, replicates):
    name, one, design = next(rows([row]))
    for claim, (true, made) in simulate(name, one, design, 0, replicates).items():
        assert made, f"{claim} was never made"
        nominal = one.claims[claim]
        slack = 3 * np.sqrt(nominal * (1 - nominal) / made)
        share = true / made
        assert share >= nominal - slack - 0.02 if nominal > 0.5 else share <= nominal + slack + 0.02, (claim, share)


def test_a_stopped_simulation_continues_to_the_same_numbers(tmp_path):
    row = "alpha/m=4 D=50 t3 tau=0"
    run(tmp_path / "once.json", [row], 60)
    run(tmp_path / "twice.json", [row], 30)
    run(tmp_path / "twice.json", [row], 60)
    once, twice = (json.loads((tmp_path / f"{n}.json").read_text())[row] for n in ("once", "twice"))
    assert once == twice
    assert once["replicates"] == 60


def test_the_page_says_what_was_run_and_what_was_not(tmp_path):
    run(tmp_path / "some.json", ["alpha/m=4 D=50 t3 tau=0"], 100)
    text = table(tmp_path / "some.json")
    assert "| alpha | 95% interval of alpha covers | 95 | " in text
    assert "| m=4 D=50 t3 tau=0 | 100 |" in text
    assert f"training ({len(EXPERIMENTS['training'].designs)} rows)" in text


def test_the_page_has_the_ten_worst_claims_of_the_data():
    """Those that miss their nominal share by most."""
    claims = pd.read_csv(DOCS / "validity.csv")
    miss = np.where(claims["nominal"] > 50, claims["nominal"] - claims["worst"], claims["worst"] - claims["nominal"])
    worst = claims.iloc[np.argsort(-miss, kind="stable")[:10]]
    page = (DOCS / "validity.md").read_text()
    shown = re.findall(r"^\| (\w+) \| ([^|]+) \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|", page, re.MULTILINE)
    assert [(name, claim, float(share)) for name, claim, share in shown] == [
        *worst[["experiment", "claim", "worst"]].itertuples(index=False, name=None)
    ]
