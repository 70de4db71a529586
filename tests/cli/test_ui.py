"""Tests of the command `ui`, which becomes MLflow's server on the store."""

from __future__ import annotations

import os

import pytest

from tests.conftest import RunCommand


def test_ui_prints_the_page_and_becomes_the_server(run_in_store: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of the store may hold a password. It is passed in the environment, not on the command line."""
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda _, command, environment: started.append((command, environment)))
    _, out, _ = run_in_store("ui --port 5001")
    assert "http://127.0.0.1:5001/#/experiments/" in out
    assert "workflowType=machine_learning" in out
    ((command, environment),) = started
    assert command[command.index("--port") + 1] == "5001"
    assert environment["MLFLOW_BACKEND_STORE_URI"].startswith("sqlite:///")
    assert not any("sqlite" in word for word in command)


def test_ui_prints_brackets_around_an_ipv6_address(run_in_store: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "execve", lambda *_: None)
    _, out, _ = run_in_store("ui --host ::1")
    assert "http://[::1]:5000/#" in out


def test_ui_starts_no_server_for_databricks(run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("a server was started"))
    code, _, error = run_command("ui --tracking-uri databricks://profile")
    assert code == 2
    assert "databricks://profile" in error
