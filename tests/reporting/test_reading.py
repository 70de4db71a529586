"""Tests of `render_reading`: the data of the reading page, and of `character_spans`, which joins tokens for display."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import character_spans
from rbptrack.ranks import RankTable
from rbptrack.reporting import render_reading
from rbptrack.reporting.reading import P_STEP
from tests.rank_tables import power_law_rank_table, rank_table
from tests.reporting.reading_pages import (
    EVIL,
    SIZES,
    TEXTS,
    displayed_texts,
    page_data,
    random_runs,
    runs_with_ranks,
)


def token_sets(page: str) -> list[Any]:
    """Return the data of a reading page: for each set of tokens, its models, documents, ranks and texts."""
    return list(page_data(page)["sets"])


def render_token_set(runs: Runs, **options: Any) -> Any:
    """Render the reading page of measurements of the same tokens, and return its data."""
    page, _ = render_reading(runs, **options)
    (token_set,) = token_sets(page)
    return token_set


@pytest.fixture
def two_models() -> Any:
    """The data of a page with one document of 5 tokens, of which 4 are scored, and two models with known ranks."""
    ranks = {"small": [[1, 7, 300, 40_000]], "large": [[2, 1, 90, 1]]}
    return render_token_set(runs_with_ranks(ranks, [["a", "b", "c", "d", "e"]]))


def test_render_reading_orders_models_by_size_and_names_the_next_smaller(two_models: Any) -> None:
    assert [model["name"] for model in two_models["models"]] == ["toy-small", "toy-large"]
    assert [model["title"] for model in two_models["models"]] == ["toy-small (S = 1k)", "toy-large (S = 100k)"]
    assert [model["smaller"] for model in two_models["models"]] == [None, 0]


def test_render_reading_of_unknown_sizes_names_no_smaller_and_no_equal_model() -> None:
    runs = random_runs()
    frame = runs.frame.assign(non_embedding_params=[None, 0, 1000])
    models = render_token_set(Runs(frame.drop(columns="name"), runs.store))["models"]
    assert sum("S =" in model["title"] for model in models) == 1
    assert all(model["smaller"] is model["equal"] is None for model in models)


def test_render_reading_explains_strict_ranks() -> None:
    runs = random_runs()
    frame = runs.frame.assign(rank="strict").drop(columns="name")
    assert any("strict" in note for note in render_reading(Runs(frame, runs.store))[1])


def test_render_reading_of_one_model_offers_no_other_model() -> None:
    runs = random_runs()
    page, _ = render_reading(runs[:1])
    assert "slider" not in page[: page.index("<script")]
    assert "slider" in render_reading(runs)[0]


def test_render_reading_has_the_texts_and_the_scored_tokens(two_models: Any) -> None:
    (document,) = two_models["documents"]
    assert document["texts"] == ["a", "b", "c", "d", "e"]
    assert document["scored"] == [1, 2, 3, 4]


def test_render_reading_has_ranks_and_probabilities_of_the_tables(two_models: Any) -> None:
    (document,) = two_models["documents"]
    small, large = document["models"]
    assert (small["rank"], large["rank"]) == ([1, 7, 300, 40_000], [2, 1, 90, 1])
    nats = np.log([2, 8, 301, 40_001])  # a token of rank R has p = 1 / (R + 1)
    np.testing.assert_allclose(np.array(small["nll_steps"]) * P_STEP, nats, atol=P_STEP / 2)
    assert document["ce"][0] == pytest.approx(nats.mean(), abs=1e-4)
    assert document["rbp"] == [0.5, 0.75]


def test_render_reading_has_first_choices_only_of_tokens_with_another_rank_than_1(two_models: Any) -> None:
    (document,) = two_models["documents"]
    small, large = document["models"]
    assert [two_models["strings"][index] for index in small["top"]] == ["a", "a", "a"]
    assert len(large["top"]) == 2


@pytest.mark.parametrize(
    ("tokens", "texts", "sizes"),
    [
        (["a", "\udce2\udc82", "\udcac", " b"], ["a", "€", " b"], [1, 2, 1]),
        (["\udcf0\udc9f", "\udc98", "\udc80x\udcc3", "\udca9"], ["😀xé"], [4]),
        (["\udcac", "a", "\udcc3"], ["\ufffd", "a", "\ufffd"], [1, 1, 1]),  # bytes that are not a character
        ([], [], []),
    ],
)
def test_character_spans_join_tokens_that_share_a_character(
    tokens: list[str], texts: list[str], sizes: list[int]
) -> None:
    assert character_spans(tokens) == (texts, sizes)


def test_render_reading_holds_the_texts_of_all_documents() -> None:
    page, notes = render_reading(random_runs())
    assert notes == []
    documents = {document["id"]: document for document in token_sets(page)[0]["documents"]}
    assert ["".join(documents[f"doc {i}"]["texts"]) for i in range(4)] == displayed_texts()
    assert sum(documents["doc 1"]["sizes"]) == len(TEXTS[1])
    for document in documents.values():
        assert document["scored"] == list(range(1, document["shown"]))


def test_render_reading_writes_no_html_of_texts_into_the_page() -> None:
    page, _ = render_reading(random_runs())
    assert EVIL not in page
    assert page.count("</script>") == 2
    assert "default-src 'none'" in page


def test_render_reading_escapes_the_dataset_and_the_command() -> None:
    runs = random_runs()
    runs.frame["dataset"] = f"{EVIL}wiki"
    page, _ = render_reading(runs, command=EVIL)
    assert "<img" not in page


def law_runs() -> Runs:
    """Make three sizes on 40 documents of 61 tokens. RBP_1 grows by 0.1 from size to size in all documents except one.

    In document 17, RBP_1 jumps from 2/60 to 55/60.
    """
    documents = [[f"w{i}" for i in range(61)] for _ in range(40)]
    rng = np.random.default_rng(1)
    difficulty = rng.random((40, 60))
    ranks: dict[str, list[list[int]]] = {}
    for model, s in SIZES.items():
        rbp_1 = 0.4 + 0.1 * math.log10(s / 1000)
        rank = np.where(difficulty < rbp_1, 1, 100)
        hits_in_17 = 2 if s < 5_000 else 55
        rank[17] = np.where(np.arange(60) < hits_in_17, 1, 5_000)
        ranks[model] = rank.tolist()
    return runs_with_ranks(ranks, documents)


def test_render_reading_shows_the_document_that_decides_the_law_first() -> None:
    token_set = render_token_set(law_runs())
    first = token_set["documents"][0]
    assert first["number"] == 17
    assert set(first["reasons"]) == {"law", "difference"}
    assert first["influence"] > 0  # this document makes the law steeper
    assert first["share"] == max(document["share"] for document in token_set["documents"])


def test_render_reading_of_models_with_equal_ranks_has_no_influence_of_documents() -> None:
    ranks = [[20 if position % 2 else 1 for position in range(1, len(texts))] for texts in TEXTS]
    token_set = render_token_set(runs_with_ranks(dict.fromkeys(SIZES, ranks)))
    assert not any("influence" in document for document in token_set["documents"])


def test_render_reading_also_shows_the_first_document_and_the_number_of_all() -> None:
    token_set = render_token_set(law_runs())
    assert "doc 0" in {document["id"] for document in token_set["documents"]}
    assert token_set["num_documents"] == 40


def test_render_reading_shows_the_named_documents() -> None:
    token_set = render_token_set(law_runs(), documents=["doc 3", "5"])
    assert [document["number"] for document in token_set["documents"]] == [3, 5]


def test_render_reading_refuses_a_document_that_does_not_exist() -> None:
    with pytest.raises(BadInput, match="doc 99"):
        render_reading(law_runs(), documents=["doc 99"])


@pytest.mark.parametrize("limit", [1, 100, 1_000])
def test_render_reading_shows_at_most_the_given_number_of_tokens(limit: int) -> None:
    token_set = render_token_set(law_runs(), tokens=limit)
    assert sum(document["shown"] for document in token_set["documents"]) <= limit


def test_render_reading_cuts_the_last_document_and_notes_those_that_are_left_out() -> None:
    page, notes = render_reading(law_runs(), documents=["0", "1", "2"], tokens=100)
    assert [document["shown"] for document in token_sets(page)[0]["documents"]] == [61, 39]
    assert "1 document left out" in notes[0]


def test_render_reading_separates_measurements_of_different_tokens() -> None:
    runs = random_runs()
    frame = runs.frame.assign(documents_hash=["d", "d", "other"])
    page, _ = render_reading(Runs(frame.drop(columns="name"), runs.store))
    assert sorted(len(token_set["models"]) for token_set in token_sets(page)) == [1, 2]
    assert len({token_set["label"] for token_set in token_sets(page)}) == 2


def test_render_reading_puts_conditions_that_all_models_share_into_the_label_of_the_set() -> None:
    runs = random_runs()
    frame = pd.concat([runs.frame.assign(sequence="slide"), runs.frame.assign(sequence="truncate")])
    page, _ = render_reading(Runs(frame.drop(columns="name"), runs.store))
    for token_set in token_sets(page):
        assert [model["name"] for model in token_set["models"]] == ["toy-small", "toy-medium", "toy-large"]
    labels = [token_set["label"] for token_set in token_sets(page)]
    assert labels == ["toy on hard, sequence slide", "toy on hard, sequence truncate"]


def test_render_reading_puts_families_and_precisions_with_the_same_tokens_into_one_set() -> None:
    runs = random_runs()
    frame = runs.frame.assign(
        dtype=["float32", "bfloat16", "float32"],
        model=["toy-1", "toy-1", "other-1"],
        non_embedding_params=1000,
        family=["toy", "toy", "other"],
    )
    token_set = render_token_set(Runs(frame.drop(columns="name"), runs.store))
    assert len({model["name"] for model in token_set["models"]}) == 3
    assert [model["smaller"] for model in token_set["models"]] == [None, None, None]  # all have one size
    names = [model["name"] for model in token_set["models"]]
    for model in token_set["models"]:
        assert names[model["equal"]] != model["name"]


def test_render_reading_refuses_measurements_without_texts() -> None:
    frame = pd.DataFrame([{"run_id": "a", "family": "toy", "model": "toy-1", "dataset": "text"}])
    with pytest.raises(BadInput, match="toy on text"):
        render_reading(Runs(frame, RankTables({"a": rank_table([1, 2, 3])})))


def test_render_reading_compares_sizes_of_one_family_and_pairs_families_of_equal_size() -> None:
    runs = random_runs(sizes={"a-1": 1000, "a-2": 9000, "b-1": 1100, "b-2": 10_000})
    frame = runs.frame.assign(family=["a", "a", "b", "b"], model=["a-1", "a-2", "b-1", "b-2"])
    page, _ = render_reading(Runs(frame.drop(columns="name"), runs.store))
    (token_set,) = token_sets(page)
    models = {model["name"]: model for model in token_set["models"]}
    names = list(models)
    assert names == ["a-1", "a-2", "b-1", "b-2"]
    assert [model["smaller"] for model in models.values()] == [None, 0, None, 2]
    assert [names[model["equal"]] for model in models.values()] == ["b-1", "b-2", "a-1", "a-2"]
    assert token_set["compared"] == [0, 1]
    assert token_set["law_family"] == "a"
    assert "smaller or larger model" not in page


def test_render_reading_of_checkpoints_compares_with_the_earlier_one() -> None:
    runs = random_runs()
    frame = runs.frame.assign(
        non_embedding_params=1000, size="1k", training_tokens=[1e9, 2e9, 3e9], model=["t@1", "t@2", "t@3"]
    )
    token_set = render_token_set(Runs(frame.drop(columns="name"), runs.store))
    assert [model["earlier"] for model in token_set["models"]] == [None, 0, 1]
    assert [model["smaller"] for model in token_set["models"]] == [None] * 3


def test_render_reading_finds_the_token_with_the_largest_gain_in_rank() -> None:
    ranks = {"small": [[1, 7, 300, 40_000, 900]], "large": [[2, 1, 90, 1, 1]]}
    texts = [["a", "b", "c", "d", "===", "e"]]  # a sign is no word
    (document,) = render_token_set(runs_with_ranks(ranks, texts))["documents"]
    assert document["gain"] == {"token": 5, "text": "e", "before": 900, "after": 1}


def test_render_reading_lists_readable_documents_first() -> None:
    diagram = ["|", "--", "++", "|", "==", "--"]
    prose = ["The", " cat", " sat", " on", " a", " mat"]
    code = ["for", " item", " in", " x[", "0]", ":"]
    ranks = [[5] * 5] * 3
    token_set = render_token_set(runs_with_ranks({"small": ranks, "large": ranks}, [diagram, code, prose]))
    assert [document["id"] for document in token_set["documents"]] == ["doc 2", "doc 1", "doc 0"]


def test_render_reading_notes_measurements_whose_ranks_are_missing() -> None:
    runs = random_runs()
    lost = runs.frame.tail(1).assign(run_id="lost", size="lost", model="toy-lost")
    frame = pd.concat([runs.frame, lost])
    page, notes = render_reading(Runs(frame.drop(columns="name"), runs.store))
    assert len(token_sets(page)[0]["models"]) == 3
    assert "toy-lost" in notes[0]


class TablesWithTexts(RankTables):
    """Rank tables in memory with the texts of three tokens. Unscored tokens and documents are unknown."""

    def token_texts(self, run_id: str) -> dict[int, str]:
        return {0: "zero", 1: " one", 2: " two"}


def test_render_reading_shows_one_sign_for_each_gap_of_unknown_tokens() -> None:
    table = rank_table([3, 1, 2], token=[0, 1, 2], position=[1, 2, 6])
    frame = pd.DataFrame([{"run_id": "a", "family": "toy", "model": "toy-1", "dataset": "text"}])
    (document,) = render_token_set(Runs(frame, TablesWithTexts({"a": table})))["documents"]
    assert document["texts"] == ["\ufffd", "zero", " one", "\ufffd", " two"]
    assert document["scored"] == [1, 2, 4]


def test_render_reading_of_ten_models_and_10_000_tokens_is_less_than_a_megabyte() -> None:
    sizes = {str(i): 10 ** (i // 2 + 3) + i for i in range(10)}
    rng = np.random.default_rng(0)
    documents = [[f" w{word}" for word in rng.zipf(1.3, 2_000) % 5_000] for _ in range(5)]
    page, _ = render_reading(random_runs(documents, sizes), documents=["0", "1", "2", "3", "4"])
    assert sum(document["shown"] for document in token_sets(page)[0]["documents"]) == 10_000
    assert len(page) < 1_000_000


def test_render_reading_has_ranks_and_first_choices_of_a_reference() -> None:
    table = power_law_rank_table(1000, documents=2, tokens=10)
    columns = {name: table.column(name) for name in table.table.column_names}
    zeros = np.zeros(20)
    columns |= {"top": zeros, "reference_top": np.ones(20), "reference_rank": np.arange(20)}
    columns |= {"kl": zeros, "accept": zeros}
    table_with_reference = RankTable.from_arrays(vocab_size=512, **columns)
    frame = pd.DataFrame([{"run_id": "a", "family": "toy", "model": "toy-1", "dataset": "text"}])
    token_set = render_token_set(Runs(frame, TablesWithTexts({"a": table_with_reference})))
    model = token_set["documents"][1]["models"][0]
    assert model["reference_rank"] == list(range(10, 20))
    assert {token_set["strings"][index] for index in model["reference_top"]} == {" one"}
