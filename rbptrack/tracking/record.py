"""A finished measurement as a store keeps it: tags, params, metrics and curves in one JSON file, beside its artifacts.

What is measured, imported or waiting for a tracking server that is away is such a folder first, complete on disk.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import matplotlib as mpl
import numpy as np

from rbptrack.analysis import figures
from rbptrack.ranks import DocumentCounts, RankHistogram, log_grid
from rbptrack.stats.bootstrap import bootstrap_metrics, document_weights

FILE = "record.json"


@dataclass
class Record:
    """One measurement, apart from its artifacts.

    Attributes:
        name: the run's name, `pythia-70m / wiki`.
        tags: with the prefix `rbptrack.`; `rbptrack.record` is this record's own id, by which it is delivered once.
        params: flat, grouped by prefix (`model.dtype`).
        metrics: single numbers.
        curves: numbers by step; of `rbp_curve` the step is k.
        dataset: name, digest, source and profile of MLflow's dataset input; empty where unknown.
        started: seconds since 1970.
        ended: seconds since 1970; also the time of every metric, so that logging them again changes nothing.

    """

    name: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: dict[str, float] = field(default_factory=dict)
    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    dataset: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    ended: float = 0.0

    def __post_init__(self) -> None:
        self.tags.setdefault("rbptrack.record", uuid.uuid4().hex)

    @property
    def fingerprint(self) -> str:
        """What determines the measurement's numbers, as a hash."""
        return self.tags["rbptrack.fingerprint"]

    def write(self, folder: Path) -> None:
        """Write record.json into a folder, whole or not at all."""
        unfinished = folder / f"{FILE}.tmp"
        unfinished.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        unfinished.replace(folder / FILE)

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read what `write` wrote; curves get their integer steps back."""
        data = json.loads((folder / FILE).read_text(encoding="utf-8"))
        data["curves"] = {name: {int(k): v for k, v in curve.items()} for name, curve in data["curves"].items()}
        return cls(**data)


def artifacts(folder: Path) -> list[Path]:
    """The files of a record's folder that become artifacts of its run."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in (FILE, f"{FILE}.tmp"))


def add_artifacts(folder: Path, *, ranks: Path, histogram: RankHistogram, title: str) -> None:
    """Lay a measurement's table, histogram and figure into a record's folder; the table is linked where it can be."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    target = folder / "ranks.parquet"
    target.unlink(missing_ok=True)
    try:
        os.link(ranks, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(ranks, target)
    histogram.write(folder / "histogram.parquet")
    figures.rank_distribution(histogram, title).savefig(folder / "figures" / "rank_distribution.png")


def k_metrics(histogram: RankHistogram, counts: DocumentCounts) -> dict[str, float]:
    """Ce and rbp_<k> with their standard errors from a bootstrap over documents."""
    names = ["ce", *(f"rbp_{k}" for k in counts.ks)]
    values = [histogram.ce, *(histogram.rbp(k) for k in counts.ks)]
    metrics = dict(zip(names, values, strict=True))
    if len(counts.document) > 1:
        replicates = bootstrap_metrics(counts, document_weights(len(counts.document)))
        errors = replicates.std(axis=0, ddof=1)
        metrics |= {f"{name}_se": float(e) for name, e in zip(names, errors, strict=True)}
    return metrics


def size_metrics(non_embedding_params: int) -> dict[str, float]:
    """S, and its logarithm for the UI, whose scatter charts have no log axis."""
    return {
        "non_embedding_params": non_embedding_params,
        "log10_non_embedding_params": float(np.log10(max(1, non_embedding_params))),
    }


def curves(histogram: RankHistogram) -> dict[str, dict[int, float]]:
    """RBP_k and -ln RBP_k over a log grid of k up to |V|, as curves whose step is k."""
    grid = log_grid(histogram.vocab_size)
    curve = histogram.rbp_curve(grid)
    positive = (curve > 0) & (curve < 1)
    return {
        "rbp_curve": dict(zip(grid.tolist(), curve.tolist(), strict=True)),
        "neg_log_rbp_curve": dict(zip(grid[positive].tolist(), (-np.log(curve[positive])).tolist(), strict=True)),
    }


def describe(record: Record) -> str:
    """Markdown for people who meet the run in MLflow: what was measured, the headline numbers, where to look."""
    tags, params, metrics = record.tags, record.params, record.metrics
    documents = f"{int(params['dataset.num_documents']):,} documents, " if "dataset.num_documents" in params else ""
    lines = [f"**{tags['rbptrack.model']}** on **{tags['rbptrack.dataset']}**"]
    if "num_tokens" in metrics:
        lines[0] += f": {documents}{metrics['num_tokens']:,.0f} scored tokens."
    shown = ["ce", *(f"rbp_{k}" for k in (1, 10, 100))]
    shown = [name for name in shown if name in metrics]
    heads = {"ce": "CE (nats)"} | {name: name.upper() for name in shown if name != "ce"}
    values = [_with_error(metrics, name) for name in shown]
    lines += ["", f"| {' | '.join(heads[n] for n in shown)} |", f"|{'---|' * len(shown)}", f"| {' | '.join(values)} |"]
    facts = []
    if "non_embedding_params" in metrics:
        facts.append(f"S = {metrics['non_embedding_params']:,.0f} parameters without embeddings and head")
    facts += [f"weights {params['model.dtype']}"] if "model.dtype" in params else []
    if "dataset.sequence" in params:
        facts.append(f"sequences of {params.get('dataset.seq_len', '?')} tokens ({params['dataset.sequence']})")
    lines += ["", "; ".join(facts) + "." if facts else ""]
    sources = [_source("Model", "", params.get("model.repo", ""), params.get("model.commit", ""))]
    sources += [_source("Dataset", "datasets/", params.get("dataset.repo", ""), params.get("dataset.commit", ""))]
    lines += ["", "  \n".join(s for s in sources if s)] if any(sources) else []
    if "rbptrack.imported" in tags:
        lines += ["", f"Imported ({tags['rbptrack.imported']}); what it lacks was not in the source."]
    if tags.get("rbptrack.sweep"):
        lines += ["", f"Sweep `{tags['rbptrack.sweep']}`; every k, window and fit derives from `ranks.parquet`."]
    return "\n".join(lines)


def color(record: Record) -> dict[str, str]:
    """The tag that gives a run its colour in MLflow's charts: from dark to light with log S, 1e3.5 to 1e11."""
    if "log10_non_embedding_params" not in record.metrics:
        return {}
    place = (record.metrics["log10_non_embedding_params"] - 3.5) / 7.5
    return {"mlflow.runColor": mpl.colors.to_hex(mpl.colormaps["viridis"](min(1.0, max(0.0, place))))}


def _with_error(metrics: Mapping[str, float], name: str) -> str:
    error = metrics.get(f"{name}_se")
    return f"{metrics[name]:.4f}" + (f" ± {error:.4f}" if error is not None else "")


def _source(what: str, prefix: str, repo: str, commit: str) -> str:
    if repo:
        revision = commit.partition("@")[2]
        return f"{what}: [{repo}](https://huggingface.co/{prefix}{repo}/tree/{revision or 'main'})"
    return f"{what}: local, `{commit[:23]}`" if commit else ""
