"""`python -m rbptrack show`: one measurement, its numbers, its ranks and its files; no model, no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise

import pandas as pd

from rbptrack.analysis.display import cell, title
from rbptrack.analysis.parts_of_ce import parts_of_ce
from rbptrack.analysis.runs import Runs, Unreadable
from rbptrack.base.errors import BadInput
from rbptrack.base.words import short_path
from rbptrack.commands.declared.closer import SHOW, ShowConfig
from rbptrack.commands.usage import entries
from rbptrack.config.schema import FilterConfig
from rbptrack.console.output import console, program, say, sentence_width
from rbptrack.console.tables import Format, print_json, table
from rbptrack.ranks import RankHistogram, rbp_ks, rbp_name, se_name
from rbptrack.tracking.runs_table import LoggedRun
from rbptrack.tracking.schema import Metric
from rbptrack.tracking.store import Store


def _show(config: ShowConfig) -> int:
    if not config.run:
        raise BadInput(f"which measurement? {SHOW.usage}; {program()} list names them")
    reader = Store(config.tracking).reader
    runs = reader.runs(FilterConfig())
    row = runs[config.run]
    run = reader.run(str(row["run_id"]))
    if config.format is Format.json:
        _print_document(row, run, runs, config.k)
        return 0
    say(f"{row['model']} / {row['dataset']}")
    try:
        histogram = runs.histogram(run.run_id)
    except Unreadable as error:
        histogram = None
        say(f"no rank distribution: {error}")
    _numbers(_metrics(run, runs, histogram, config.k), config.k)
    if histogram is not None:
        _distribution(histogram)
    entries("How it was measured", {label: text for label, text in _measured(row, run) if text})
    names = [
        name for name in reader.artifact_names(run.run_id) if not name.startswith("images/")
    ]  # MLflow's own copies
    entries("Files", {short_path(reader.artifact_uri(run.run_id)): ", ".join(names) or "none"}, stacked=True)
    return 0


def _print_document(row: pd.Series, run: LoggedRun, runs: Runs, ks: list[int]) -> None:
    """Print everything about a measurement, and its distribution of ranks if it has one."""
    try:
        histogram: RankHistogram | None = runs.histogram(run.run_id)
    except Unreadable:
        histogram = None
    distribution = histogram and {"rank": histogram.rank.tolist(), "tokens": histogram.count.tolist()}
    metrics = _metrics(run, runs, histogram, ks)
    parts = {name: metrics[name] for name in (Metric.CE_RANK, Metric.CE_REST) if name in metrics}
    print_json({**row.to_dict(), **parts, "metrics": metrics, "params": run.params, "ranks": distribution})


def _metrics(run: LoggedRun, runs: Runs, histogram: RankHistogram | None, ks: list[int]) -> dict[str, float]:
    """Return the logged metrics, with RBP_k and the parts of CE from the stored ranks where they were not logged."""
    metrics: dict[str, float] = {}
    if histogram is not None:
        metrics |= {rbp_name(k): histogram.rbp(k) for k in ks}
    if Metric.CE_RANK not in run.metrics:
        with suppress(Unreadable):
            metrics |= dict(zip((Metric.CE_RANK, Metric.CE_REST), parts_of_ce(runs, run.run_id), strict=True))
    return metrics | run.metrics


def _numbers(numbers: Mapping[str, float], ks: list[int]) -> None:
    """Print CE and every RBP_k with its standard error."""
    chosen = [Metric.CE, Metric.CE_RANK, Metric.CE_REST, Metric.BITS_PER_BYTE]
    chosen += [Metric.KL, Metric.ACCEPTANCE, Metric.SAME_TOP]
    chosen += map(rbp_name, ks or rbp_ks(numbers))
    rows = [
        [title(name), cell(name, numbers[name]), cell(se_name(name), numbers.get(se_name(name)))]
        for name in chosen
        if name in numbers
    ]
    table(["", "measured", "± se"], rows, text_columns=1)


def _distribution(histogram: RankHistogram) -> None:
    """Draw the share of tokens in each range of ranks as bars; ranges double, as on a log axis."""
    ends = [1]
    while ends[-1] < histogram.vocab_size:
        ends.append(min(2 * ends[-1], histogram.vocab_size))
    reached = histogram.rbp_curve(ends)
    shares = [reached[0], *(b - a for a, b in pairwise(reached))]
    labels = ["1", *(f"{a + 1:,}-{b:,}" if b > a + 1 else f"{b:,}" for a, b in pairwise(ends))]
    column = max(map(len, labels))
    room = sentence_width() - column - 25
    say("")
    say(f"{'rank':>{column}}  {'share of tokens':<{room}}  {'':8}   up to here")
    for label, share, total in zip(labels, shares, reached, strict=True):
        bar = _bar(share / max(shares), room)
        console().print(f"{label:>{column}}  {bar:<{room}}  {share:>8.2%}   {total:>10.2%}", soft_wrap=True)


def _bar(part: float, width: int) -> str:
    """Return a bar of so much of the width, to an eighth of a column."""
    whole, eighths = divmod(int(part * width * 8 + 0.5), 8)
    bar: str = "█" * whole + ("", *"▏▎▍▌▋▊▉")[eighths]
    return bar


def _measured(row: pd.Series, run: LoggedRun) -> Iterator[tuple[str, str]]:
    """Yield the facts of the measurement in words."""
    params = run.params
    yield "run", run.run_id
    yield "when", f"{datetime.fromtimestamp(run.started / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    tokens = "" if pd.isna(row["num_tokens"]) else f"{row['num_tokens']:,} scored tokens"
    documents = "" if pd.isna(row["num_documents"]) else f" of {row['num_documents']:,} documents"
    yield "text", tokens + documents
    long = cell("seq_len", row["seq_len"])
    context = cell("context", row["context"])
    rules = {
        "slide": f"{long} tokens, each repeating {context} of the one before",
        "truncate": f"the first {long} tokens of each document",
        "pack": f"{long} tokens of documents joined",
    }
    yield "sequences", rules.get(cell("sequence", row["sequence"]), "")
    ties = {"paper": "ties count against the target", "strict": "ties count for the target"}
    among = {"vocabulary": "the whole vocabulary", "tokenizer": "the entries that the tokenizer can name"}
    words = [among.get(cell("candidates", row["candidates"])), ties.get(cell("rank", row["rank"]))]
    yield "ranked among", "; ".join(word for word in words if word)
    for label, column in (("S", "non_embedding_params"), ("|V|", "vocab_size"), ("dtype", "dtype")):
        yield label, cell("num_tokens", row[column])
    yield "model", _short_hash(cell("commit", row["commit"]))
    yield "reference", " ".join(_short_hash(cell(name, row[name])) for name in ("reference", "reference_commit"))
    yield "dataset", _short_hash(params.get("dataset.commit", ""))
    yield "device", params.get("model.device_used", "")
    if Metric.TOKENS_PER_SECOND in run.metrics:
        yield "speed", f"{run.metrics[Metric.TOKENS_PER_SECOND]:,.0f} tokens per second"
    yield "software", cell("software", row["software"])
    yield "sweep", cell("sweep", row["sweep"])
    yield "imported", cell("imported", row["imported"])
    yield "fingerprint", _short_hash(cell("fingerprint", row["fingerprint"]))


def _short_hash(text: str) -> str:
    """Return commits and hashes as long as git shows them; `list format=json` has them whole."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b", r"\1", text)


main = SHOW.running(_show)
