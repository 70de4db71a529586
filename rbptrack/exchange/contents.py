"""What one measurement of a bundle must say: a record with lawful numbers, and ranks that give these numbers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pyarrow.parquet as pq
from PIL import Image
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError, field_validator

from rbptrack.errors import BadInput, RbptrackError
from rbptrack.exchange.faults import Faults
from rbptrack.names import name_fault
from rbptrack.ranks import RankHistogram, RankTable, parse_rbp_name
from rbptrack.tracking.frame import came_without_ranks, columns_of
from rbptrack.tracking.record import FILE, HISTOGRAM, RANKS, TOKENS, Record, read_token_texts
from rbptrack.tracking.rules import MeasurementRow, Number, OrNone, fault, faults, shown
from rbptrack.tracking.schema import Kind, MeasurementParams, Metric, Tag, param_names

_EXACT = 1e-6
_ROUNDED = 0.02  # where the authors' files gave the numbers, as far as they may differ from their ranks
_LARGEST_TIME = 4102444800  # the year 2100
_MOST_ROWS = 1 << 31
_ROWS_PER_BYTE = 10  # of a rank table; ours has about 0.2
_MOST_PIXELS = 50_000_000
_LONGEST_TOKEN = 10_000  # characters
_KEY = re.compile(r"[/\w.\- :]{1,250}")


def _key(key: str) -> str:
    if not _KEY.fullmatch(key) or any(part in ("", ".", "..") for part in key.split("/")):
        raise fault("must be a name that MLflow takes", key)
    return key


Key = Annotated[str, AfterValidator(_key)]
TagValue = Annotated[str, StringConstraints(max_length=8000)]
ParamValue = Annotated[str, StringConstraints(max_length=6000)]


def _time(value: float) -> float:
    if not 0 <= value <= _LARGEST_TIME:
        raise fault("must be seconds since 1970", value)
    return value


Time = Annotated[Number, AfterValidator(_time)]


class _RecordFile(BaseModel):
    """record.json, of which `rbptrack.tracking.record.Record` is the meaning."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, StringConstraints(max_length=500)]
    tags: dict[Key, TagValue]
    params: dict[Key, ParamValue]
    metrics: dict[Key, Number]
    curves: dict[Literal["rbp_curve", "neg_log_rbp_curve"], dict[OrNone, Number]]
    dataset: dict[Literal["name", "digest", "source", "profile"], Annotated[str, StringConstraints(max_length=60000)]]
    started: Time
    ended: Time

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str) -> str:
        if rule := name_fault(name[:100]):
            raise fault(rule, name)
        return name

    @field_validator("tags")
    @classmethod
    def _of_a_measurement(cls, tags: dict[str, str]) -> dict[str, str]:
        """A bundle holds measurements, and their tags are rbptrack's."""
        foreign = next((tag for tag in tags if not tag.startswith(Tag.PREFIX)), "")
        if foreign:
            raise fault(f"begins with {Tag.PREFIX}", foreign, column="tags")
        if tags.get(Tag.KIND) != Kind.MEASUREMENT:
            raise fault(f"must be {Kind.MEASUREMENT}", tags.get(Tag.KIND, "nothing"), column=f"tags.{Tag.KIND}")
        for tag in (Tag.FINGERPRINT, Tag.RECORD):
            if not tags.get(tag):
                raise fault("must be there", column=f"tags.{tag}")
        return tags

    @field_validator("curves")
    @classmethod
    def _rises(cls, curves: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
        """RBP_k is a share and does not fall with k."""
        curve = curves.get(Metric.RBP_CURVE, {})
        values = [curve[k] for k in sorted(curve)]
        if values and (values[0] < 0 or values[-1] > 1 or np.diff(values).min(initial=0) < -_EXACT):
            raise fault("must rise with k, within 0 to 1", column=f"curves.{Metric.RBP_CURVE}")
        return curves


def check(folder: Path, fingerprint: str, rules: type[MeasurementRow], found: Faults) -> None:
    """Note everything that is wrong with an unpacked measurement.

    Args:
        folder: of its files.
        fingerprint: that the bundle gives it.
        rules: that its numbers must satisfy.
        found: gets the faults.

    """
    where = f"measurement {fingerprint[:12]}"
    path = folder / FILE
    if not path.exists():
        found.add(where, f"{FILE} is missing")
        return
    before = len(found)
    try:
        _RecordFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        found.extend(f"{where}, {FILE}", faults(error), noun="key")
        return
    record = Record.read(folder)
    where = f"measurement {fingerprint[:12]} ({record.name})"
    if record.fingerprint != fingerprint:
        found.add(where, f"it calls itself {shown(record.fingerprint)}")
    try:
        params = MeasurementParams.read(record.params)
        rules.of(columns_of(record, params))
        found.extend(where, _unclean(record, params), noun="param")
    except ValidationError as error:
        found.extend(where, faults(error), noun="key")
    except BadInput as error:
        found.add(where, str(error))
    if len(found) == before:
        for file, text in _files(record, folder):
            found.add(f"{where}, {file}", text)


def _unclean(record: Record, params: MeasurementParams) -> Iterator[tuple[str, str]]:
    """Params that are whole numbers but not written as such: 50257.0."""
    for attribute, name in param_names().items():
        value = getattr(params, attribute)
        if type(value) is int and record.params[name] != str(value):
            yield name, f"must be a whole number; got {shown(record.params[name])}"


def _files(record: Record, folder: Path) -> Iterator[tuple[str, str]]:
    """File and sentence of every fault in a measurement's files."""
    for figure in sorted(folder.glob("figures/*")):
        if text := _figure(figure):
            yield f"figures/{figure.name}", text
    if not (folder / RANKS).exists():
        if not came_without_ranks(record.tags, MeasurementParams.read(record.params)):
            yield RANKS, "its rank table is missing"
        return
    try:
        _check_length(folder / RANKS, record)
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
        told = RankHistogram.read(folder / HISTOGRAM)
    except (RbptrackError, OSError, ValueError) as error:
        yield HISTOGRAM, str(error).replace(f"{folder}/", "")
        return
    if text := _histogram(told):
        yield HISTOGRAM, text
        return
    ranks = table.histogram()
    same = np.array_equal(ranks.rank, told.rank) and np.array_equal(ranks.count, told.count)
    if not same or ranks.vocab_size != told.vocab_size or not np.allclose(ranks.logprob, told.logprob, rtol=1e-5):
        yield HISTOGRAM, "its ranks do not give its histogram"
    yield from ((FILE, text) for text in _contradictions(record, table, ranks))


def _check_length(path: Path, record: Record) -> None:
    """BadInput before a table is read that would fill the memory: a run of equal values packs into nothing."""
    try:
        rows = pq.read_metadata(path).num_rows
    except Exception as error:  # damaged bytes make Arrow raise exceptions of every kind
        raise BadInput(f"{path.name} is damaged") from error
    if rows != record.metrics.get(Metric.NUM_TOKENS):
        told = record.metrics.get(Metric.NUM_TOKENS)
        raise BadInput(f"its ranks do not give its numbers: {rows:,} ranks, but num_tokens is {told}")
    if rows > min(_MOST_ROWS, _ROWS_PER_BYTE * path.stat().st_size):
        raise BadInput(f"would unpack to {rows:,} ranks, which is out of proportion to its size")


def _ranks(table: RankTable) -> Iterator[str]:
    """A sentence for every column that holds what no rank table can."""
    if not len(table):
        yield "holds no ranks"
        return
    if any(table.table.column(name).null_count for name in table.table.column_names):
        yield "has empty cells"
        return
    size = table.vocab_size
    allowed = {"document": (0, None), "position": (0, None), "field": (0, None), "token": (-1, size - 1)}
    allowed |= {"greater": (0, size - 1), "ties": (0, size - 1)}
    for name, (least, most) in allowed.items():
        column = table.column(name)
        if column.min() < least or (most is not None and column.max() > most):
            rule = f"from {least}" + (f" to {most:,}, since |V| = {size:,}" if most is not None else "")
            yield f"column {name} must be {rule}; got {column.min()} to {column.max()}"
    if (table.column("greater").astype(np.int64) + table.column("ties") + 1).max() > size:
        yield f"a rank is above |V| = {size:,}"
    logprob = table.column("logprob")
    if not (np.isfinite(logprob) & (logprob <= _EXACT)).all():
        yield "column logprob must be finite and at most 0"


def _token_texts(path: Path, table: RankTable) -> str:
    """What is wrong with the texts of tokens; empty where nothing is and every token of the ranks has one."""
    try:
        texts = read_token_texts(path)
    except (ValueError, AttributeError, RecursionError) as error:
        return f"must be a JSON object of texts by token id: {str(error)[:100]}"
    foreign = next((t for t in texts.values() if not isinstance(t, str) or len(t) > _LONGEST_TOKEN), None)
    if foreign is not None:
        return f"a token's text must be a string of at most {_LONGEST_TOKEN:,} characters; got {shown(foreign)}"
    outside = next((token for token in texts if not 0 <= token < table.vocab_size), None)
    if outside is not None:
        return f"a token id must be from 0 to {table.vocab_size - 1:,}; got {shown(outside)}"
    lacking = np.setdiff1d(table.column("token"), np.fromiter(texts, dtype=np.int64, count=len(texts)))
    return f"{len(lacking):,} tokens of its ranks have no text, the first {lacking[0]}" if len(lacking) else ""


def _histogram(told: RankHistogram) -> str:
    """What is wrong with a histogram in itself; empty where nothing is."""
    kinds = [column.dtype for column in (told.rank, told.count, told.logprob)]
    if [kind.kind for kind in kinds] != ["i", "i", "f"]:
        return f"must hold two columns of whole numbers and one of numbers; got {', '.join(map(str, kinds))}"
    return ""


def _contradictions(record: Record, table: RankTable, ranks: RankHistogram) -> Iterator[str]:
    """A sentence for every number of the record that its ranks do not give."""
    params = MeasurementParams.read(record.params)
    if params.vocab_size not in (None, ranks.vocab_size):
        yield f"its ranks do not give its numbers: vocab_size is {params.vocab_size}, its ranks' is {ranks.vocab_size}"
    if params.rank is not None and (params.rank == "strict") != table.strict:
        yield f"its ranks do not give its numbers: rank is {params.rank}, but its rank table says otherwise"
    allowed = _ROUNDED if "authors: " in record.tags.get(Tag.IMPORTED, "") else _EXACT
    expected = {Metric.CE: ranks.ce, Metric.NUM_TOKENS: ranks.num_tokens, Metric.TIE_RATE: table.tie_rate}
    for name in record.metrics:
        k = parse_rbp_name(name)
        if k is not None and k <= ranks.vocab_size:
            expected[name] = ranks.rbp(k)
    if params.non_embedding_params is not None:
        expected[Metric.NON_EMBEDDING_PARAMS] = params.non_embedding_params
    for name, value in expected.items():
        told = record.metrics.get(name)
        if told is not None and abs(told - value) > allowed * max(1.0, abs(value)):
            yield f"its ranks do not give its numbers: {name} is {told:g}, and should be {value:g}"
    curve = record.curves.get(Metric.RBP_CURVE, {})
    steps = np.array([k for k in curve if 1 <= k <= ranks.vocab_size], dtype=np.int64)
    if len(steps) < len(curve):
        yield f"curve {Metric.RBP_CURVE}: k must be from 1 to |V| = {ranks.vocab_size:,}"
    elif len(steps) and np.abs(ranks.rbp_curve(steps) - np.array(list(curve.values()))).max() > _EXACT:
        yield f"its ranks do not give its curve {Metric.RBP_CURVE}"


def _figure(path: Path) -> str:
    """What is wrong with a figure; empty where it is a PNG of a size that can be shown."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=["PNG"]) as image:
                if image.width * image.height > _MOST_PIXELS:
                    return f"has {image.width} x {image.height} pixels"
                image.verify()
    except Exception as error:  # damaged bytes make Pillow raise exceptions of every kind
        return f"is not a PNG figure: {str(error)[:100]}"
    return ""
