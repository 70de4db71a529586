"""Every command is run in the same way: its help, its options, and what it says of a wrong one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from rbptrack.__main__ import COMMANDS
from rbptrack.errors import BadInput
from tests.conftest import Program

WITH_OPTIONS = ("ui", "sync", "export", "import", "plugins", "bench", "cache")


def run(command: str, *arguments: str) -> int:
    return int(import_module(f"rbptrack.commands.{COMMANDS[command]}").main(list(arguments)))


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", [*WITH_OPTIONS, "plan"])
def test_help(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also beside other words, and without doing anything."""
    assert run(command, "nonsense=1", flag) == 0
    shown = capsys.readouterr().out
    assert f"python -m rbptrack {command}" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


@pytest.mark.parametrize("command", WITH_OPTIONS)
def test_a_wrong_option_shows_the_right_ones(command: str) -> None:
    with pytest.raises(BadInput) as refused:
        run(command, "nonsense=1")
    reason, usage = str(refused.value).splitlines()
    assert "nonsense" in reason
    assert usage.startswith(f"python -m rbptrack {command}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ui", "port=many"), "Value 'many'"),
        (("sync", "moved=perhaps"), "Value 'perhaps'"),
        (("plan", "output=pdf"), "output=pdf: expected table or csv"),
        (("cache", "empty"), "cache empty: expected nothing, or clear"),
        (("export",), "out"),
    ],
    ids=" ".join,
)
def test_a_wrong_value(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        run(*arguments)


def test_measure_is_a_command_like_the_others(program: Program, tmp_path: Path) -> None:
    arguments = ("model=nano/6k", "--cfg", "job")
    named, plain = program("measure", *arguments, cwd=tmp_path), program(*arguments, cwd=tmp_path)
    assert named.returncode == 0, named.stderr
    assert named.stdout == plain.stdout
    assert "size: 6k" in named.stdout
    shown = program("measure", "-h", cwd=tmp_path).stdout
    assert "python -m rbptrack -m 'model=nano/*'" in shown
    assert list(tmp_path.iterdir()) == []
