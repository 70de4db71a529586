"""Whether a measurement's files say what its record does: ranks that give its RBP_k, CE, histogram and curves.

Checked before an import, before an export, and when a store is verified.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from rbptrack.base import limits
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.ranks import ABOVE_ZERO, RankHistogram, RankTable, parse_rbp_name, rbp_ks, split_sums
from rbptrack.tracking.params import MeasurementParams
from rbptrack.tracking.record import HISTOGRAM, RANKS, TOKENS, Record, k_metrics, read_token_texts
from rbptrack.tracking.rules import shown
from rbptrack.tracking.runs_table import came_without_ranks
from rbptrack.tracking.schema import Metric, Tag

EXACT = 1e-6
"""How far a number may be from the one that its ranks give."""

_ROUNDED = 0.02  # where the authors' files gave the numbers
_REDRAWN = 0.1  # relative: a standard error of 1,000 other draws, as another version may have made


def file_faults(record: Record, folder: Path, *, bounded: bool) -> Iterator[tuple[str, str]]:
    """Yield every fault in a measurement's files, as file and sentence; `bounded` by the limits of imports."""
    for figure in sorted(folder.glob("figures/*")):
        if text := _figure(figure):
            yield f"figures/{figure.name}", text
    if not (folder / RANKS).exists():
        if not came_without_ranks(record.tags, MeasurementParams.read(record.params)):
            yield RANKS, "its rank table is missing"
        return
    try:
        _check_length(folder / RANKS, record, bounded=bounded)
        table = RankTable.read(folder / RANKS)
    except (RbptrackError, OSError, ValueError) as error:
        yield RANKS, str(error).replace(f"{folder}/", "")
        return
    yield from ((RANKS, text) for text in _ranks(table))
    if (folder / TOKENS).exists() and (text := _token_texts(folder / TOKENS, table)):
        yield TOKENS, text
    if not (folder / HISTOGRAM).exists():
        yield HISTOGRAM, "its histogram is missing"
        return
    try:
        if bounded:
            limits.check_parquet(folder / HISTOGRAM, most=limits.BYTES["parquet"])
        stored = RankHistogram.read(folder / HISTOGRAM)
    except (RbptrackError, OSError, ValueError) as error:
        yield HISTOGRAM, str(error).replace(f"{folder}/", "")
        return
    if text := _histogram(stored):
        yield HISTOGRAM, text
        return
    ranks = table.histogram()
    if not _same(ranks, stored):
        yield HISTOGRAM, "its ranks do not give its histogram"
    yield from (("", text) for text in _contradictions(record, table, ranks))


def _same(ranks: RankHistogram, stored: RankHistogram) -> bool:
    """Return whether two histograms agree, as far as sums of ln p that are a little above 0 allow."""
    if ranks.vocab_size != stored.vocab_size or not np.array_equal(ranks.rank, stored.rank):
        return False
    allowed = 1e-5 * np.abs(stored.logprob) + ABOVE_ZERO * stored.count * (stored.rank == 1)  # only a sure token's is
    return np.array_equal(ranks.count, stored.count) and bool((np.abs(ranks.logprob - stored.logprob) <= allowed).all())


def _check_length(path: Path, record: Record, *, bounded: bool) -> None:
    """Raise BadInput before a table is read that would fill the memory: a run of equal values packs into nothing."""
    try:
        if bounded:
            limits.check_parquet(path, most=limits.BYTES["parquet"])
        rows = pq.read_metadata(path).num_rows
    except BadInput:
        raise
    except Exception as error:  # damaged bytes make Arrow raise exceptions of every kind
        raise BadInput(f"{path.name} is damaged") from error
    if rows != record.metrics.get(Metric.NUM_TOKENS):
        stored = record.metrics.get(Metric.NUM_TOKENS)
        raise BadInput(f"its ranks do not give its numbers: {rows:,} ranks, but num_tokens is {stored}")
    if bounded and rows > min(limits.ROWS_OF_RANKS, limits.RANKS_PER_BYTE * path.stat().st_size):
        raise BadInput(f"would unpack to {rows:,} ranks, which is out of proportion to its size")


def _ranks(table: RankTable) -> Iterator[str]:
    if not len(table):
        yield "holds no ranks"
        return
    if any(table.table.column(name).null_count for name in table.table.column_names):
        yield "has empty cells"
        return
    size = table.vocab_size
    allowed = {"document": (0, None), "position": (0, None), "field": (0, None), "token": (-1, size - 1)}
    allowed |= {"greater": (0, size - 1), "ties": (0, size - 1)}
    allowed |= {"top": (-1, size - 1)} if table.version > 1 else {}
    allowed |= {"reference_top": (-1, size - 1), "reference_rank": (1, size)} if table.compared else {}
    for name, (least, most) in allowed.items():
        column = table.table.column(name).to_numpy()
        if column.min() < least or (most is not None and column.max() > most):
            rule = f"from {least}" + (f" to {most:,}, since |V| = {size:,}" if most is not None else "")
            yield f"column {name} must be {rule}; got {column.min()} to {column.max()}"
    if (table.above.astype(np.int64) + 1).max() > size:
        yield f"a rank is above |V| = {size:,}"
    for name in ("logprob", "top_logprob")[: table.version]:
        if not (np.isfinite(table.column(name)) & (table.column(name) <= 0)).all():
            yield f"column {name} must be finite and at most 0"
    entropy = table.column("entropy") if table.version > 1 else np.zeros(0)
    if not ((entropy >= 0) & (entropy <= np.log(size) + 1e-5)).all():
        yield f"column entropy must be from 0 to ln |V| = {np.log(size):.4f}"
    kl, accept = (table.column(name) if table.compared else np.zeros(0) for name in ("kl", "accept"))
    if not (np.isfinite(kl) & (kl >= 0)).all() or not ((accept >= 0) & (accept <= 1)).all():
        yield "column kl must be finite and at least 0, and accept from 0 to 1"


def _token_texts(path: Path, table: RankTable) -> str:
    """Describe faults in the texts of tokens; empty if none is found and every token of the ranks has a text."""
    try:
        texts = read_token_texts(path)
    except (ValueError, AttributeError, RecursionError) as error:
        return f"must be a JSON object of texts by token id: {str(error)[:100]}"
    foreign = next((t for t in texts.values() if not isinstance(t, str) or len(t) > limits.TOKEN), None)
    if foreign is not None:
        return f"a token's text must be a string of at most {limits.TOKEN:,} characters; got {shown(foreign)}"
    outside = next((token for token in texts if not 0 <= token < table.vocab_size), None)
    if outside is not None:
        return f"a token id must be from 0 to {table.vocab_size - 1:,}; got {shown(outside)}"
    lacking = np.setdiff1d(table.column("token"), np.fromiter(texts, dtype=np.int64, count=len(texts)))
    return f"{len(lacking):,} tokens of its ranks have no text, the first {lacking[0]}" if len(lacking) else ""


def _histogram(stored: RankHistogram) -> str:
    """Describe a histogram's internal faults; empty if it has none."""
    kinds = [column.dtype for column in (stored.rank, stored.count, stored.logprob)]
    if [kind.kind for kind in kinds] != ["i", "i", "f"]:
        return f"must hold two columns of whole numbers and one of numbers; got {', '.join(map(str, kinds))}"
    return ""


def _contradictions(record: Record, table: RankTable, ranks: RankHistogram) -> Iterator[str]:
    """Yield a sentence for every number of the record that its ranks do not give."""
    params = MeasurementParams.read(record.params)
    if params.vocab_size not in (None, ranks.vocab_size):
        yield f"its ranks do not give its numbers: vocab_size is {params.vocab_size}, its ranks' is {ranks.vocab_size}"
    if params.rank is not None and (params.rank == "strict") != table.strict:
        yield f"its ranks do not give its numbers: rank is {params.rank}, but its rank table says otherwise"
    allowed = _ROUNDED if "authors: " in record.tags.get(Tag.IMPORTED, "") else EXACT
    expected = {Metric.CE: ranks.ce, Metric.NUM_TOKENS: ranks.num_tokens}
    expected |= {Metric.TIE_RATE: table.tie_rate} if table.ties_known else {}
    if Metric.CE_RANK in record.metrics:
        expected |= dict(zip((Metric.CE_RANK, Metric.CE_REST), split_sums(table) / len(table), strict=False))
    if table.compared:
        names = (Metric.KL, Metric.ACCEPTANCE, Metric.SAME_TOP)
        means = table.compared_sums() / len(table)
        expected |= dict(zip(names, means, strict=True))
        if (table.column("top") < 0).any():  # exported without IDs
            del expected[Metric.SAME_TOP]
    for name in record.metrics:
        k = parse_rbp_name(name)
        if k is not None and k <= ranks.vocab_size:
            expected[name] = ranks.rbp(k)
    if params.non_embedding_params is not None:
        expected[Metric.NON_EMBEDDING_PARAMS] = params.non_embedding_params
    capped = ABOVE_ZERO * float(np.mean(table.column("logprob") == 0))  # values above 0 are read as 0
    for name, value in expected.items():
        stored = record.metrics.get(name)
        below = capped if name == Metric.CE else 0.0
        if stored is not None and not -allowed - below <= (stored - value) / max(1.0, abs(value)) <= allowed:
            yield f"its ranks do not give its numbers: {name} is {stored:g}, and should be {value:g}"
    yield from _standard_errors(record, table, ranks)
    curve = record.curves.get(Metric.RBP_CURVE, {})
    steps = np.array([k for k in curve if 1 <= k <= ranks.vocab_size], dtype=np.int64)
    if len(steps) < len(curve):
        yield f"curve {Metric.RBP_CURVE}: k must be from 1 to |V| = {ranks.vocab_size:,}"
    elif len(steps) and np.abs(ranks.rbp_curve(steps) - np.array(list(curve.values()))).max() > EXACT:
        yield f"its ranks do not give its curve {Metric.RBP_CURVE}"


def _standard_errors(record: Record, table: RankTable, ranks: RankHistogram) -> Iterator[str]:
    """Yield a sentence for each standard error that resampled documents do not give; of sources none is looked at."""
    if Tag.GROUPS in record.tags or ranks.rank.max() > ranks.vocab_size:  # an impossible rank is named already
        return
    ks = [k for k in rbp_ks(record.metrics) if k <= ranks.vocab_size]
    for name, value in k_metrics(ranks, table.document_counts(ks)).items():
        stored = record.metrics.get(name)
        if (
            name.endswith("_se")
            and stored is not None
            and not math.isclose(stored, value, rel_tol=_REDRAWN, abs_tol=EXACT)
        ):
            yield f"its ranks do not give its numbers: {name} is {stored:g}, and should be {value:g}"


def _figure(path: Path) -> str:
    """Describe a figure's faults; empty if it is a PNG of a size that can be shown."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=["PNG"]) as image:
                if image.width * image.height > limits.PIXELS:
                    return f"has {image.width} x {image.height} pixels"
                image.verify()
    except Exception as error:  # damaged bytes make Pillow raise exceptions of every kind
        return f"is not a PNG figure: {str(error)[:100]}"
    return ""
