"""What processes that measure one cell together leave for each other: who measures what, and what it cost.

A corpus is measured in blocks, whose sequences are batched in a fixed order. The first process divides that order into
stretches that begin and end where batches do, and writes the division down; later jobs read it. So every
batch is the one that a single process would have made, whatever memory the machines have, and the numbers are the same.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from filelock import FileLock

from rbptrack.base.errors import MeasurementError
from rbptrack.base.files import write_whole
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.at_work import DIVISION
from rbptrack.engine.batches import by_length, compose
from rbptrack.engine.parts import Block, Stretch, blocks
from rbptrack.ranks.measurement import Shard


@dataclass(frozen=True)
class Division:
    """Who measures what, and in which batches.

    Attributes:
        sequences: of the corpus.
        part_tokens: tokens of a block.
        batch_tokens: tokens of a forward pass, as the first process chose them.
        chunk_tokens: rows of logits at a time; 0 for the machine's choice.
        shards: for each, the number of a block and a stretch (begin, end) of its order, in order; may be empty.

    """

    sequences: int
    part_tokens: int
    batch_tokens: int
    chunk_tokens: int
    shards: tuple[tuple[tuple[int, int, int], ...], ...]

    @classmethod
    def of(cls, corpus: Corpus, *, count: int, part_tokens: int, batch_tokens: int, chunk_tokens: int) -> Self:
        """Divide a corpus into `count` contiguous shares of about as many tokens each, padding included."""
        shards: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
        ranges = corpus.parts(part_tokens)
        if count == 1:
            shards[0] = [(number, 0, high - low) for number, (low, high) in enumerate(ranges)]
        else:
            batches = list(_batches(corpus, ranges, batch_tokens))
            total = sum(tokens for *_, tokens in batches)
            done = 0
            for block, begin, end, tokens in batches:
                shard = shards[min(count - 1, (done + tokens // 2) * count // total)]  # where the batch's middle falls
                done += tokens
                if shard and shard[-1][0] == block and shard[-1][2] == begin:
                    shard[-1] = (block, shard[-1][1], end)
                else:
                    shard.append((block, begin, end))
        return cls(len(corpus.lengths), part_tokens, batch_tokens, chunk_tokens, tuple(map(tuple, shards)))

    @classmethod
    def agreed(cls, folder: Path, corpus: Corpus, divide: Callable[[], Self]) -> Self:
        """Return the division that a folder keeps; the first to ask makes it.

        Raises:
            MeasurementError: the folder's is of another corpus.

        """
        file = folder / DIVISION
        with FileLock(folder / f"{DIVISION}.lock"):
            try:
                division = cls.read(folder)
            except (FileNotFoundError, ValueError, TypeError, KeyError):  # not there, or emptied by a crash
                division = divide()
                write_whole(file, json.dumps(asdict(division)), durable=True)
        if division.sequences != len(corpus.lengths):
            raise MeasurementError(f"what {folder} keeps belongs to other documents; remove it and run again")
        return division

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `agreed` wrote."""
        division = json.loads((folder / DIVISION).read_text(encoding="utf-8"))
        return cls(
            **division | {"shards": tuple(tuple(tuple(piece) for piece in shard) for shard in division["shards"])}
        )

    def numbers(self, shard: Shard) -> range:
        """Return the stretches that are a job's, also where the division was made for another number of jobs."""
        return range(shard.number, len(self.shards), shard.count)

    def blocks(self, corpus: Corpus, folder: Path, number: int) -> list[Block]:
        """Return the blocks of one stretch of work, each cut to it, with what the folder keeps of them."""
        every = blocks(corpus, self.part_tokens, folder)
        return [every[block].cut(Stretch(begin, end)) for block, begin, end in self.shards[number]]


def complete(corpus: Corpus, folder: Path) -> bool:
    """Return whether a folder keeps the scores of the whole corpus; False where another has gathered and removed
    them.
    """
    try:
        division = Division.read(folder)
    except FileNotFoundError:
        return False
    return not any(block.lacking() for block in blocks(corpus, division.part_tokens, folder))


def _batches(corpus: Corpus, ranges: list[tuple[int, int]], batch_tokens: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield every batch of a corpus: its block, its stretch of the block's order, and its tokens, padding included."""
    for number, block in enumerate(ranges):
        begin = 0
        for batch in compose(corpus, by_length(corpus, range(*block)), batch_tokens):
            yield number, begin, begin + len(batch), len(batch) * int(corpus.lengths[batch[0]])
            begin += len(batch)


@dataclass(frozen=True)
class Cost:
    """What one process spent on its share.

    Attributes:
        seconds: of forward passes and scoring.
        tokens: scored tokens that it measured.
        peak_memory_bytes: the most memory in use meanwhile.
        batch_tokens: tokens of a forward pass.
        chunk_tokens: rows of logits at a time, as they were at the end.
        notes: changes on the way.
        padding_mass: see `rbptrack.engine.executor.Engine`.

    """

    seconds: float
    tokens: int
    peak_memory_bytes: int
    batch_tokens: int
    chunk_tokens: int
    notes: tuple[str, ...]
    padding_mass: float = 0.0

    def write(self, folder: Path) -> None:
        """Leave it in the cell's folder, unless another process has delivered the cell and removed it."""
        with suppress(FileNotFoundError):
            write_whole(folder / f"cost-{time.time_ns()}-{secrets.token_hex(2)}.json", json.dumps(asdict(self)))

    @classmethod
    def take(cls, folder: Path) -> Cost:
        """Return the sum of what the processes left, which is then gone: it is counted once."""
        taken = []
        for file in sorted(folder.glob("cost-*.json")):
            with suppress(ValueError, TypeError):  # a damaged one: the numbers do not depend on it
                taken.append(cls(**json.loads(file.read_text(encoding="utf-8"))))
            file.unlink()
        return cls(
            seconds=sum(c.seconds for c in taken),
            tokens=sum(c.tokens for c in taken),
            peak_memory_bytes=max(c.peak_memory_bytes for c in taken),
            batch_tokens=max(c.batch_tokens for c in taken),
            chunk_tokens=min(c.chunk_tokens for c in taken),
            notes=tuple(dict.fromkeys(note for c in taken for note in c.notes)),
            padding_mass=max(c.padding_mass for c in taken),
        )
