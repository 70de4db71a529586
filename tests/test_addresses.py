"""Addresses and config files that fuzzing found: each is refused in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbptrack.config.compose import measuring, sweep_of
from rbptrack.config.schema import TrackingConfig
from rbptrack.errors import BadInput
from rbptrack.tracking import resolve_uri


@pytest.mark.parametrize("uri", ["http://me:geh%00eim@host", "http://me\x00\x16im@host", "http://m@//[", "https://"])
def test_what_is_no_address_is_said_without_what_was_given(uri: str) -> None:
    with pytest.raises(BadInput, match=r"tracking\.uri is not an address") as refused:
        resolve_uri(TrackingConfig(uri=uri))
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
