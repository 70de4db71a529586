"""Properties that hold for every input, tried on inputs that hypothesis looks for, against brute force.

`make test-long` tries thousands of each: `pytest tests/test_properties.py --hypothesis-profile=long`.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rbptrack.plugins.emergence.windows import count_windows

from rbptrack.base import parquet
from rbptrack.base.errors import BadInput
from rbptrack.config.patterns import expand, match, size_key, split_list
from rbptrack.config.schema import DatasetConfig, SequenceRule
from rbptrack.corpus.documents import Document
from rbptrack.corpus.sequences import build_corpus
from rbptrack.ranks import SCHEMA, RankHistogram, RankTable
from rbptrack.stats.segments import PositionBins
from tests.synthetic import ranked
from tests.test_sequences import byte_tokenizer

V = 30
token = st.tuples(
    st.integers(0, 20),  # greater
    st.integers(0, 9),  # ties
    st.floats(-50, 0, width=32),  # logprob
    st.booleans(),  # whether an unscored token stands before it
)
document = st.lists(token, min_size=1, max_size=25)


def table(documents: list[list[tuple[int, int, float, bool]]], *, first: int = 0, strict: bool = False) -> RankTable:
    rows = [
        (first + number, position, *values[:3])
        for number, tokens in enumerate(documents)
        for position, values in zip(np.cumsum([1 + gap for *_, gap in tokens]), tokens, strict=True)
    ]
    number, position, greater, ties, logprob = map(np.array, zip(*rows, strict=True))
    columns = {"document": number, "position": position, "ties": ties, "logprob": logprob}
    return ranked(greater + 1, vocab_size=V, strict=strict, **columns)


def same(a: RankHistogram, b: RankHistogram) -> None:
    assert a.rank.tolist() == b.rank.tolist()
    assert a.count.tolist() == b.count.tolist()
    np.testing.assert_allclose(a.logprob, b.logprob, atol=1e-9)


@given(documents=st.lists(document, min_size=3, max_size=7), cuts=st.data(), strict=st.booleans())
def test_measurements_merge_as_if_they_had_been_one(
    documents: list[list[tuple[int, int, float, bool]]], cuts: st.DataObject, strict: bool
) -> None:
    """Wherever the documents are cut, and in whatever order and grouping histograms and counts are added."""
    low = cuts.draw(st.integers(1, len(documents) - 2))
    high = cuts.draw(st.integers(low + 1, len(documents) - 1))
    whole = table(documents, strict=strict)
    a, b, c = (table(documents[i:j], first=i, strict=strict) for i, j in pairwise([0, low, high, len(documents)]))
    assert RankTable.concatenate([a, RankTable.concatenate([b, c])]).table.equals(whole.table)
    for joined in (a.histogram() + b.histogram() + c.histogram(), c.histogram() + (b.histogram() + a.histogram())):
        same(joined, whole.histogram())
    ks = [1, 4, V]
    counts, direct = c.document_counts(ks) + (a.document_counts(ks) + b.document_counts(ks)), whole.document_counts(ks)
    for name in ("document", "tokens", "hits"):
        assert getattr(counts, name).tolist() == getattr(direct, name).tolist()
    np.testing.assert_allclose(counts.nats, direct.nats, atol=1e-9)


@given(documents=st.lists(document, min_size=1, max_size=4), strict=st.booleans())
def test_every_share_is_a_count(documents: list[list[tuple[int, int, float, bool]]], strict: bool) -> None:
    t = table(documents, strict=strict)
    ranks = [g + 1 + (0 if strict else ties) for tokens in documents for g, ties, *_ in tokens]
    histogram = t.histogram()
    for k in range(1, V + 1):
        share = sum(rank <= k for rank in ranks) / len(ranks)
        assert t.rbp(k) == share
        assert histogram.rbp(k) == share
    counts = t.document_counts([1, 5, V])
    np.testing.assert_allclose(counts.hits.sum(0) / len(t), [t.rbp(k) for k in (1, 5, V)])
    np.testing.assert_allclose([histogram.ce, counts.nats.sum() / len(t)], t.ce, atol=1e-9)
    for bad in (0, V + 1):
        with pytest.raises(BadInput):
            histogram.rbp(bad)


whole_numbers = {"int32": st.integers(-(2**31), 2**31 - 1), "int8": st.integers(-128, 127)}


@given(data=st.data(), pieces=st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_parquet_gives_back_every_bit(data: st.DataObject, pieces: list[int]) -> None:
    """Extreme integers, infinities, every NaN and minus zero; however it was cut into pieces."""
    rows = sum(pieces)
    columns = []
    for field in SCHEMA:
        if field.type == pa.float32():
            signs = 2**31 if field.name == "logprob" else 0  # which is at most 0: what is above is capped in reading
            raw = data.draw(st.lists(st.integers(signs, 2**32 - 1), min_size=rows, max_size=rows))
            columns.append(pa.array(np.array(raw, dtype=np.uint32).view(np.float32), type=field.type))
        else:
            column = data.draw(st.lists(whole_numbers[str(field.type)], min_size=rows, max_size=rows))
            columns.append(pa.array(np.array(column, dtype=str(field.type)), type=field.type))
    written = RankTable(pa.Table.from_arrays(columns, schema=SCHEMA), 50304, data.draw(st.booleans()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ranks.parquet")
        described, begin = written.described(), 0
        with parquet.TableWriter(path, described.schema) as file:
            for size in pieces:
                file.add(described.slice(begin, size))
                begin += size
        again = RankTable.read(path)
    assert (again.vocab_size, again.strict) == (50304, written.strict)
    for name in SCHEMA.names:
        assert again.column(name).tobytes() == written.column(name).tobytes()


@given(documents=st.lists(document, min_size=1, max_size=4), k=st.integers(1, V), n=st.integers(1, 6))
def test_windows_are_those_of_a_brute_force_count(
    documents: list[list[tuple[int, int, float, bool]]], k: int, n: int
) -> None:
    t = table(documents)
    lengths = [1, n] if n > 1 else [1]
    (counted,) = count_windows(t, PositionBins.of(lambda: [t], lengths), ks=[k], lengths=lengths)
    rank, number, position = t.rank, t.column("document"), t.column("position")
    windows, successes = [0] * len(documents), [0] * len(documents)
    for start in range(len(t) - n + 1):
        inside = slice(start, start + n)
        if len(set(number[inside])) == 1 and position[start + n - 1] - position[start] == n - 1:
            windows[number[start]] += 1
            successes[number[start]] += int((rank[inside] <= k).all())
    assert counted.windows[:, -1].tolist() == windows
    assert counted.successes[:, -1].tolist() == successes


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    seq_len=st.integers(2, 10),
    context=st.integers(1, 9),
    rule=st.sampled_from(list(SequenceRule)),
)
def test_sequences_score_what_the_rule_says_and_nothing_twice(
    lengths: list[int], seq_len: int, context: int, rule: SequenceRule
) -> None:
    assume(max(lengths) > 1 and context < seq_len)
    config = DatasetConfig(name="toy", path="x", seq_len=seq_len, context=context, sequence=rule)
    texts = [Document(str(i), ("x" * n,)) for i, n in enumerate(lengths)]
    stream = [(d, p) for d, n in enumerate(lengths) if n for p in range(n + 1)]  # the last of each: what separates
    scorable = {(d, p) for d, p in stream if 0 < p < lengths[d]}
    if rule == SequenceRule.truncate:
        scorable = {(d, p) for d, p in scorable if p < seq_len}
    elif rule == SequenceRule.pack:
        scorable -= {cell for i, cell in enumerate(stream) if i % seq_len == 0}
    if not scorable:
        with pytest.raises(BadInput, match="nothing to score"):
            build_corpus(texts, byte_tokenizer(), config)
        return
    corpus = build_corpus(texts, byte_tokenizer(), config)
    index = corpus.targets(0, len(corpus.start))
    scored = list(zip(corpus.document[index].tolist(), corpus.position[index].tolist(), strict=True))
    assert len(scored) == len(set(scored))
    assert set(scored) == scorable
    for start, stop, first in zip(corpus.start, corpus.stop, corpus.first, strict=True):
        assert stop - start <= seq_len
        if rule == SequenceRule.slide:
            before = first - start + corpus.position[start]  # what the document has before it
            assert first - start >= min(context, before)
            assert len(set(corpus.document[start:stop])) == 1


letters = st.text(alphabet="ab1*?/", min_size=1, max_size=7)
names = st.lists(st.text(alphabet="ab1/", min_size=1, max_size=6), min_size=1, max_size=8, unique=True)


def matches(pattern: str, name: str) -> bool:
    """By the rules alone: `**` is any text, `*` any text without a slash, `?` one character that is no slash."""
    if not pattern:
        return not name
    if pattern.startswith("**"):
        return any(matches(pattern[2:], name[i:]) for i in range(len(name) + 1))
    if pattern[0] == "*":
        return any(matches(pattern[1:], name[i:]) for i in range(len(name) + 1) if "/" not in name[:i])
    fits = bool(name) and (name[0] != "/" if pattern[0] == "?" else name[0] == pattern[0])
    return fits and matches(pattern[1:], name[1:])


@given(pattern=letters, names=names)
def test_patterns_match_what_their_rules_say(pattern: str, names: list[str]) -> None:
    matched = match(pattern, names)
    assert sorted(matched) == sorted(name for name in names if matches(pattern, name))
    assert matched == sorted(matched, key=size_key)


@given(patterns=st.lists(letters, min_size=1, max_size=4), names=names, bracket=st.booleans())
def test_a_list_of_patterns_is_the_union_in_order_or_refused(
    patterns: list[str], names: list[str], bracket: bool
) -> None:
    value = f"[{','.join(patterns)}]" if bracket else ",".join(patterns)
    wanted = [[p] if p in names else [n for n in sorted(names, key=size_key) if matches(p, n)] for p in patterns]

    def expanded() -> list[str]:
        return expand([f"model={value}", "x=1"], groups=("model",), options=lambda group: names)

    if all(wanted):
        union = list(dict.fromkeys(name for each in wanted for name in each))
        first, second = expanded()
        assert split_list(first.removeprefix("model=")) == union
        assert second == "x=1"
    else:
        with pytest.raises(BadInput, match=r"no model matches|names a family"):
            expanded()
