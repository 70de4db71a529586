"""Tests of the data of the reading page: spans, ranks and documents with known answers."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import spans
from rbptrack.reporting import render_reading
from rbptrack.reporting.reading import P_STEP
from tests.rank_tables import power_law_rank_table, rank_table
from tests.reporting.reading_pages import EVIL, SIZES, TEXTS, read_runs, seeded_runs, shown


def data_of(page: str) -> Any:
    packed = re.search(r'<script type="application/gzip" id="data">([^<]*)</script>', page)
    assert packed
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


def only_set(runs: Runs, **options: Any) -> Any:
    (token_set,) = data_of(render_reading(runs, **options)[0])["sets"]
    return token_set


def test_render_reading_has_ranks_probabilities_and_first_choices_of_the_tables() -> None:
    texts = [["a", "b", "c", "d", "e"]]
    runs = read_runs({"small": [[1, 7, 300, 40_000]], "large": [[2, 1, 90, 1]]}, texts)
    token_set = only_set(runs)
    assert [model["name"] for model in token_set["models"]] == ["toy-small", "toy-large"]
    assert [model["smaller"] for model in token_set["models"]] == [None, 0]
    (document,) = token_set["documents"]
    assert document["texts"] == texts[0]
    assert document["scored"] == [1, 2, 3, 4]
    small, large = document["models"]
    assert (small["rank"], large["rank"]) == ([1, 7, 300, 40_000], [2, 1, 90, 1])
    assert [token_set["strings"][place] for place in small["top"]] == ["a", "a", "a"]
    assert len(large["top"]) == 2
    np.testing.assert_allclose(np.array(small["p"]) * P_STEP, np.log([2, 8, 301, 40_001]), atol=P_STEP / 2)
    assert document["ce"][0] == pytest.approx(np.log([2, 8, 301, 40_001]).mean(), abs=1e-4)
    assert document["rbp"] == [0.5, 0.75]


def test_spans_join_tokens_that_share_a_character() -> None:
    assert spans(["a", "\udce2\udc82", "\udcac", " b"]) == (["a", "€", " b"], [1, 2, 1])
    assert spans(["\udcf0\udc9f", "\udc98", "\udc80x\udcc3", "\udca9"]) == (["😀xé"], [4])
    assert spans(["\udcac", "a", "\udcc3"]) == (["\ufffd", "a", "\ufffd"], [1, 1, 1])
    assert spans([]) == ([], [])


def test_render_reading_holds_texts_but_no_html_of_them() -> None:
    page, notes = render_reading(seeded_runs())
    assert notes == []
    assert EVIL not in page
    assert page.count("</script>") == 2
    assert "default-src 'none'" in page
    documents = {document["id"]: document for document in data_of(page)["sets"][0]["documents"]}
    assert [("".join(documents[f"doc {i}"]["texts"])) for i in range(4)] == shown()
    assert sum(documents["doc 1"]["sizes"]) == len(TEXTS[1])
    assert all(document["scored"] == list(range(1, document["shown"])) for document in documents.values())


def test_render_reading_escapes_names() -> None:
    runs = seeded_runs()
    runs.frame["dataset"] = f"{EVIL}wiki"
    page = render_reading(runs, command=EVIL)[0]
    assert "<img" not in page


def law_runs(documents: int = 40, deciding: int = 17) -> Runs:
    """Simulate sizes that get better by the same amount in all documents except one."""
    words = [[f"w{i}" for i in range(61)] for _ in range(documents)]
    rng = np.random.default_rng(1)
    difficulty = rng.random((documents, 60))
    ranks: dict[str, list[list[int]]] = {}
    for model, s in SIZES.items():
        share = 0.4 + 0.1 * math.log10(s / 1000)
        rank = np.where(difficulty < share, 1, 100)
        rank[deciding] = np.where(np.arange(60) < (2 if s < 5_000 else 55), 1, 5_000)
        ranks[model] = rank.tolist()
    return read_runs(ranks, words)


def test_render_reading_shows_documents_that_decide_the_law_first() -> None:
    token_set = only_set(law_runs())
    first = token_set["documents"][0]
    assert first["number"] == 17
    assert set(first["why"]) == {"law", "difference"}
    assert first["influence"] > 0  # with it the law is steeper
    assert first["share"] == max(document["share"] for document in token_set["documents"])
    assert "doc 0" in {document["id"] for document in token_set["documents"]}
    assert token_set["of"] == 40


def test_render_reading_shows_the_named_documents() -> None:
    runs = law_runs()
    by_id = only_set(runs, documents=["doc 3", "5"])
    assert [document["number"] for document in by_id["documents"]] == [3, 5]
    with pytest.raises(BadInput, match="doc 99"):
        render_reading(runs, documents=["doc 99"])


def test_render_reading_shows_at_most_the_given_number_of_tokens() -> None:
    runs = law_runs()
    for most in (1, 100, 1_000):
        assert sum(document["shown"] for document in only_set(runs, tokens=most)["documents"]) <= most
    page, notes = render_reading(runs, documents=["0", "1", "2"], tokens=100)
    assert [document["shown"] for document in data_of(page)["sets"][0]["documents"]] == [61, 39]
    assert "1 document left out" in notes[0]


def test_render_reading_groups_measurements_of_the_same_tokens() -> None:
    runs = seeded_runs()
    mixed = runs.frame.assign(documents_hash=["d", "d", "other"])
    page, _ = render_reading(Runs(mixed.drop(columns="name"), runs.store))
    assert sorted(len(token_set["models"]) for token_set in data_of(page)["sets"]) == [1, 2]
    labels = [token_set["label"] for token_set in data_of(page)["sets"]]
    assert len(set(labels)) == 2


def test_render_reading_leaves_shared_tags_out_of_model_names() -> None:
    runs = seeded_runs()
    twice = pd.concat([runs.frame.assign(sequence="slide"), runs.frame.assign(sequence="truncate")])
    page, _ = render_reading(Runs(twice.drop(columns="name"), runs.store))
    for token_set in data_of(page)["sets"]:
        assert [model["name"] for model in token_set["models"]] == ["toy-small", "toy-medium", "toy-large"]
    labels = [token_set["label"] for token_set in data_of(page)["sets"]]
    assert labels == ["toy on hard, sequence slide", "toy on hard, sequence truncate"]


def test_render_reading_puts_all_measurements_of_the_same_tokens_into_one_set() -> None:
    runs = seeded_runs()
    frame = runs.frame.assign(dtype=["float32", "bfloat16", "float32"], model=["toy-1", "toy-1", "other-1"])
    frame = frame.assign(non_embedding_params=1000, family=["toy", "toy", "other"])
    token_set = only_set(Runs(frame.drop(columns="name"), runs.store))
    assert len({model["name"] for model in token_set["models"]}) == 3
    assert [model["smaller"] for model in token_set["models"]].count(None) == 2  # the first of each family


def test_render_reading_refuses_measurements_without_texts() -> None:
    frame = pd.DataFrame([{"run_id": "a", "family": "toy", "model": "toy-1", "dataset": "text"}])
    with pytest.raises(BadInput, match="toy on text"):
        render_reading(Runs(frame, RankTables({"a": rank_table([1, 2, 3])})))


def test_render_reading_notes_measurements_that_cannot_be_read() -> None:
    runs = seeded_runs()
    more = pd.concat([runs.frame, runs.frame.tail(1).assign(run_id="lost", size="lost", model="toy-lost")])
    page, notes = render_reading(Runs(more.drop(columns="name"), runs.store))
    assert len(data_of(page)["sets"][0]["models"]) == 3
    assert "toy-lost" in notes[0]


def test_render_reading_shows_gaps_of_tokens_that_were_not_kept() -> None:
    table = rank_table([3, 1, 2], token=[0, 1, 2], position=[1, 2, 6])
    frame = pd.DataFrame([{"run_id": "a", "family": "toy", "model": "toy-1", "dataset": "text"}])

    class Kept(RankTables):
        def token_texts(self, run_id: str) -> dict[int, str]:
            return {0: "zero", 1: " one", 2: " two"}

    (document,) = only_set(Runs(frame, Kept({"a": table})))["documents"]
    assert document["texts"] == ["\ufffd", "zero", " one", "\ufffd", " two"]
    assert document["scored"] == [1, 2, 4]


def test_render_reading_of_ten_models_and_five_documents_is_less_than_a_megabyte() -> None:
    sizes = {str(i): 10 ** (i // 2 + 3) + i for i in range(10)}
    rng = np.random.default_rng(0)
    words = [[f" w{word}" for word in rng.zipf(1.3, 2_000) % 5_000] for _ in range(5)]
    page, _ = render_reading(seeded_runs(words, sizes), documents=[str(i) for i in range(5)])
    assert sum(document["shown"] for document in data_of(page)["sets"][0]["documents"]) == 10_000
    assert len(page) < 1_000_000


def test_render_reading_shows_ranks_of_a_reference() -> None:
    table = power_law_rank_table(1000, documents=2, tokens=10)
    filled = {name: table.column(name) for name in table.table.column_names}
    zeros = np.zeros(20)
    filled |= {"top": zeros, "reference_top": np.ones(20), "reference_rank": np.arange(20), "kl": zeros}
    frame = pd.DataFrame([{"run_id": "a", "family": "toy", "model": "toy-1", "dataset": "text"}])

    class Kept(RankTables):
        def token_texts(self, run_id: str) -> dict[int, str]:
            return {0: "zero", 1: "one"}

    tables = {"a": type(table).from_arrays(vocab_size=512, accept=zeros, **filled)}
    token_set = only_set(Runs(frame, Kept(tables)))
    model = token_set["documents"][1]["models"][0]
    assert model["reference_rank"] == list(range(10, 20))
    assert {token_set["strings"][place] for place in model["reference_top"]} == {"one"}
