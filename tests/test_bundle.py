"""Export and import: the same fingerprints and numbers elsewhere, and others' results as measurements."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import rbptrack
from rbptrack.base.errors import BadInput
from rbptrack.commands import export, import_
from rbptrack.exchange.bundle import without_tokens
from rbptrack.ranks import ADDED, RankTable
from rbptrack.tracking.record import write_token_texts
from tests.conftest import EMBEDDED
from tests.synthetic import authors_folder
from tests.test_refused_imports import changed, content

TEXTS = [
    "import os\n\n\ndef walk(path):\n    return os.listdir(path)\n" * 3,
    "The function returns a list of names. " * 5,
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two measurements."""
    folder = tmp_path_factory.mktemp("measured")
    for size in ("6k", "15k"):
        model = AutoModelForCausalLM.from_pretrained(EMBEDDED / "models" / size, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "models" / size)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            about = {"family": "nano", "size": size, "dataset": "two"}
            rbptrack.measure(model, tokenizer, TEXTS, seq_len=64, **about).log(sweep="s")
    for ranks in folder.glob("mlruns/artifacts/**/ranks.parquet"):  # as a sweep keeps them
        write_token_texts(ranks.parent, {token: tokenizer.decode([token]) for token in range(len(tokenizer))})
        about = {"document": [0, 1], "id": ["a", "=b"], "bytes": list(map(len, TEXTS))}
        pd.DataFrame(about).to_parquet(ranks.with_name("documents.parquet"))
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def uri(folder: Path) -> str:
    return f"tracking.uri=sqlite:///{folder / 'mlruns/mlflow.db'}"


def test_more_than_a_bundle_may_hold(measured: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the file would be refused by whoever imports it."""
    monkeypatch.setattr("rbptrack.base.limits.ENTRIES", 6)
    with pytest.raises(BadInput, match="at most 6 files, which 1 of these 2 measurements fill: export fewer at a time"):
        export.main([f"out={elsewhere / 'b.zip'}", uri(measured)])
    monkeypatch.setattr("rbptrack.base.limits.ENTRIES", 2)
    with pytest.raises(BadInput, match="at most 2 files, and each of these 2 measurements needs one at least"):
        export.main([f"out={elsewhere / 'b.zip'}", uri(measured)])
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ranks_as_a_table(kind: str, measured: Path, elsewhere: Path) -> None:
    """Per token and per document, and both give the numbers of the measurements."""
    wanted = rbptrack.runs(tracking_uri=uri(measured)[13:]).frame.set_index("run_id")
    read = pd.read_csv if kind == "csv" else pd.read_parquet
    for documents in (False, True):
        out = elsewhere / f"{documents}.{kind}"
        assert export.main([f"out={out}", f"ranks={kind}", f"documents={documents}", uri(measured)]) == 0
        table = read(out)
        assert {"model", "dataset", "document", "id", "group"} < set(table.columns)
        assert "token" not in table.columns
        tokens = table["tokens"] if documents else 1
        nats = table["ce"] if documents else -table["logprob"]
        hits = table["rbp_10"] if documents else table["rank"] <= 10
        sums = pd.DataFrame({"tokens": tokens, "nats": nats * tokens, "hits": hits * tokens}, table.index)
        sums = sums.groupby(table["run_id"]).sum().loc[wanted.index]
        np.testing.assert_array_equal(sums["tokens"], wanted["num_tokens"])
        np.testing.assert_allclose(sums["nats"] / sums["tokens"], wanted["ce"], rtol=1e-6)
        np.testing.assert_allclose(sums["hits"] / sums["tokens"], wanted["rbp_10"])
        assert set(table["id"]) == {"a", "'=b" if kind == "csv" else "=b"}
        if documents:
            np.testing.assert_allclose(table["bits_per_byte"] * table["bytes"] * np.log(2), nats * tokens, rtol=1e-6)
            assert set(table["bytes"]) == set(map(len, TEXTS))


@pytest.mark.parametrize("tokens", [False, True])
def test_there_and_back(tokens: bool, measured: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = elsewhere / "b.zip"
    assert export.main([f"out={out}", "sweep=s", uri(measured), f"tokens={tokens}"]) == 0
    assert "2 measurements" in capsys.readouterr().out
    assert import_.main([str(out)]) == 0
    assert "2 imported" in capsys.readouterr().out
    before, after = rbptrack.runs(tracking_uri=uri(measured)[13:]), rbptrack.runs()
    columns = [c for c in before.frame.columns if c not in ("run_id", "started", "ended", "imported")]
    pd.testing.assert_frame_equal(before.frame[columns], after.frame[columns])
    for old, new in zip(before.frame["run_id"], after.frame["run_id"], strict=True):
        a, b = before.ranks(old).table, after.ranks(new).table
        ids = ["token", "top"]
        assert a.drop(ids).equals(b.drop(ids))
        assert all((b.column(n).to_numpy() == (a.column(n).to_numpy() if tokens else -1)).all() for n in ids)
        assert np.array_equal(before.histogram(old).count, after.histogram(new).count)
        assert after.vocabulary(new) == (before.vocabulary(old) if tokens else {})
    assert before.vocabulary(before.frame["run_id"].iloc[0])
    with zipfile.ZipFile(out) as bundle:
        text = b"".join(bundle.read(n) for n in bundle.namelist() if n.endswith(".json")).decode()
        assert str(measured) not in text
        assert not [n for n in bundle.namelist() if n.endswith((".pkl", ".pt", ".npy"))]
        if not tokens:  # every version reads it
            assert json.loads(bundle.read("bundle.json"))["format"] == 1
            assert not [n for n in bundle.namelist() if n.endswith("tokens.json")]
    assert import_.main([str(out)]) == 0
    assert "0 imported" in capsys.readouterr().out
    assert len(rbptrack.runs()) == 2


@pytest.fixture(scope="module")
def exported(measured: Path) -> Path:
    """A bundle of both, with the tokens and their texts."""
    assert export.main([f"out={measured / 'exported.zip'}", uri(measured), "tokens=true"]) == 0
    return measured / "exported.zip"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (b"[1, 2]", "must be a JSON object of texts by token id"),
        (b'{"one": "a"}', "must be a JSON object of texts by token id"),
        (b'{"1": "a"}', "tokens of its ranks have no text, the first"),
        (b'{"1": 5}', "text must be a string of at most 10,000 characters; got 5"),
        (b'{"4096": "a"}', "a token id must be from 0 to 4,095; got 4096"),
    ],
)
def test_texts_of_tokens_are_checked(texts: bytes, words: str, exported: Path, elsewhere: Path) -> None:
    with pytest.raises(BadInput, match=words):
        import_.main([str(changed(exported, elsewhere / "c.zip", content("tokens.json", texts)))])
    assert not (elsewhere / "mlruns").exists()


def test_without_tokens_a_strict_rank_stays_strict() -> None:
    columns = {name: [0] for name in ("document", "position", "field", "token", "logprob", *ADDED.names)}
    ranks = RankTable.from_arrays(vocab_size=9, strict=True, greater=[2], ties=[3], **columns)
    hidden = without_tokens(ranks)
    assert (hidden.column("token").tolist(), hidden.column("top").tolist(), hidden.rank.tolist()) == ([-1], [-1], [3])


def test_bad_arguments(measured: Path, elsewhere: Path) -> None:
    (elsewhere / "there.zip").write_bytes(b"PK")
    (elsewhere / "empty").mkdir()
    for command, arguments, words in (
        (export, ["out=b.tar"], "must end in .zip"),
        (export, ["out=b.zip", "ranks=csv"], "must end in .csv"),
        (export, ["out=b.zip", "ranks=xls"], "no kind of table matches xls"),
        (export, ["out=b.zip", "documents=true"], "give ranks=csv or ranks=parquet, too"),
        (export, ["out=there.zip"], "exists already"),
        (export, ["out=no/b.zip"], "no folder"),
        (export, ["out=b.zip", uri(measured), "dataset=wiki"], "no measurement has dataset=wiki. The store has two"),
        (import_, ["nowhere.zip"], "no such file or folder"),
        (import_, ["there.zip"], "is not a bundle"),
        (import_, ["empty"], "empty: no importer takes it. Importers: authors, scores"),
    ):
        with pytest.raises(BadInput, match=words):
            command.main(arguments)
    assert sorted(p.name for p in elsewhere.iterdir()) == ["empty", "there.zip"]


def test_a_plain_table(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A law written into a CSV comes out of the analyzer."""
    rows = ["family,model,non_embedding_params,dataset,ce,rbp_1,rbp_10,num_tokens"]
    for size, s in (("70m", 18_915_328), ("160m", 85_056_000), ("410m", 302_311_424), ("1b", 805_736_448)):
        rows.append(f"pythia,EleutherAI/pythia-{size},{s},wiki,{9 * s**-0.06},{np.exp(-4 * s**-0.07)},,100000")
    (elsewhere / "t.csv").write_text("\n".join(rows))
    assert import_.main(["t.csv"]) == 0
    assert "4 imported from t.csv" in capsys.readouterr().out
    runs = rbptrack.runs(family="pythia")
    assert list(runs.frame["size"]) == ["70m", "160m", "410m", "1b"]
    assert runs.frame["rbp_1_se"].isna().all() if "rbp_1_se" in runs.frame else True
    assert runs.frame["num_tokens"].eq(100000).all()
    report = rbptrack.analyze(runs, "power_law", ks=[1])
    assert report.metrics["alpha/pythia/wiki/rbp_1"] == pytest.approx(0.07, abs=1e-6)
    assert report.metrics["alpha/pythia/wiki/ce"] == pytest.approx(0.06, abs=1e-6)
    import_.main(["t.csv"])
    assert "0 imported from t.csv, 4 skipped" in capsys.readouterr().out


def test_a_table_with_an_empty_cell(elsewhere: Path) -> None:
    """Pandas makes floats of whole numbers beside an empty cell; they are whole numbers in the store."""
    (elsewhere / "t.csv").write_text("model,dataset,ce,seq_len,vocab_size\na-1,w,3,512,100\na-2,w,2,,\n")
    import_.main(["t.csv", "without_s=true"])
    assert sorted(rbptrack.runs().frame["seq_len"].fillna(0)) == [0, 512]


def test_the_authors_folders(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their RBP_k is called indicator where windows were counted, too."""
    authors_folder(elsewhere / "results", **{"70m": (1, 7, 300, 2)})
    metrics = elsewhere / "results/wiki/EleutherAI/pythia-70m/top10/metrics.json"
    metrics.write_text('{"mean_ce_loss": 3.5, "indicator": 0.75, "F_N=4": 0.2}')
    import_.main(["results", "sizes=results/sizes.csv", "vocab_size=50304"])
    assert "1 imported from results" in capsys.readouterr().out
    runs = rbptrack.runs()
    (row,) = runs.frame.to_dict("records")
    assert (row["family"], row["size"], row["dataset"]) == ("pythia", "70m", "wiki")
    assert (row["ce"], row["rbp_1"], row["rbp_10"], row["non_embedding_params"]) == (3.5, 0.25, 0.75, 18915328)
    table = runs.ranks(row["run_id"])
    assert table.strict_rank.tolist() == [1, 7, 300, 2]
    assert table.column("document").tolist() == [0, 0, 0, 1]
    assert table.column("logprob").tolist() == [-0.5, -3.0, -9.0, -1.5]
    (elsewhere / "other").mkdir()
    monkeypatch.chdir(elsewhere / "other")
    import_.main(["../results", "without_s=true"])
    out = capsys.readouterr().out
    assert "no non_embedding_params, so excluded from scaling laws: EleutherAI/pythia-70m" in out
    assert "1 have no ranks" in out
    (row,) = rbptrack.runs().frame.to_dict("records")
    assert pd.isna(row["non_embedding_params"])
