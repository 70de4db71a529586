"""One door for addresses: what holds a password is moved or refused, never repeated; fuzzing's finds are refused."""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

import pytest
from rbptrack.plugins.executors import slurm

from rbptrack.__main__ import main
from rbptrack.base import secrets
from rbptrack.base.addresses import login_variables, refuse_secret
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.config.request import measuring, sweep_of
from rbptrack.config.schema import TrackingConfig
from rbptrack.tracking.uri import resolve_uri
from tests.jobs import job

MOVED = {
    "postgresql://me:geheim@host:5432/db": ("postgresql://me@host:5432/db", "geheim"),
    "postgresql+psycopg://me:ge%40heim@host/db": ("postgresql+psycopg://me@host/db", "ge@heim"),
    "postgresql://me:ge/heim@host/db": ("postgresql://me@host/db", "ge/heim"),
    'postgresql://m?[e":geheim@host/db': ('postgresql://m?[e"@host/db', "geheim"),
    "postgresql://host/db?user=me&password=ge%20heim&sslmode=require": (
        "postgresql://host/db?user=me&sslmode=require",
        "ge heim",
    ),
    "postgresql://host/db?passwor%64=geheim": ("postgresql://host/db", "geheim"),
    "http://me:ge%40heim@host:5000/prefix": ("http://host:5000/prefix", "ge@heim"),
}
KEPT = [
    "postgresql://me@host/a%20b?sslkey=client.key",
    "http://host:5000/a@b",
    "sqlite:////home/me/a b/mlflow.db",
    "databricks://profile",
]
REFUSED = [
    "postgresql://u:a@b:geheim@host/db",
    "postgresql://u:geheim@host@host/db",
    "postgresql://host/db#password=geheim",
    "postgresql://host/db?sslpassword=geheim",
    "postgresql+pg8000://u:geheim@host/db",
    "mysql+pymysql://u:geheim@host/db",
    "mssql://host/db?odbc_connect=PWD%3Dgeheim",
    "host=h user=u password=geheim",
    "http://geheim@host",
    "http://geheim:@host",
    "http://u:x@geheim@host",
    "http://host?token=geheim",
    "http://host/?api_key=geheim",
    "http://host/#password=geheim",
    "http://me:geh%00eim@host",
    "http://me\x00\x16geheim@host",
    "http://geheim@//[",
    "geheim://me@host",
    "https://",
    "postgresql://u%3Ageheim@host/db",
    "http://host/u:geheim@x",
    "http://host/u%3Ageheim%40x",
]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGPASSWORD", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_URI"):
        monkeypatch.setenv(name, "")  # what a test sets there is taken back


@pytest.mark.parametrize("given", MOVED)
def test_a_password_in_the_environments_address_moves_to_its_driver(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare, password = MOVED[given]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
    assert resolve_uri(TrackingConfig()) == os.environ["MLFLOW_TRACKING_URI"] == bare
    if bare.startswith("http"):
        assert os.environ["MLFLOW_TRACKING_USERNAME"] == "me"
    name = "MLFLOW_TRACKING_PASSWORD" if bare.startswith("http") else "PGPASSWORD"
    assert os.environ[name] == password
    assert resolve_uri(TrackingConfig()) == bare
    with pytest.raises(BadInput, match=r"tracking\.uri holds a password.*: export (PGPASSWORD|MLFLOW_TR)") as refused:
        resolve_uri(TrackingConfig(uri=given))
    assert password not in str(refused.value)


@pytest.mark.parametrize("given", KEPT)
def test_an_address_without_a_password_stays_as_it_is(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
    assert resolve_uri(TrackingConfig()) == resolve_uri(TrackingConfig(uri=given)) == given


@pytest.mark.parametrize("given", REFUSED)
def test_what_cannot_be_taken_apart_is_refused_without_being_printed(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput) as refused:
        resolve_uri(TrackingConfig(uri=given))
    assert "geh" not in str(refused.value)
    if "\x00" not in given:  # no environment holds that
        monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
        with pytest.raises(BadInput) as refused:
            resolve_uri(TrackingConfig())
        assert "geh" not in str(refused.value)


def test_an_address_of_thousands_of_characters_is_not_repeated() -> None:
    with pytest.raises(BadInput, match=r"^tracking\.uri has 3,016 characters; an address has 2,000 at most$"):
        resolve_uri(TrackingConfig(uri="postgresql://h/d" + 3000 * "x"))


def test_a_config_that_holds_a_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf/dataset").mkdir(parents=True)
    (tmp_path / "conf/dataset/news.yaml").write_text("\n-0.0")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="a config file cannot be read, or holds no keys"):
        sweep_of(measuring(["model=nano/6k", "dataset=news"]))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tracking.artifacts", "s3://me:geheim@bucket"),
        ("dataset.files", "['https://hub/x?token=geheim']"),
        ("model.revision", "geheim-in-a-variable"),
    ],
)
def test_no_value_of_a_config_holds_a_secret(key: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_ONE", "geheim-in-a-variable")
    with pytest.raises(BadInput, match=rf"{key}.*(a password or a token|a secret of the environment)") as refused:
        sweep_of(
            measuring(["model=nano/6k", "dataset=pydocs", f"{key}='{value}'" if "[" not in value else f"{key}={value}"])
        )
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        ["+hydra.job.env_set.HF_TOKEN=geheim"],
        ["+hydra.job.env_set={HF_TOKEN: geheim}"],
        ["launch.setup=['export HF_TOKEN=geheim']"],
        ["--cfg=job", "dataset=mine"],
        ["--info=config", "dataset=mine"],
    ],
)
def test_a_secret_of_the_command_line_or_a_config_is_not_repeated(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/dataset").mkdir(parents=True)
    (tmp_path / "conf/dataset/mine.yaml").write_text("name: a\nrepo: b\nsplit: c\nrevision: 'https://u:geheim@h/x'\n")
    monkeypatch.setattr(sys, "argv", ["rbptrack", "model=nano/6k", *words])
    assert main() == 2
    shown = capsys.readouterr()
    assert "geheim" not in shown.out + shown.err
    assert "which would be kept where others read it" in shown.err


def test_a_variable_that_is_read_is_no_secret() -> None:
    for text in (
        "export HF_TOKEN=$(cat ~/.token)",
        "export HF_TOKEN=$MINE",
        "HF_TOKEN_PATH=~/.x module load",
        "KEY= a",
    ):
        refuse_secret("launch.setup", text)


def test_nothing_but_secrets_is_starred(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On both streams, in warnings, logs and tracebacks."""
    plain = {
        "TOKENIZERS_PARALLELISM": "false-or-true",
        "KEYBOARD": "dvorak-extended",
        "SSH_KEY_PATH": str(Path.home() / ".ssh/id_ed25519"),
        "SORT_KEY": "documents",
        "BIG_KEY": "1234567890.5",
        "SHORT_TOKEN": "stdlib",
    }
    secret = {
        "HF_TOKEN": "planted1-hf",
        "AWS_SECRET_ACCESS_KEY": "aws/planted+2",
        "AWS_ACCESS_KEY_ID": "AKIAPLANTED3",
        "MYSQL_PWD": "planted4==",
        "PGPASSWORD": "planted5 pass",
        "AZURE_CONNECTION_STRING_2": "Planted6=x;y",
        "HTTPS_PROXY": "http://me:planted7@proxy:3128",
        "SIGNING_PASSPHRASE": "/planted8/no-such-folder",
    }
    for name, value in (plain | secret).items():
        monkeypatch.setenv(name, value)
    for name in ("stdout", "stderr", "excepthook"):
        monkeypatch.setattr(f"sys.{name}", getattr(sys, name))
    made = logging.getLogRecordFactory()
    secrets.guard()
    secrets.guard()
    try:
        print(*plain.values(), *secret.values(), "aws%2Fplanted%2B2 planted5%20pass")
        sys.stderr.write(warnings.formatwarning("of planted1-hf", UserWarning, "x.py", 1))
        handler = logging.StreamHandler()
        try:
            raise RbptrackError("no: planted1-hf")
        except RbptrackError:
            handler.handle(logging.getLogger("x").makeRecord("x", 40, "f", 1, "failed %s", ("planted1-hf",), None))
            traceback.print_exc()
    finally:
        logging.setLogRecordFactory(made)
    shown = capsys.readouterr()
    assert "planted" not in (shown.out + shown.err).lower()
    assert shown.out.startswith(" ".join(plain.values()) + " *** ***")
    assert "UserWarning: of ***" in shown.err
    assert "failed ***" in shown.err
    assert "RbptrackError: no: ***" in shown.err


def test_jobs_in_a_queue_that_would_lack_the_stores_password_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "geheim-geheim")
    monkeypatch.setenv("SBATCH_EXPORT", "PATH,HOME")
    (cell,) = sweep_of(measuring(["model=nano/6k", "dataset=pydocs", "tracking.uri=postgresql://me@host/db"]))[1]
    todo = [job(secrets=tuple(login_variables(cell.tracking.uri)))]
    with pytest.raises(BadInput, match=r"would not have PGPASSWORD.*export SBATCH_EXPORT=ALL, or name it there"):
        slurm.Slurm().check(todo)
