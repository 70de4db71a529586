"""A cell's config is resolved once, and what it resolves to is what it always was."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.request import measuring, sweep_of
from rbptrack.config.schema import TrackingConfig
from rbptrack.models import architecture, loading
from rbptrack.ranks.measurement import Shard
from rbptrack.sweep import cell, measured_before, resolve
from rbptrack.sweep.delivery import Delivery
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.resolved import Resolved
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.runs_table import LoggedRun
from rbptrack.tracking.store import Store
from tests.conftest import EMBEDDED

TWO_BY_TWO = ("model=nano/6k,nano/15k", "dataset=stdlib,pydocs", "dataset.documents=2", "k=1,10")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each thing is pinned or loaded."""
    counts: Counter[str] = Counter()

    def counted(module: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    for name in ("of_model", "of_dataset"):
        counted(resolve, name)
    for name in ("load_config", "load_tokenizer"):
        counted(architecture, name)
    counted(loading, "load_model")
    return counts


def test_each_model_and_dataset_is_pinned_and_loaded_once(
    loads: Counter[str], with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the checks before a sweep and its four cells together."""
    monkeypatch.chdir(with_store)
    settings, cells = sweep_of(measuring(TWO_BY_TWO))
    resolver = Resolver()
    Store(settings.tracking).check_writable()
    every = [resolver.resolve(each) for each in cells]
    assert "load_model" not in loads  # no weights before the first cell
    for config, resolved in zip(cells, every, strict=True):
        ended = cell.run(resolved, Delivery.of(config, resolved), Shard())
        assert ended
        assert ended.status == "measured"
    assert loads == {"of_model": 2, "of_dataset": 2, "load_config": 2, "load_tokenizer": 2, "load_model": 2}


def test_what_fitted_before_is_resolved_without_loading_anything(loads: Counter[str], tmp_path: Path) -> None:
    """Until a file of the model is another."""
    shutil.copytree(EMBEDDED / "models/6k", tmp_path / "own")
    asked = ["model=hf", f"model.path={tmp_path}/own", "model.family=own", "model.size=1k", "reference=nano/15k"]

    def resolved(*more: str) -> Resolved:
        _, (config,) = sweep_of(measuring([*asked, "dataset=pydocs", *more]))
        return Resolver().resolve(config)

    first, again = resolved(), resolved()
    assert loads["load_config"] == loads["load_tokenizer"] == 2
    assert again.fingerprint == first.fingerprint
    assert (again.candidates, again.without, again.reference) == (first.candidates, first.without, first.reference)
    assert resolved("candidates=tokenizer").fingerprint != first.fingerprint
    (tmp_path / "own/tokenizer.json").unlink()
    with pytest.raises(BadInput, match="has no tokenizer"):
        resolved()


def test_what_lacks_columns_is_measured_again_where_that_is_asked_for(
    with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only then: an older table counts as measured."""
    monkeypatch.chdir(with_store)
    asked = ("model=nano/6k", "dataset=pydocs", "dataset.documents=2", "k=1,10")

    def ended(*more: str) -> tuple[str, int]:
        _, (config,) = sweep_of(measuring([*asked, *more]))
        resolved = Resolver().resolve(config)
        outcome = cell.run(resolved, Delivery.of(config, resolved), Shard())
        assert outcome
        reader = Store(config.tracking).reader
        return outcome.status, reader.ranks(reader.find(resolved.fingerprint) or "").version

    with monkeypatch.context() as older:
        older.setattr("rbptrack.engine.gathering.table_version", lambda folder: 1)
        assert ended() == ("measured", 1)
    assert ended() == ("skipped", 1)
    assert ended("again=columns") == ("measured", 2)
    assert ended("again=columns") == ("skipped", 2)


def test_the_store_is_asked_once_before_a_cell_is_measured_and_once_before_it_is_delivered(
    with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once after that, for a duplicate that another process delivered in the same moment."""
    monkeypatch.chdir(with_store)
    _, (config,) = sweep_of(measuring(["model=nano/6k", "dataset=pydocs", "dataset.documents=2"]))
    resolved = Resolver().resolve(config)
    delivery = Delivery.of(config, resolved)
    questions: list[str] = []
    measurements = Reader.measurements

    def counted(self: Reader, fingerprint: str, *, status: str) -> list[LoggedRun]:
        questions.append(status)
        return measurements(self, fingerprint, status=status)

    monkeypatch.setattr(Reader, "measurements", counted)
    assert measured_before.outcomes_of([(resolved, delivery)]) == {}  # the whole sweep at once
    assert questions == []
    ended = cell.run(resolved, delivery)
    assert ended
    assert ended.status == "measured"
    assert questions == ["RUNNING", "FINISHED", "FINISHED", "FINISHED"]


def test_what_stands_under_another_name_is_skipped_and_the_name_said(
    with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(with_store)

    def ended(*names: str) -> Outcome:
        asked = ("model=nano/6k", "dataset=pydocs", "dataset.documents=2", "k=1", *names)
        _, (config,) = sweep_of(measuring(asked))
        resolved = Resolver().resolve(config)
        delivery = Delivery.of(config, resolved)
        before = measured_before.outcomes_of([(resolved, delivery)])
        outcome = before.get(0) or cell.run(resolved, delivery, Shard())
        assert outcome
        return outcome

    measured = ended()
    assert measured.status == "measured"
    assert ended().notes == []
    store = Store(TrackingConfig()).shown
    for name, title in (("model.family=two", "two-6k / pydocs"), ("dataset.name=texts", "nano-6k / texts")):
        other = ended(name)
        assert other.status == "skipped"
        assert other.notes == [f"{title} is already in {store} as nano-6k/pydocs (run {measured.run_id}); skipped"]


def test_a_tokenizer_of_its_own_is_another_cell(tmp_path: Path) -> None:
    """Two configs with the same weights do not share a tokenizer that only one of them names."""
    import transformers

    folder = tmp_path / "words"
    shutil.copytree(EMBEDDED / "models/6k", folder)
    (folder / "model.safetensors").unlink()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": [tokenizer.convert_ids_to_tokens(300)]})
    tokenizer.save_pretrained(folder)
    base = ["model=nano/6k", "dataset=pydocs"]
    _, (plain,) = sweep_of(measuring(base))
    _, (other,) = sweep_of(measuring([*base, f"model.tokenizer={folder}"]))
    resolver = Resolver()
    one, two = resolver.resolve(plain), resolver.resolve(other)
    assert one.weights is two.weights
    assert 300 in two.tokenizer.all_special_ids
    assert 300 not in one.tokenizer.all_special_ids
    assert one.fingerprint != two.fingerprint


def test_fingerprints_stay_what_they_were() -> None:
    """A fingerprint that moved would make every store measure everything again."""
    _, (config,) = sweep_of(measuring(["model=nano/6k", "dataset=pydocs"]))
    assert Resolver().resolve(config).fingerprint == FINGERPRINT


FINGERPRINT = "bbc3453ad7e79cdfdf6bc139833a64b799b7f5668635b236629e9ffeb5950317"


@pytest.mark.parametrize("override", ["force=true,false", "tracking.experiment=a,b", "sweep=one,two"])
def test_what_belongs_to_the_sweep_takes_one_value(override: str) -> None:
    with pytest.raises(BadInput, match="belongs to the whole sweep and takes one value"):
        sweep_of(measuring(["model=nano/6k", override]))


def test_a_single_cell_is_a_sweep_of_one() -> None:
    settings, cells = sweep_of(measuring(["model=nano/6k", "analyzers=power_law,compare", "tracking.every=3"]))
    assert [c.title for c in cells] == ["nano-6k / pydocs"]
    assert (settings.analyzers, settings.tracking.every) == (["power_law", "compare"], 3.0)
