"""Shards: jobs that measure one cell together come to the same file as one process, whatever happens to them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.config.request import measuring, sweep_of
from rbptrack.config.schema import Config, DatasetConfig, EngineConfig, ModelConfig
from rbptrack.corpus.documents import load_documents
from rbptrack.corpus.sequences import Corpus, build_corpus
from rbptrack.engine import at_work
from rbptrack.engine.at_work import locked
from rbptrack.engine.measure import Share, measure
from rbptrack.engine.shards import Division, complete
from rbptrack.models.architecture import load_tokenizer
from rbptrack.models.causal import CausalModel
from rbptrack.models.loading import load_model
from rbptrack.ranks import RankTable
from rbptrack.ranks.measurement import Shard
from rbptrack.sources.pin import of_dataset, resolve
from rbptrack.sweep import cell, measured_before
from rbptrack.sweep.delivery import Delivery
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.reports import Inbox, Teller, report_file
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.results import Results
from rbptrack.sweep.tasks import Task, shards
from rbptrack.sweep.watch import Watch
from rbptrack.sweep.work import work
from rbptrack.tracking import outbox
from rbptrack.tracking.schema import Kind, Tag
from rbptrack.tracking.store import Store
from tests.conftest import EMBEDDED
from tests.jobs import job
from tests.patience import PATIENCE, until

DATASET = DatasetConfig(
    name="stdlib",
    path=str(EMBEDDED / "datasets/stdlib"),
    split="test",
    id_field="id",
    documents=3,
    seq_len=256,
    context=32,
)
ENGINE = EngineConfig(batch_tokens=512, part_tokens=3000)


@pytest.fixture(scope="module")
def model() -> CausalModel:
    place = EMBEDDED / "models/15k"
    source = resolve("model", repo="", path=str(place), revision="main")
    return load_model(ModelConfig(family="nano", size="15k", path=str(place)), source)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    place = EMBEDDED / "models/15k"
    tokenizer = load_tokenizer(resolve("model", repo="", path=str(place), revision="main"))
    return build_corpus(load_documents(DATASET, of_dataset(DATASET)), tokenizer, DATASET)


@pytest.fixture(scope="module")
def whole(model: CausalModel, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """The table of one process, by the tokens of a block."""
    tables = {}
    for tokens in (3000, 131072):
        folder = tmp_path_factory.mktemp("whole")
        engine = replace(ENGINE, part_tokens=tokens)
        tables[tokens] = measure(model, corpus, ks=(1,), engine=engine, folder=folder).path.read_bytes()
    return tables


@pytest.mark.parametrize(("count", "part_tokens"), [(3, 3000), (8, 3000), (100, 131072)])
def test_shards_measure_what_one_process_does_to_the_byte(
    count: int, part_tokens: int, model: CausalModel, corpus: Corpus, whole: dict[int, bytes], tmp_path: Path
) -> None:
    """Also with fewer blocks than shards, and with more shards than batches."""
    engine = replace(ENGINE, part_tokens=part_tokens)
    order = [2, 0, 1, *range(3, count)] if count > 2 else range(count)
    shares, seen = [], []
    for number in order:
        # Machines with other memory would choose other batches; the division's hold.
        own = engine if number == order[0] else replace(engine, batch_tokens=0, chunk_tokens=0)
        share = Share(model, corpus, engine=own, folder=tmp_path, shard=Shard(number, count))
        assert complete(corpus, tmp_path) == (number == order[-1] and share.num_targets == 0)
        share.measure(progress=seen.append)
        shares.append(share.num_targets)
    assert complete(corpus, tmp_path)
    assert sum(seen) == sum(shares) == corpus.num_targets
    if count <= 8:
        assert max(shares) - min(shares) < 4 * 512  # as even as batches allow
    merged = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path)
    assert merged.path.read_bytes() == whole[part_tokens]
    assert merged.fresh_tokens == corpus.num_targets  # what the shards cost is the cell's cost
    assert merged.seconds > 0
    assert merged.batch_tokens == 512


def test_a_lost_shard_alone_is_measured_again(
    model: CausalModel, corpus: Corpus, whole: dict[int, bytes], tmp_path: Path
) -> None:
    engine = replace(ENGINE, part_seconds=0.0)

    def share(number: int) -> Share:
        return Share(model, corpus, engine=engine, folder=tmp_path, shard=Shard(number, 3))

    batches = []

    def lost(tokens: int) -> None:
        batches.append(tokens)
        if len(batches) == 2:  # of four; counting files instead would depend on how fast they are written
            raise KeyboardInterrupt

    share(0).measure()
    share(2).measure()
    before = len(list(tmp_path.glob("part-*.parquet")))
    with pytest.raises(KeyboardInterrupt):
        share(1).measure(progress=lost)
    assert not complete(corpus, tmp_path)
    kept = {p: p.stat().st_mtime_ns for p in tmp_path.glob("part-*.parquet")}
    assert len(kept) > before
    share(1).measure()
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    merged = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path)
    assert merged.path.read_bytes() == whole[3000]


def test_what_was_begun_in_version_1_is_completed_in_version_1(
    model: CausalModel, corpus: Corpus, whole: dict[int, bytes], tmp_path: Path
) -> None:
    """Parts of an older rbptrack lack columns; nothing of them is measured again."""
    Share(model, corpus, engine=ENGINE, folder=tmp_path, shard=Shard(0, 3)).measure()
    for path in tmp_path.glob("part-*.parquet"):
        RankTable.read(path).of_version(1).write(path)
    merged = measure(model, corpus, ks=(1,), engine=ENGINE, folder=tmp_path)
    assert merged.ranks.version == 1
    (tmp_path / "new.parquet").write_bytes(whole[3000])
    new = RankTable.read(tmp_path / "new.parquet")
    assert new.version == 2
    assert merged.ranks.table.equals(new.of_version(1).table)


@pytest.mark.parametrize("then", [2, 8])
def test_a_folder_keeps_the_division_that_it_was_begun_with(
    then: int, model: CausalModel, corpus: Corpus, whole: dict[int, bytes], tmp_path: Path
) -> None:
    Share(model, corpus, engine=ENGINE, folder=tmp_path, shard=Shard(1, 3)).measure()
    kept = {p.name for p in tmp_path.glob("part-*.parquet")}
    other = replace(ENGINE, part_tokens=131072, batch_tokens=0)  # chosen anew: what was begun holds
    for number in range(then):
        Share(model, corpus, engine=other, folder=tmp_path, shard=Shard(number, then)).measure()
    assert complete(corpus, tmp_path)
    assert kept < {p.name for p in tmp_path.glob("part-*.parquet")}
    assert len(Division.read(tmp_path).shards) == 3
    assert measure(model, corpus, ks=(1,), engine=other, folder=tmp_path).path.read_bytes() == whole[3000]


def test_small_files_that_a_crash_emptied_are_made_again(
    model: CausalModel, corpus: Corpus, whole: dict[int, bytes], tmp_path: Path
) -> None:
    Share(model, corpus, engine=ENGINE, folder=tmp_path, shard=Shard(1, 3)).measure()
    for file in tmp_path.glob("*.json"):
        file.write_text("")
    measured = measure(model, corpus, ks=(1,), engine=ENGINE, folder=tmp_path)
    assert measured.path.read_bytes() == whole[3000]
    assert 0 < measured.fresh_tokens < corpus.num_targets


def test_that_another_process_is_at_work_is_said(
    with_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the terminal or in the job's log, and in the sweep's table; it was silence, for hours."""
    monkeypatch.chdir(with_store)
    monkeypatch.setattr(at_work, "_MOMENT_SECONDS", 0.05)
    monkeypatch.setattr(at_work, "_LOOK_SECONDS", 0.05)
    config = asked()
    resolved = Resolver().resolve(config)
    task = Task(0, Shard(), config)
    todo = [job(folder=with_store)]
    delivery = Delivery.of(config, resolved, tell=partial(Teller(report_file(todo[0])).at_work, task))
    inbox = Inbox(Results(), total=1, aloud=False)
    watch = Watch(Results(), inbox, todo, total=1)

    def line() -> str:
        inbox.read(todo)
        return watch.line()

    with ThreadPoolExecutor(1) as pool:
        with locked(delivery.folder):
            waiting = pool.submit(cell.run, resolved, delivery)
            until(lambda: "another process" in line(), "word of the other process")
            shown = line()
        assert waiting.result()
    assert shown.startswith("0 of 1 cell ended, 0 running, 1 at work in another process; ")
    assert shown.endswith("waits")
    assert "another process in this folderis measuring it; waiting" in capsys.readouterr().out
    assert "1 running" in line()


def test_a_folder_of_another_corpus_is_refused(model: CausalModel, corpus: Corpus, tmp_path: Path) -> None:
    Share(model, corpus, engine=ENGINE, folder=tmp_path)
    with pytest.raises(MeasurementError, match="belongs to other documents; remove it and run again"):
        Share(model, corpus.first_tokens(2000), engine=ENGINE, folder=tmp_path)


def asked(*words: str) -> Config:
    request = measuring(["model=nano/15k", "dataset=pydocs", "dataset.documents=4", "engine.batch_tokens=512", *words])
    return sweep_of(request)[1][0]


def finished(config: Config) -> list[str]:
    reader = Store(config.tracking).reader
    return [r.run_id for r in reader.search({Tag.KIND: Kind.MEASUREMENT})]


def test_two_that_end_together_deliver_once(with_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(with_store)
    config = asked("shards=2")
    resolved = Resolver().resolve(config)
    both, measured = threading.Barrier(2, timeout=PATIENCE), cell._measure_share

    def together(*arguments: object) -> None:
        measured(*arguments)  # type: ignore[arg-type]
        both.wait()

    monkeypatch.setattr(cell, "_measure_share", together)
    resolved.load_model()
    ended: list[Outcome | None] = []

    def job(number: int) -> None:
        delivery = Delivery.of(config, resolved)
        ended.append(cell.run(resolved, delivery, Shard(number, 2)))

    threads = [threading.Thread(target=job, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    done = sorted((outcome for outcome in ended if outcome), key=lambda outcome: outcome.status)
    assert [o.status for o in done] == ["measured", "skipped"]
    assert done[1].run_id == done[0].run_id
    assert finished(config) == [done[0].run_id]
    assert not list(with_store.glob("mlruns/partial/*"))
    run = Store(config.tracking).reader.run(done[0].run_id)
    assert run.metrics["engine/tokens_per_second"] > 0
    # The same cell without shards is the same measurement: it is found, and so is it by a shard.
    assert asked("shards=5") != asked()
    for other in (Shard(), Shard(3, 5)):
        again = cell.run(resolved, Delivery.of(asked(), resolved), other)
        assert again
        assert (again.status, again.run_id) == ("skipped", done[0].run_id)


def test_a_second_sweep_in_the_same_folder_finds_what_the_first_delivers(
    with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a shard that the first measures; when it may go on, the cell is delivered and its folder gone."""
    monkeypatch.chdir(with_store)
    config = asked("shards=2")
    resolved = Resolver().resolve(config)
    measured, outcomes = cell._measure_share, list[Outcome | None]()

    def meanwhile(*arguments: object) -> None:
        monkeypatch.setattr(cell, "_measure_share", measured)
        for number in range(2):  # the first sweep, from beginning to end
            outcomes.append(cell.run(resolved, Delivery.of(config, resolved), Shard(number, 2)))
        measured(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cell, "_measure_share", meanwhile)
    second = cell.run(resolved, Delivery.of(config, resolved), Shard(0, 2))
    assert outcomes[0] is None
    assert outcomes[1]
    assert outcomes[1].status == "measured"
    assert second
    assert (second.status, second.run_id) == ("skipped", outcomes[1].run_id)
    assert finished(config) == [second.run_id]
    assert not list(with_store.glob("mlruns/partial/*"))


def test_a_run_that_finds_its_cell_known_leaves_shards_at_work_alone(
    with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard of another sweep writes in the cell's folder; the last to end there removes it."""
    monkeypatch.chdir(with_store)
    config = asked("shards=2")
    resolved = Resolver().resolve(config)
    delivery = Delivery.of(config, resolved)
    first = cell.run(resolved, delivery)  # the cell is known from here on
    assert first
    outcome_of = measured_before.outcome_of
    share, asked_for, sizes = Share.measure, list[str](), list[int]()

    def unknown_at_first(*arguments: object) -> Outcome | None:
        asked_for.append("asked")
        return outcome_of(*arguments) if len(asked_for) > 1 else None  # type: ignore[arg-type]

    def meanwhile(self: Share, **options: Any) -> None:
        def progress(tokens: int) -> None:
            if not sizes:  # in the middle of the shard's work two other commands find the cell known
                again = cell.run(resolved, Delivery.of(config, resolved))
                assert again
                assert again.status == "skipped"
                outbox.repair_and_deliver(config.tracking, tell=print)
            sizes.append(tokens)

        share(self, **options | {"progress": progress})

    monkeypatch.setattr(measured_before, "outcome_of", unknown_at_first)
    monkeypatch.setattr(Share, "measure", meanwhile)
    ended = cell.run(resolved, delivery, Shard(0, 2))
    assert sizes
    assert ended
    assert (ended.status, ended.run_id) == ("skipped", first.run_id)
    assert finished(config) == [first.run_id]
    assert not list(with_store.glob("mlruns/partial/*"))


def test_forced_shards_do_not_remove_each_others_work(with_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(with_store)
    config = replace(asked("shards=3", "force=true"), sweep="again")
    resolver, results = Resolver(), Results()
    for shard in shards(config):
        work([Task(0, shard, config)], results, lambda task: resolver.resolve(task.config), total=1)
    assert results.cells[0].status == "measured"
    assert len(finished(config)) == 1
    assert not list(with_store.glob("mlruns/partial/*"))


def test_the_number_of_shards_is_checked() -> None:
    with pytest.raises(BadInput, match=r"shards must be 1 .* or more, or auto; got 0"):
        asked("shards=0")


def test_a_failed_and_a_lost_shard_are_named() -> None:
    cells = [asked("shards=4"), asked("shards=4")]
    results = Results()
    for number, message in ((0, ""), (1, "out of memory"), (3, "")):
        outcome = Outcome("x", "m", "d", "failed" if message else "measured", message=message)
        assert results.take(0, number, outcome, whole=False)
    collected = results.collect(cells)  # of an interrupted sweep: only what is known
    assert [o.message for o in collected] == ["shard 2 of 4: out of memory"]
    for cell_number, shard, why in ((0, 2, "its job was lost"), *((1, n, "its job never started") for n in range(4))):
        results.lose(Task(cell_number, Shard(shard, 4), cells[cell_number]), why)
    lost, never = results.collect(cells)
    assert (lost.status, lost.title) == ("failed", "nano-15k / pydocs")
    assert lost.message == "shard 2 of 4: out of memory; shard 3 of 4: its job was lost"
    assert never.message == "shard 1, 2, 3, 4 of 4: its job never started"
    results.take(0, 2, Outcome("x", "m", "d", "skipped"), whole=True)
    assert not results.take(0, 1, Outcome("x", "m", "d", "measured"), whole=True)  # the first has said it
    assert results.collect(cells)[0].status == "skipped"
