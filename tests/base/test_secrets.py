"""Tests that passwords of addresses are hidden and refused, and that names of secrets are recognized."""

from __future__ import annotations

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.base.secrets import declare_secret, is_secret, names_a_secret, refuse_password, without_password


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
def test_passwords_of_addresses_are_hidden_and_refused(uri: str, hidden: str) -> None:
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
def test_addresses_without_a_password_are_accepted_and_unchanged(uri: str) -> None:
    refuse_password(uri)
    assert without_password(uri) == uri


def test_without_password_hides_the_passwords_of_all_addresses_of_a_sentence() -> None:
    text = "first (http://a:s3cret@h), then 'postgresql://ann:s3cret@db/runs'; not http://h:80/x or C:/y."
    assert "s3cret" not in without_password(text)
    assert without_password(text).endswith("not http://h:80/x or C:/y.")


def test_without_password_hides_the_passwords_of_many_addresses() -> None:
    assert without_password("first http://a:s3cret@h" * 3000).count("s3cret") == 0


def test_without_password_reads_a_malformed_address_of_200_000_letters() -> None:
    letters = "a" * 200_000
    assert without_password(f"http://[:={letters}") == f"http://[:={letters}"
    assert without_password(f"http://[:={letters}&token=s3cret") == "http:***"


def test_without_password_hides_a_password_with_spaces() -> None:
    assert "s3 cret" not in without_password("postgresql://ann:my s3 cret@db/runs")


@pytest.mark.parametrize("name", ["token", "HF_TOKEN", "passwd", "pwd", "api_key", "apiKey", "api-key", "db_password"])
def test_names_a_secret_recognizes_tokens_passwords_and_keys(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize("name", ["training_tokens", "tokenizer", "batch_tokens", "key", "k", "author", "group"])
def test_names_a_secret_accepts_names_of_other_values(name: str) -> None:
    assert not names_a_secret(name)


TOKENS = [
    "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",
    "sk-proj-aBcDeFgHiJkLmNoPqRsT12",
    "ghp_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345678",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
    "ALL,SAS=sv2023AbCdEf1234567",
    "my_pass: Zx81kd02mmQp19sLaa0",
]


@pytest.mark.parametrize("token", TOKENS)
def test_values_that_look_like_secrets_are_recognised_and_hidden_under_any_name(token: str) -> None:
    assert is_secret("comment", token)
    hidden = without_password(f"sbatch refuses {token} here")
    assert token[-8:] not in hidden
    assert hidden.startswith("sbatch refuses ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokenizer", "EleutherAI/gpt-neox-20b"),
        ("repo", "org/sk-learn-model-very-long-name1"),
        ("family", "hf_internal_testing_tiny_gpt2"),
        ("revision", "0123456789abcdef0123456789abcdef01234567"),
        ("note", "monkey: abcdefghij1234567890"),
        ("training_tokens", "300000000000"),
        ("key", "language"),
    ],
)
def test_is_secret_accepts_other_values(name: str, value: str) -> None:
    assert not is_secret(name, value)


def test_a_declared_secret_is_hidden_in_all_texts() -> None:
    declare_secret("correct horse")
    assert without_password("login=correct horse failed") == "login=*** failed"
