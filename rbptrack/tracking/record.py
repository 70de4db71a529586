"""A finished measurement as a store keeps it: tags, params, metrics and curves in one JSON file, beside its artifacts.

A new or imported measurement is such a folder first, complete on disk; so is one that waits for a tracking server.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from zlib import crc32

import numpy as np

from rbptrack.base.files import write_whole
from rbptrack.ranks import HEADLINE_KS, DocumentCounts, RankHistogram, is_rbp_column, log_grid, rbp_name, se_name
from rbptrack.ranks.measurement import Measurement
from rbptrack.tracking.params import MeasurementParams
from rbptrack.tracking.schema import LAW_METRICS, Metric, Tag, law_name, metric_now, page_label

FILE = "record.json"
RUN_FILE = "run_id"  # beside it: the id of the run that the measurement began
RECORD_FILE = "record_id"  # beside it: the tag by which that run is found where its id was not noted
RANKS = "ranks.parquet"
HISTOGRAM = "histogram.parquet"
FIGURE = "figures/rank_distribution.png"
SCORES_FILE = "scores.csv"  # of a run of imported scores, its only artifact
TOKENS = "tokens.json"  # the texts of the tokens that occur; in bundles where their tables keep the ids


@dataclass
class Record:
    """One measurement, apart from its artifacts."""

    name: str  # the run's name, `pythia-70m / wiki`
    tags: dict[str, str]  # `rbptrack.record` is this record's own id, by which it is delivered once
    params: dict[str, str]  # flat, grouped by prefix (`model.dtype`)
    metrics: dict[str, float] = field(default_factory=dict)
    curves: dict[str, dict[int, float]] = field(default_factory=dict)  # numbers by step; of `rbp_curve` the step is k
    dataset: dict[str, str] = field(default_factory=dict)  # name, digest, source and profile of MLflow's dataset input
    started: float = field(default_factory=time.time)  # seconds since 1970
    ended: float = 0.0  # seconds since 1970; of every metric too, so that logging again changes nothing

    def __post_init__(self) -> None:
        self.tags.setdefault(Tag.RECORD, uuid.uuid4().hex)

    @property
    def fingerprint(self) -> str:
        """What determines the measurement's numbers, as a hash."""
        return self.tags[Tag.FINGERPRINT]

    def add_results(
        self, measurement: Measurement, *, non_embedding_params: int, counts: DocumentCounts | None = None
    ) -> None:
        """Take over the metrics and curves of a measurement that ended now.

        `counts` are per-document sums of the k that become metrics; by default the measurement's.
        """
        self.ended = time.time()
        self.metrics |= k_metrics(measurement.histogram, counts or measurement.counts)
        self.metrics |= size_metrics(non_embedding_params)
        self.metrics |= {
            Metric.BITS_PER_BYTE: measurement.bits_per_byte,
            Metric.NUM_TOKENS: measurement.num_tokens,
            Metric.TIE_RATE: measurement.tie_rate,
            Metric.PEAK_MEMORY_BYTES: measurement.peak_memory_bytes,
            Metric.BATCH_TOKENS: measurement.batch_tokens,
            Metric.CHUNK_TOKENS: measurement.chunk_tokens,
            Metric.OUT_OF_MEMORY_RECOVERIES: sum(note.startswith("out of memory") for note in measurement.notes),
        }
        self.tags |= {Tag.NOTES: "; ".join(measurement.notes)} if measurement.notes else {}
        if measurement.split:
            self.metrics |= dict(zip((Metric.CE_RANK, Metric.CE_REST), measurement.split, strict=True))
        if measurement.compared:
            self.metrics |= asdict(measurement.compared)
        if measurement.fresh_tokens:
            self.metrics[Metric.TOKENS_PER_SECOND] = measurement.fresh_tokens / measurement.seconds
        self.curves = curves(measurement.histogram)

    def write(self, folder: Path) -> None:
        """Write record.json into a folder, whole or not at all."""
        write_whole(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read what `write` wrote; curves get their integer steps back."""
        data = json.loads((folder / FILE).read_text(encoding="utf-8"))
        data["metrics"] = {metric_now(name): value for name, value in data["metrics"].items()}
        data["curves"] = {name: {int(k): v for k, v in curve.items()} for name, curve in data["curves"].items()}
        return cls(**data)


def artifacts(folder: Path) -> list[Path]:
    """Return the files of a record's folder that become artifacts of its run."""
    others = (FILE, RUN_FILE, RECORD_FILE)
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in others and p.suffix != ".tmp")


def add_artifacts(folder: Path, *, ranks: Path, histogram: RankHistogram, title: str) -> None:
    """Lay a measurement's table, histogram and figure into a record's folder; the table is linked where it can be."""
    (folder / FIGURE).parent.mkdir(parents=True, exist_ok=True)
    target = folder / RANKS
    target.unlink(missing_ok=True)
    try:
        os.link(ranks, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(ranks, target)
    from rbptrack.tracking.picture import draw_rank_distribution  # who reads a store need not wait for Pillow

    histogram.write(folder / HISTOGRAM)
    draw_rank_distribution(histogram, title, folder / FIGURE)


def write_token_texts(folder: Path, texts: Mapping[int, str]) -> None:
    """Lay the texts of tokens, by id, into a record's folder, so that reports show them without the tokenizer."""
    (folder / TOKENS).write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")


def read_token_texts(path: Path) -> dict[int, str]:
    """Read what `write_token_texts` wrote."""
    return {int(token): text for token, text in json.loads(path.read_text(encoding="utf-8")).items()}


def k_metrics(histogram: RankHistogram, counts: DocumentCounts) -> dict[str, float]:
    """Return CE and rbp_<k> for the k of the counts, with their standard errors from a bootstrap over documents."""
    names = [Metric.CE, *map(rbp_name, counts.ks)]
    values = [histogram.ce, *(histogram.rbp(k) for k in counts.ks)]
    metrics = dict(zip(names, values, strict=True))
    if len(counts.document) > 1:
        from rbptrack.stats.bootstrap import resampled_metrics  # nor for scipy
        from rbptrack.stats.intervals import widening, worth

        replicates = resampled_metrics(counts)
        errors = replicates.std(axis=0, ddof=1)
        if counts.grouped:  # sources are few: 1.96 such errors to both sides cover 95% (studies/groups.py)
            errors *= widening(worth(counts.tokens), 0.95)
        metrics |= {se_name(name): float(e) for name, e in zip(names, errors, strict=True)}
    return metrics


def size_metrics(non_embedding_params: int) -> dict[str, float]:
    """Return S and its logarithm."""
    return {
        Metric.NON_EMBEDDING_PARAMS: non_embedding_params,
        Metric.LOG10_NON_EMBEDDING_PARAMS: float(np.log10(max(1, non_embedding_params))),
    }


def curves(histogram: RankHistogram) -> dict[str, dict[int, float]]:
    """Return RBP_k and -ln RBP_k over a log grid of k up to |V|, as curves whose step is k."""
    grid = log_grid(histogram.vocab_size)
    return rbp_curves(dict(zip(grid.tolist(), histogram.rbp_curve(grid).tolist(), strict=True)))


def rbp_curves(rbp: Mapping[int, float]) -> dict[str, dict[int, float]]:
    """Return the two curves that are made of RBP_k by k; -ln RBP_k only where it is finite and positive."""
    ordered = dict(sorted(rbp.items()))
    return {
        Metric.RBP_CURVE: ordered,
        Metric.NEG_LOG_RBP_CURVE: {k: float(-np.log(share)) for k, share in ordered.items() if 0 < share < 1},
    }


def for_charts(record: Record) -> dict[str, float]:
    """Return what MLflow's pages show of a measurement besides its metrics.

    The headline numbers under the prefix that comes first on a run's page; and, since charts of points have no log
    axis, log10 of S, training tokens, CE, -ln RBP_k and bits per byte.
    """
    metrics = record.metrics
    charted = {f"{Metric.RESULTS}{page_label(name)}": metrics[name] for name in LAW_METRICS if name in metrics}
    if Metric.LOG10_NON_EMBEDDING_PARAMS in metrics:
        charted[Metric.LAW_SIZE] = metrics[Metric.LOG10_NON_EMBEDDING_PARAMS]
    if training_tokens := MeasurementParams.read(record.params).training_tokens:
        charted[Metric.LAW_TOKENS] = math.log10(training_tokens)
    for name in LAW_METRICS:
        value = metrics.get(name, 0.0)
        if is_rbp_column(name) and value > 0:
            value = -math.log(value)
        if value > 0:
            charted[law_name(record.tags[Tag.DATASET], name)] = math.log10(value)
    return charted


def describe(record: Record) -> str:
    """Return Markdown for people who meet the run in MLflow: model and dataset, the headline numbers, where to look."""
    tags = record.tags
    params = MeasurementParams.read(record.params)
    metrics = record.metrics
    documents = "" if params.num_documents is None else f"{params.num_documents:,} documents, "
    lines = [f"**{tags[Tag.MODEL]}** on **{tags[Tag.DATASET]}**"]
    if Metric.NUM_TOKENS in metrics:
        lines[0] += f": {documents}{metrics[Metric.NUM_TOKENS]:,.0f} scored tokens."
    heads = {Metric.CE: "CE (nats)"} | {rbp_name(k): f"RBP_{k}" for k in HEADLINE_KS}
    shown = [name for name in heads if name in metrics]
    values = [_with_error(metrics, name) for name in shown]
    if shown:
        lines += ["", _table_row([heads[name] for name in shown]), f"|{'---|' * len(shown)}", _table_row(values)]
    facts = []
    if Metric.NON_EMBEDDING_PARAMS in metrics:
        facts.append(f"S = {metrics[Metric.NON_EMBEDDING_PARAMS]:,.0f} parameters without embeddings and head")
    facts += [f"weights {params.dtype}"] if params.dtype else []
    if params.sequence:
        facts.append(f"sequences of {params.seq_len or '?'} tokens ({params.sequence})")
    lines += ["", "; ".join(facts) + "." if facts else ""]
    sources = [_source("Model", "", params.repo, params.commit)]
    sources += [_source("Dataset", "datasets/", params.dataset_repo, params.dataset_commit)]
    lines += ["", "  \n".join(s for s in sources if s)] if any(sources) else []
    if Tag.IMPORTED in tags:
        lines += ["", f"Imported ({tags[Tag.IMPORTED]}); what it lacks was not in the source."]
    if tags.get(Tag.SWEEP):
        lines += ["", f"Sweep `{tags[Tag.SWEEP]}`; every k, window and fit derives from `{RANKS}`."]
    return "\n".join(lines)


def color(record: Record) -> dict[str, str]:
    """Return the tag that gives a run its colour in MLflow's charts: a hue per family, from light to dark with log
    S.
    """
    if Metric.LOG10_NON_EMBEDDING_PARAMS not in record.metrics:
        return {}
    family = record.tags.get(Tag.FAMILY, "")
    digits = _HUES[crc32(family.encode()) % len(_HUES)]
    hue = np.array([int(digits[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    share = min(1.0, max(0.0, (record.metrics[Metric.LOG10_NON_EMBEDDING_PARAMS] - 3.5) / 7.5))  # 1e3.5 to 1e11
    light = 0.55 - 0.85 * share  # above 0 towards white, below towards black
    mixed = hue + (1 - hue) * light if light > 0 else hue * (1 + light)
    return {"mlflow.runColor": "#" + "".join(f"{round(255 * part):02x}" for part in mixed.tolist())}


_SPACE = "&emsp;"  # as an entity: what turns Markdown into HTML trims the character
_HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e6a700", "#56b4e9", "#8a5a2b", "#7f3fbf", "#7a7a7a", "#c21e56")


def _table_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table, with space after cells but the last: MLflow shows tables without any."""
    return f"| {f'{_SPACE} | '.join(cells)} |"


def _with_error(metrics: Mapping[str, float], name: str) -> str:
    error = metrics.get(se_name(name))
    return f"{metrics[name]:.4f}" + (f" ± {error:.4f}" if error is not None else "")


def _source(what: str, prefix: str, repo: str | None, commit: str | None) -> str:
    if repo:
        revision = (commit or "").partition("@")[2]
        return f"{what}: [{repo}](https://huggingface.co/{prefix}{repo}/tree/{revision or 'main'})"
    return f"{what}: local, `{commit[:23]}`" if commit else ""
