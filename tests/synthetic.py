"""Synthetic measurements with a known law: `Runs` without a model or a store."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from rbptrack.analysis import Runs, Unreadable
from rbptrack.analysis.source import Source, Tables
from rbptrack.ranks import VERSION, RankTable, rbp_name, se_name
from rbptrack.tracking.params import MeasurementParams
from rbptrack.tracking.runs_table import LoggedRun, row
from rbptrack.tracking.schema import MeasurementTags, Metric

PLUGIN = '''
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
import pandas as pd
from rbptrack.analysis import Analyzer, Drawing, Report, Runs, Table
from rbptrack.analysis.findings import Finding

@dataclass(kw_only=True)
class Mine(Analyzer):
    """Mine."""
    name: ClassVar[str] = "{name}"
    k: int = 10
    def analyze(self, runs: Runs) -> Report:
        frame = runs.frame
        {body}
'''


def plugin(folder: Path, name: str = "mine", body: str = "return Report(notes=[str(self.k)])", file: str = "") -> Path:
    """An analyzer in a folder `plugins/`; line 16 is its body."""
    path = folder / "plugins" / f"{file or name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PLUGIN.format(name=name, body=body))
    return path


Law = Callable[[float], tuple[Sequence[float], float]]
PYTHIA = {"70m": 18915328, "160m": 85056000}


def authors_folder(root: Path, **ranks: Sequence[int]) -> Path:
    """What the authors' code leaves of models of Pythia with these ranks of four tokens at most, and their sizes."""
    lines = ["model,non_embedding_params"]
    for size, rank in ranks.items():
        nats = [0.5, 3.0, 9.0, 1.5][: len(rank)]
        for k in (1, 10):
            folder = root / f"wiki/EleutherAI/pythia-{size}/top{k}"
            folder.mkdir(parents=True)
            share = float(np.mean(np.array(rank) <= k))
            (folder / "metrics.json").write_text(json.dumps({"mean_ce_loss": np.mean(nats), f"RBP_{k}": share}))
            rows = list(zip(rank, [1, 2, 3, 1], nats, strict=False))  # rank, position, nats
            (folder / "ranks.json").write_text(json.dumps(rows))
        lines.append(f"EleutherAI/pythia-{size},{PYTHIA[size]}")
    (root / "sizes.csv").write_text("\n".join(lines))
    return root


def ranked(rank: Any, *, documents: int = 1, vocab_size: int = 64, **columns: Any) -> RankTable:
    """Tokens of these ranks in documents of one length, without ties, with ln p = -1; or as the columns say."""
    rank = np.ravel(rank)
    length = len(rank) // documents
    plain = dict.fromkeys(("field", "token", "ties"), np.zeros(len(rank)))
    plain |= {"document": np.repeat(np.arange(documents), length), "position": np.tile(np.arange(length), documents)}
    plain |= {"greater": rank - 1, "logprob": np.full(len(rank), -1.0)}
    return RankTable.from_arrays(vocab_size=vocab_size, **plain | columns)


def with_columns(table: RankTable, **columns: Any) -> RankTable:
    """A table with some columns replaced or added."""
    kept = {name: table.column(name) for name in table.table.column_names}
    return RankTable.from_arrays(vocab_size=table.vocab_size, strict=table.strict, **kept | columns)


def text_table(texts: Sequence[Sequence[str]], **columns: Any) -> tuple[RankTable, dict[int, str]]:
    """Texts as tokens, of which the first of each is not scored, with the texts by id; ranks are 1, or as given."""
    ids = {text: i for i, text in enumerate(dict.fromkeys(text for each in texts for text in each))}
    rows = [(d, p, ids[text]) for d, each in enumerate(texts) for p, text in enumerate(each) if p]
    document, position, token = np.array(rows).T
    rank = columns.pop("rank", np.ones(len(rows)))[: len(rows)]
    table = ranked(rank, vocab_size=1000, document=document, position=position, token=token, **columns)
    return table, {i: text for text, i in ids.items()}


def rank_table(
    p: Sequence[float], ce: float, *, documents: int, tokens: int, vocab_size: int, rng: np.random.Generator
) -> RankTable:
    """Tokens with ranks drawn from the pmf p over 1..len(p) and log-probabilities around -ce."""
    n = documents * tokens
    rank = rng.choice(len(p), size=n, p=np.asarray(p) / np.sum(p)) + 1
    answer = np.tile(np.arange(tokens) >= tokens - 3, documents)  # of three tokens
    return ranked(rank, documents=documents, vocab_size=vocab_size, field=answer, logprob=np.full(n, -ce))


def one_law(alpha: float, a: float) -> Law:
    """-ln RBP_1 = a * S**-alpha and CE twice that; the other ranks share what is left in fixed proportions."""

    def at(s: float) -> tuple[list[float], float]:
        y = a * s**-alpha
        p1 = np.exp(-y)
        rest = np.geomspace(1, 1e-3, 63)
        return [p1, *((1 - p1) * rest / rest.sum())], 2 * y

    return at


def family_runs(sizes: Sequence[float], *, alpha: float, a: float, **options: Any) -> Runs:
    """A family whose -ln RBP_1 is a * S**-alpha up to sampling noise, and whose CE is 2 a * S**-alpha exactly."""
    return runs_from(sizes, one_law(alpha, a), **options)


def runs_from(sizes: Sequence[float], law: Law, **options: Any) -> Runs:
    """A family of 40 documents whose ranks are drawn from `law(s)`: the pmf over 1..|V|, and CE."""
    laws = [law(s) for s in sizes]
    return runs_of(sizes, [pmf for pmf, _ in laws], ces=[ce for _, ce in laws], **options)


def runs_of(
    sizes: Sequence[float],
    pmfs: Sequence[Sequence[float]],
    *,
    ces: Sequence[float] = (),
    family: str = "toy",
    dataset: str = "text",
    documents: int = 40,
    tokens: int = 500,
    seed: int = 0,
    **changes: object,
) -> Runs:
    """A family whose ranks are drawn from one pmf over 1..|V| per size; ces are the cross-entropies."""
    rng = np.random.default_rng(seed)
    tables = {
        f"{family}-{dataset}-{i}": rank_table(pmf, ce, documents=documents, tokens=tokens, vocab_size=len(pmf), rng=rng)
        for i, (pmf, ce) in enumerate(zip(pmfs, ces or [1.0] * len(pmfs), strict=True))
    }
    return runs_of_tables(sizes, tables, family=family, dataset=dataset, **changes)


def runs_of_tables(
    sizes: Sequence[float],
    tables: Mapping[str, RankTable],
    *,
    family: str = "toy",
    dataset: str = "text",
    **changes: object,
) -> Runs:
    """Measurements with these rank tables, by run id, one per size."""
    rows = []
    for (run_id, table), s in zip(tables.items(), sizes, strict=True):
        size = f"{s:.0f}"
        about = MeasurementTags(run_id, family, size, f"{family}-{size}", dataset, sweep="s")
        params = replace(
            MeasurementParams.unknown(),
            revision="main",
            dtype="float32",
            tf32=False,
            non_embedding_params=int(s),
            total_params=int(s) + 64,
            vocab_size=table.vocab_size,
            sequence="slide",
            seq_len=256,
            context=32,
            texts_hash="h",
            num_documents=len(np.unique(table.column("document"))),
            candidates="vocabulary",
            rank="paper",
        )
        metrics = {Metric.NUM_TOKENS: len(table), Metric.CE: table.ce, se_name(Metric.CE): 0.0}
        metrics |= {Metric.BITS_PER_BYTE: 1.0, Metric.TIE_RATE: 0.0} | {rbp_name(k): table.rbp(k) for k in (1, 10)}
        run = LoggedRun(run_id, about.title, 0, params.params(), metrics, about.tags())
        rows.append(row(run) | changes)
    return Runs(pd.DataFrame(rows), Tables(tables))


def with_reference(table: RankTable, *, accept: Any, reference_rank: Any) -> RankTable:
    """A table with the columns of a measurement beside a reference; the model ranks 1 first, the reference 1 or 2."""
    rank = np.asarray(reference_rank)
    first, other = np.ones(len(rank)), np.where(rank == 1, 1, 2)
    added = {"entropy": first, "top": first, "top_logprob": -first, "kl": first / 10, "accept": accept}
    return with_columns(table, **added, reference_top=other, reference_rank=rank)


class Given(Source):
    """Measurements that are read by these functions, and otherwise as by another source."""

    def __init__(self, other: Source | None = None, **readers: Any) -> None:
        names = ["ranks", "histogram", "token_texts", "groups", "scores"]
        names += [] if "ranks" in readers else ["rank_pieces"]
        vars(self).update({name: getattr(other, name) for name in names} if other else {})
        vars(self).update(readers)


def changed(runs: Runs, frame: pd.DataFrame | None = None, **readers: Any) -> Runs:
    """The same measurements with another table, or read in other ways."""
    return Runs(runs.frame if frame is None else frame, Given(runs.source, **readers))


def unreadable(run_id: str) -> NoReturn:
    """Of measurements that were imported without ranks."""
    raise Unreadable(f"run {run_id} was imported without ranks")


def together(*runs: Runs) -> Runs:
    """Several families in one table."""
    frame = pd.concat([r.frame for r in runs], ignore_index=True)

    def owner(run_id: str) -> Runs:
        return next(r for r in runs if run_id in set(r.frame["run_id"]))

    read = {
        "histogram": lambda r: owner(r).histogram(r),
        "ranks": lambda r: owner(r).ranks(r),
        "token_texts": lambda r: owner(r).vocabulary(r),
    }
    return Runs(frame, Given(**read))


def in_pieces(runs: Runs, *, documents: int = 15) -> Runs:
    """The same measurements, whose rank tables are there in pieces only; two pieces at once are too many."""

    def pieces(run_id: str, *, version: int = VERSION) -> Iterator[RankTable]:
        whole = runs.ranks(run_id)
        numbers = whole.documents[0]
        alive = list[weakref.ref[RankTable]]()
        for first in range(0, len(numbers), documents):
            assert sum(piece() is not None for piece in alive) <= 1, "pieces are kept"
            mine = np.isin(whole.column("document"), numbers[first : first + documents])
            piece = RankTable(whole.table.filter(mine), whole.vocab_size, whole.strict).of_version(version)
            alive.append(weakref.ref(piece))
            yield piece

    def whole_table(run_id: str) -> RankTable:
        raise AssertionError(f"the whole rank table of {run_id} was read")

    return changed(runs, ranks=whole_table, rank_pieces=pieces)
