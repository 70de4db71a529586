"""With CI set, a skip fails: of a test, and of a module at collection."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import skips

WAYS = {
    "test": "import pytest\ndef test_one():\n    pytest.skip('no GPU')\n",
    "mark": "import pytest\n@pytest.mark.skipif(True, reason='no GPU')\ndef test_one():\n    pass\n",
    "module": "import pytest\npytest.importorskip('no_such_module')\ndef test_one():\n    pass\n",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ci", ["", "true"])
def test_a_skip_fails_in_ci_only(way: str, ci: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", ci)
    path = tmp_path / f"test_{way}.py"
    path.write_text(WAYS[way])
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path), str(path)]
    skipped = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    failed = (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert pytest.main(options, plugins=[skips]) in (failed if ci else skipped)
