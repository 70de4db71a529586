"""One bit flipped in anything that is kept on disk: found out, and made again or named; never read as other numbers."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from rbptrack.base.errors import RbptrackError
from rbptrack.config.request import measuring, sweep_of
from rbptrack.config.schema import DatasetConfig, EngineConfig
from rbptrack.corpus import tokens
from rbptrack.corpus.documents import Document
from rbptrack.corpus.sequences import build_corpus
from rbptrack.engine.measure import measure
from rbptrack.engine.parts import Stretch, blocks
from rbptrack.models.architecture import load_tokenizer
from rbptrack.models.loading import load_model
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.ranks.measurement import Shard
from rbptrack.sources import cache
from rbptrack.sources.pin import of_dataset
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.reports import Inbox, Report, Teller, report_file
from rbptrack.sweep.results import Results
from rbptrack.sweep.tasks import Task
from tests.campaigns.recorded import note
from tests.jobs import job
from tests.test_measure import config, source
from tests.test_parquet import ranks
from tests.test_sequences import byte_tokenizer

FLIPS = 650  # of each kind of file


def flips(path: Path) -> Iterator[int]:
    """Flip random bits of a file, one at a time; half of them in its last kilobyte, where Parquet's footer is."""
    whole, draw = path.read_bytes(), random.Random(path.suffix)
    bits = len(whole) * 8
    for bit in draw.sample(range(bits), FLIPS // 2) + draw.sample(range(max(0, bits - 8192), bits), FLIPS // 2):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        yield bit
    path.write_bytes(whole)


def of_table(path: Path) -> tuple[object, ...]:
    read = RankTable.read(path)
    return (read.vocab_size, read.strict, *(read.column(n).tobytes() for n in read.table.column_names))


def of_histogram(path: Path) -> tuple[object, ...]:
    read = RankHistogram.read(path)
    return (read.vocab_size, read.rank.tobytes(), read.count.tobytes(), read.logprob.tobytes())


@pytest.mark.parametrize(("kind", "read"), [("table", of_table), ("histogram", of_histogram)])
def test_what_cannot_be_made_again_is_named(
    kind: str, read: Callable[[Path], tuple[object, ...]], tmp_path: Path
) -> None:
    """By an error with the file's name; or nothing that is read has changed."""
    path = tmp_path / "file.parquet"
    (ranks() if kind == "table" else ranks().histogram()).write(path)
    expected, ends = read(path), Counter[str]()
    for bit in flips(path):
        try:
            values = read(path)
        except RbptrackError as error:
            named = re.match(rf"{path} (is damaged|does not hold ranks|is not)", str(error))
            ends["named" if named else str(error)] += 1
        else:
            assert values == expected, bit
            ends["the same"] += 1  # a byte of the footer that nothing reads
    assert set(ends) <= {"named", "the same"}
    assert ends["named"] > 0.6 * FLIPS
    note(
        f"flip: a {'rank table' if kind == 'table' else kind}",
        times=FLIPS,
        named=ends["named"],
        read_as_written=ends["the same"],
    )


def test_a_part_is_measured_again(tmp_path: Path) -> None:
    """The part is removed and its tokens are measured again; or it is read as it was written."""
    words = [Document(str(i), (f"def f{i}(x):\n    return x + {i}\n",)) for i in range(20)]
    settings = DatasetConfig(name="toy", path="x", seq_len=64, context=8)
    model = load_model(config("6k"), source("6k"))
    corpus = build_corpus(words, load_tokenizer(source("6k")), settings)
    engine, again = EngineConfig(part_tokens=100), 0
    whole = measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path).path.read_bytes()
    part = min(tmp_path.glob("part-*.parquet"))
    expected = of_table(part)
    for number, bit in enumerate(flips(part)):
        saved, others = blocks(corpus, engine.part_tokens, tmp_path)[:2]
        stretches = list(saved.read_saved())
        assert len(list(others.read_saved())) == 1
        if not stretches:
            assert not part.exists()
            assert saved.lacking() == [Stretch(0, saved.size)]
            again += 1
        else:
            assert of_table(part) == expected, bit
        if number % 130 == 0:  # and so does a whole measurement
            assert measure(model, corpus, ks=(1,), engine=engine, folder=tmp_path).path.read_bytes() == whole
    assert again > 0.6 * FLIPS
    note("flip: a part", times=FLIPS, measured_again=again, read_as_written=FLIPS - again)


def test_cached_tokens_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RBPTRACK_CACHE", str(tmp_path / "cache"))
    _, (cell,) = sweep_of(measuring(["model=nano/6k", "dataset=pydocs", "dataset.documents=2"]))
    documents, made, make = tokens.load_documents(cell.dataset, of_dataset(cell.dataset)), [0], tokens.tokenise

    def counted(*given: object) -> tokens.Tokens:
        made[0] += 1
        return first if made[0] > 1 else make(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(tokens, "tokenise", counted)
    monkeypatch.setattr(tokens, "load_documents", lambda *given: documents)  # slow, and not what is tried

    def load() -> tokens.Tokens:
        return tokens.load_tokens(cell.dataset, pinned, byte_tokenizer())

    pinned = of_dataset(cell.dataset)
    first = load()
    (path,) = (cache.folder() / "tokens").glob("*.parquet")
    for times, _ in enumerate(flips(path), 2):
        made_again = load()
        assert made[0] == times
        assert np.array_equal(made_again.token, first.token)
        assert made_again.document_ids == first.document_ids
    note("flip: cached tokens", times=FLIPS, made_again=made[0] - 1, read_as_written=FLIPS - made[0] + 1)


def test_a_damaged_job_file_is_one_that_has_told_nothing(tmp_path: Path) -> None:
    """Truncated at any byte: it is not taken for an end, and a job that begins again finds what was measured."""
    _, (config,) = sweep_of(measuring(["model=nano/6k", "dataset=pydocs"]))
    task = Task(0, Shard(), config)
    file = report_file(job(folder=tmp_path))
    Teller(file).ended(task, Outcome(config.title, "nano-6k", "pydocs", "measured", numbers={"ce": 3.5}), whole=True)
    whole = file.read_bytes()
    for kept in range(len(whole)):
        file.write_bytes(whole[:kept])
        assert Report.read(file) is None
        results = Results()
        Inbox(results, total=1, aloud=False).read([job(folder=tmp_path)])
        assert not results.cells
        assert not Teller(file).knows_end_of(task)
    note("cut job file", times=len(whole))
