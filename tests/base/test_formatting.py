"""Errors, names and numbers as people read them."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name

from rbptrack.base.errors import BadInput, RbptrackError, disk_trouble, first_line, nearest, shortened, unknown
from rbptrack.base.escape import file_part, metric_part
from rbptrack.base.formatting import compact, compact_bytes, counted, duration, listed, number, short_hash, short_path
from rbptrack.base.secrets import names_a_secret, refuse_password, without_password

STRANGE = [
    "nano (v2)",
    "C++",
    "a,b",
    "a/b",
    "..",
    ".",
    "",
    " ",
    "../../etc",
    "a\x00b",
    "x" * 300,
    "a:b",
    "é",
    "\U0001f600",
]


@pytest.mark.parametrize("name", STRANGE)
def test_mlflow_takes_every_name_as_a_part(name: str) -> None:
    validate: Any = _validate_metric_name
    validate(f"alpha/{metric_part(name)}/{metric_part(name)}/rbp_10")


def test_ordinary_names_stay_as_they_are() -> None:
    for name in ("pythia", "nano-6k", "pythia bfloat16", "qwen2.5", "step_1"):
        assert metric_part(name) == file_part(name) == name
    assert metric_part("C++") == "C:2b:2b"


@given(st.text(), st.text())
def test_different_names_stay_different(one: str, other: str) -> None:
    if one != other:
        assert metric_part(one) != metric_part(other)
        assert file_part(one) != file_part(other)


@given(st.text())
def test_a_file_part_is_one_part_of_a_path(name: str) -> None:
    part = file_part(name)
    path = Path("/folder", part)
    assert path.parent == Path("/folder")
    assert path.name == part
    assert ".." not in path.parts
    assert 0 < len(part.encode()) <= 140
    assert part.isprintable()


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("pythia/70", ["pythia/70m"]),
        ("PYTHIA/70M", ["pythia/70m"]),
        ("gtp2", ["gpt2"]),
        ("pyt", ["pythia/70m", "pythia/12b"]),
        ("zzz", []),
    ],
)
def test_near_names(given: str, near: list[str]) -> None:
    found = nearest(given, ["pythia/70m", "pythia/12b", "gpt2", "opt"])
    assert found[: len(near)] == near
    assert bool(found) == bool(near)


def test_an_unknown_name_lists_what_there_is() -> None:
    error = unknown("model", "gtp2", ["gpt2", "opt"])
    assert isinstance(error, BadInput)
    assert "gpt2" in str(error)
    assert "opt" in str(error)
    assert "none" in str(unknown("model", "x", []))
    assert shortened([str(i) for i in range(20)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 10 more"


def test_what_a_disk_refuses_is_said(tmp_path: Path) -> None:
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENAMETOOLONG):
        assert isinstance(disk_trouble(OSError(code, "why", "file"), tmp_path), RbptrackError)
    assert isinstance(disk_trouble(OSError("[errno 28] No space left"), tmp_path), RbptrackError)
    assert disk_trouble(OSError(errno.EIO, "why"), tmp_path) is None
    assert disk_trouble(ValueError("x"), tmp_path) is None


def test_first_lines() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("uri", "hidden"),
    [
        ("postgresql://ann:s3cret@db:5432/runs", "postgresql://ann:***@db:5432/runs"),
        ("postgresql+psycopg://ann:a/b@db/runs", "postgresql+psycopg://ann:***@db/runs"),
        ("mysql://ann:p@ss@db/runs", "mysql://ann:***@db/runs"),
        ("https://ann:s3cret@host/path", "https://***@host/path"),
        ("https://token@host", "https://***@host"),
        ("postgresql://db/runs?user=ann&password=s3cret&x=1", "postgresql://db/runs?password=***&user=ann&x=1"),
        ("http://host/?access_token=s3cret", "http://host/?access_token=***"),
        ("http:/me:s3cret@host", "http:***"),
        ("http:me:s3cret@host", "http:***"),
        ("https:///me:s3cret@host", "https:***"),
        ("http:/host?token=s3cret", "http:***"),
        ("http:\\\\me:s3cret@host", "http:***"),
        ("postgresql:ann:s3cret@db/runs", "postgresql:***"),
        ("postgresql://ann:s3cret@db:port/runs", "postgresql:***"),
        ("http://me:s3?c/r#t@host/path", "http://***@host/path"),
        ("mssql+pyodbc:///?odbc_connect=DRIVER%3D%7BODBC%7D%3BPWD%3Ds3cret", "mssql+pyodbc:///?odbc_connect=***"),
        ("postgresql://db/runs?options=-c%20x=s3cret", "postgresql://db/runs?options=***"),
        ("https://host/path?sv=2&sig=s3cret&se=1", "https://host/path?se=1&sig=***&sv=2"),
        ("http://host/?auth=s3cret", "http://host/?auth=***"),
        ("http://host/?key=s3cret&AccountKey=s3cret", "http://host/?AccountKey=***&key=***"),
        ("mysql://a:s3cret@h/db,mysql://b:s3cret@h/db", "mysql://a:***@h/db%2Cmysql%3A//b%3A***%40h/db"),
    ],
)
def test_a_password_in_an_address_is_refused_and_hidden(uri: str, hidden: str) -> None:
    assert without_password(f"cannot reach {uri} now") == f"cannot reach {hidden} now"
    with pytest.raises(BadInput) as caught:
        refuse_password(uri)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "sqlite:////home/ann/mlflow.db",
        "sqlite:////home/ann/what?/a%20b=c@d/mlflow.db",
        "http://host:5000/path",
        "http://host:5000/path?x=1",
        "postgresql://ann@db:5432/runs",
        "mysql://db/runs?ssl_ca=/etc/ca.pem&charset=utf8",
        "databricks",
        "databricks://profile",
        "/home/ann@work/x:/y=z",
    ],
)
def test_other_addresses_stay(uri: str) -> None:
    refuse_password(uri)
    assert without_password(uri) == uri


def test_several_addresses_of_a_sentence_lose_their_passwords() -> None:
    text = "first (http://a:s3cret@h), then 'postgresql://ann:s3cret@db/runs'; not http://h:80/x or C:/y."
    assert "s3cret" not in without_password(text)
    assert without_password(text).endswith("not http://h:80/x or C:/y.")
    assert "s3 cret" not in without_password("postgresql://ann:my s3 cret@db/runs")


@pytest.mark.parametrize("name", ["token", "HF_TOKEN", "passwd", "pwd", "api_key", "apiKey", "api-key", "db_password"])
def test_names_of_secrets(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize("name", ["training_tokens", "tokenizer", "batch_tokens", "key", "k", "author", "group"])
def test_names_of_other_things(name: str) -> None:
    assert not names_a_secret(name)


def test_numbers() -> None:
    assert [counted(n, "size") for n in (0, 1, 1200)] == ["0 sizes", "1 size", "1,200 sizes"]
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert [number(-0.0001, form) for form in (".3f", "+.3f", ".0%")] == ["0.000", "+0.000", "0%"]
    assert [compact(n) for n in (999_999, 1.4e9, 85_056_000, 5, 0, 2e-5)] == ["1M", "1.4B", "85.1M", "5", "0", "2·10⁻⁵"]
    assert [compact_bytes(n) for n in (0, 5, 1234, 340_900_000)] == ["0", "5 bytes", "1.23 kB", "341 MB"]
    assert [duration(s) for s in (100, float("nan"), float("inf"))] == ["0:01:40", "?", "?"]
    assert short_path(str(Path.cwd() / "a/b")) == "a/b"
    assert short_path("/elsewhere/x") == "/elsewhere/x"


@pytest.mark.parametrize(
    ("identity", "short"),
    [
        ("EleutherAI/pythia-70m@a1b2c3d4e5f6", "a1b2c3d4"),
        ("mine/model@a1b2c3d4e5f6/small-q4.gguf", "a1b2c3d4/small-q4.gguf"),
        ("sha256:0123456789ab", "01234567"),
        ("0123456789ab", "01234567"),
        ("", ""),
    ],
)
def test_a_hash_is_shortened_and_not_the_name_before_it(identity: str, short: str) -> None:
    assert short_hash(identity) == short
