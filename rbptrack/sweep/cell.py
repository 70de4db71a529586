"""One cell of a sweep: measure one model on one dataset and log it, unless that was done already."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from rbptrack.config.paths import home
from rbptrack.config.schema import Candidates, Config, Rank, SequenceRule, flat
from rbptrack.console import CellProgress, say
from rbptrack.corpus.documents import selection_identity
from rbptrack.errors import BadInput, RbptrackError, StoreAway, disk_trouble
from rbptrack.sources.fingerprint import SCORING_VERSION, fingerprint
from rbptrack.sources.pin import Source, of_dataset, of_model, of_tokenizer
from rbptrack.tracking import Connection, Live, MeasurementTags, Reader, Writer, claim
from rbptrack.tracking import outbox as spool
from rbptrack.tracking.record import Record, add_artifacts, curves, k_metrics, size_metrics
from rbptrack.version import __version__

if TYPE_CHECKING:  # torch, transformers and datasets load only where a model runs
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.engine.measure import Measurement
    from rbptrack.models.loading import CausalModel


@dataclass
class Outcome:
    """How a cell ended; written as JSON into its job folder, where the sweep collects it.

    Attributes:
        title: `pythia-70m / wiki`.
        status: measured, skipped (measured before) or failed.
        run_id: of its MLflow run; empty if none began.
        message: why it failed.
        bad_input: whether the failure is the user's to set right.
        waits: why the measurement waits on disk and is not in the tracking store yet.
        numbers: S, num_tokens, ce, rbp_<k>, tokens_per_second for the summary.
        notes: what the user should know.

    """

    title: str
    model: str
    dataset: str
    status: str
    run_id: str = ""
    message: str = ""
    bad_input: bool = False
    waits: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write outcome.json."""
        (folder / "outcome.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """Read what `write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


class CellFailed(Exception):
    """A cell failed after its MLflow run had begun; the cause is what happened."""

    def __init__(self, run_id: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.run_id, self.cause = run_id, cause


_pins: dict[tuple[object, ...], Source] = {}


def _pinned(key: tuple[object, ...], pin: Callable[[], Source]) -> Source:
    """Pin once per process: a sweep names the same model and dataset in many cells."""
    if key not in _pins:
        _pins[key] = pin()
    return _pins[key]


def sources(config: Config) -> tuple[Source, Source]:
    """The pinned model and dataset of a cell."""
    m, d = config.model, config.dataset
    return (
        _pinned(("model", m.repo, m.path, m.revision), lambda: of_model(m)),
        _pinned(("dataset", d.repo, d.path, d.revision, *d.files), lambda: of_dataset(d)),
    )


def tokenizer_source(config: Config) -> Source:
    """The pinned tokenizer of a cell."""
    model, _ = sources(config)
    return _pinned(("tokenizer", config.model.tokenizer, model.identity), lambda: of_tokenizer(config.model, model))


def identity(config: Config) -> str:
    """The fingerprint of what a config would measure: batch and chunk sizes, device, paths and k are not in it."""
    model, dataset = sources(config)
    d = config.dataset
    other = {
        "tokenizer": tokenizer_source(config).identity if config.model.tokenizer else "",
        "candidates": config.candidates.value if config.candidates is not Candidates.vocabulary else "",
        "rank": config.rank.value if config.rank is not Rank.paper else "",
    }
    return fingerprint(
        {
            "model": model.identity,  # its tokenizer included
            **selection_identity(d, dataset),
            "sequence": d.sequence.value,
            "seq_len": d.seq_len,
            "context": d.context if d.sequence is SequenceRule.slide else 0,
            "dtype": config.model.dtype.value,
            "matmul": "tf32" if config.model.tf32 else "float32",
            "scoring": SCORING_VERSION,
            **{name: value for name, value in other.items() if value},
        }
    )


def usable_ks(ks: list[int], vocab_size: int, model: str) -> tuple[tuple[int, ...], list[str]]:
    """The k that a vocabulary allows, and a note about those left out; BadInput if none is left."""
    kept = tuple(sorted({k for k in ks if k <= vocab_size}))
    if not kept:
        raise BadInput(f"k must be between 1 and {vocab_size}, the vocabulary's size of {model}; got {ks}")
    out = sorted(set(ks) - set(kept))
    return kept, [f"k = {', '.join(map(str, out))} left out where |V| = {vocab_size}"] if out else []


def run(config: Config, *, place: str = "") -> Outcome:
    """Measure and log one cell, or find that it was measured before.

    Raises:
        BadInput: something is wrong with what was asked; no run began.
        CellFailed: the run that had begun could not be finished; it is marked FAILED (KILLED for an interrupt).

    """
    connection = Connection(config.tracking)
    config.tracking.uri = connection.shown  # what is logged from here on holds no password
    model, dataset = sources(config)
    cell = MeasurementTags(
        fingerprint=identity(config),
        family=config.model.family,
        size=config.model.size,
        model=config.model.name,
        dataset=config.dataset.name,
        sweep=config.sweep,
    )
    partial = home() / "partial"
    if not config.force and (known := _known(connection, cell, config.k.values)):
        return known
    if connection.database is not None:
        connection.check_writable()
    setup = prepare(config, model, dataset)
    partial.mkdir(parents=True, exist_ok=True)
    # Two processes that are asked for the same cell: one measures, the other waits and then finds it measured.
    lock = partial / f"{cell.fingerprint}.lock"
    with FileLock(lock):
        try:
            known = None if config.force else _known(connection, cell, config.k.values)
            return known or _measure(config, cell, connection, model, setup, place)
        finally:
            lock.unlink(missing_ok=True)


def _known(connection: Connection, cell: MeasurementTags, ks: list[int]) -> Outcome | None:
    """What was measured before, in the store or waiting for it; a store that is away knows nothing now."""
    if waits := spool.holds(cell.fingerprint):
        outcome = Outcome(cell.title, cell.model, cell.dataset, "skipped", numbers=waits.metrics)
        outcome.waits = "the tracking store was away when it was measured"
        return outcome
    try:
        found = Reader(connection).find(cell.fingerprint)
        return _skipped(connection, cell, found, ks) if found else None
    except StoreAway:
        return None


@dataclass(frozen=True)
class Setup:
    """What a cell needs beside its model."""

    corpus: Corpus
    candidates: int
    ks: tuple[int, ...]
    notes: list[str]
    dataset: Source


def prepare(config: Config, model: Source, dataset: Source) -> Setup:
    """Corpus and usable k: everything that can be wrong with the input is found here, before a run begins."""
    from rbptrack.corpus.sequences import load_corpus
    from rbptrack.models.architecture import check_fit, load_config, load_tokenizer, num_candidates
    from rbptrack.models.checkpoint import check_folder

    if config.model.path:
        check_folder(config.model)
    architecture, tokenizer = load_config(model), load_tokenizer(tokenizer_source(config))
    check_fit(config.model.name, architecture, tokenizer, config.dataset.seq_len)
    candidates = num_candidates(architecture, tokenizer, config.candidates)
    ks, notes = usable_ks(config.k.values, candidates, config.model.name)
    return Setup(load_corpus(config.dataset, dataset, tokenizer), candidates, ks, notes, dataset)


_loaded: dict[tuple[object, ...], CausalModel] = {}  # at most one: the next cell often asks for the same model


def _model(config: Config, source: Source, candidates: int) -> CausalModel:
    from rbptrack.models.loading import load_model

    c = config.model
    place = (c.device, c.device_map, *sorted(c.max_memory.items()))
    key = (source.identity, source.location, c.dtype, c.tf32, *place, c.attention, candidates)
    if key not in _loaded:
        _loaded.clear()  # before loading: two models need not fit
        _loaded[key] = load_model(c, source, candidates=candidates)
    return _loaded[key]


def _measure(
    config: Config, cell: MeasurementTags, connection: Connection, source: Source, setup: Setup, place: str
) -> Outcome:
    from rbptrack.engine.measure import discard, measure

    model = _model(config, source, setup.candidates)
    corpus, folder = setup.corpus, home() / "partial" / cell.fingerprint
    if config.force:
        discard(folder)
    record = Record(cell.title, cell.tags(), flat(config) | _facts(model, corpus, source, setup))
    record.tags |= {"rbptrack.forced": "yes"} if config.force else {}
    record.dataset = {
        "name": cell.dataset,
        "digest": corpus.texts_hash[:36],  # as much as MLflow takes
        "source": json.dumps({"source": setup.dataset.identity, "split": config.dataset.split}),
        "profile": json.dumps({"documents": len(corpus.document_ids), "scored_tokens": corpus.num_targets}),
    }
    run_id, done = _begin(connection, record, folder, force=config.force)
    if done:
        return _skipped(connection, cell, run_id, config.k.values)
    writer, status = Writer(connection), "FAILED"
    try:
        with (
            CellProgress(cell.title, total=corpus.num_targets, place=place) as progress,
            Live(writer, run_id, every=config.tracking.every) as live,
        ):
            result = measure(
                model,
                corpus,
                ks=setup.ks,
                engine=config.engine,
                folder=folder,
                strict=config.rank is Rank.strict,
                progress=progress,
                on_part=live.add,
            )
        made = _complete(record, result, config, model)
        corpus.document_table().to_csv(made / "documents.csv", index=False)
        run_id, waits = spool.deliver_or_keep(writer, record, made, run_id)
        status = "FINISHED"
    except (KeyboardInterrupt, SystemExit):
        status = "KILLED"
        raise
    except Exception as error:
        raise CellFailed(run_id, disk_trouble(error, folder) or error) from error
    finally:
        if run_id and status != "FINISHED":
            with suppress(RbptrackError):  # repaired at the next start
                writer.end(run_id, status)
    discard(folder)
    outcome = Outcome(cell.title, cell.model, cell.dataset, "measured", run_id, numbers=record.metrics)
    outcome.notes, outcome.waits = [*setup.notes, *(f"{cell.title}: {n}" for n in result.notes)], waits
    return outcome


def _begin(connection: Connection, record: Record, folder: Path, *, force: bool) -> tuple[str, bool]:
    """The cell's run, and whether another has finished it meanwhile; no run where the store is away."""
    writer = Writer(connection)
    try:
        if force:
            run_id, done = writer.begin(record.name, record.tags, started=record.started), False
        else:
            run_id, done = claim(connection, record, folder, tell=say)
        if not done:
            writer.log(run_id, params=record.params)
    except StoreAway as error:
        say(f"{record.name}: {error}; the measurement goes on and waits on disk")
        return "", False
    return run_id, done


def _complete(record: Record, result: Measurement, config: Config, model: CausalModel) -> Path:
    """Fill in what was measured, and lay the artifacts beside it; returns the record's folder."""
    from omegaconf import OmegaConf

    fill(record, result, non_embedding_params=model.non_embedding_params)
    made = result.path.parent / "record"
    add_artifacts(made, ranks=result.path, histogram=result.histogram, title=record.name)
    OmegaConf.save(OmegaConf.structured(config), made / "config.yaml")
    return made


def _facts(model: CausalModel, corpus: Corpus, source: Source, setup: Setup) -> dict[str, str]:
    """What was resolved at run time: params beside the config's."""
    import torch
    import transformers

    found = {
        "model.commit": source.identity,
        "model.non_embedding_params": model.non_embedding_params,
        "model.total_params": model.total_params,
        "model.vocab_size": model.vocab_size,
        "model.device_used": str(model.device),
        "dataset.commit": setup.dataset.identity,
        "dataset.texts_hash": corpus.texts_hash,
        "dataset.num_documents": len(corpus.document_ids),
        "versions.rbptrack": __version__,
        "versions.python": platform.python_version(),
        "versions.torch": torch.__version__,
        "versions.transformers": transformers.__version__,
        "versions.scoring": SCORING_VERSION,
    }
    return {name: str(value) for name, value in found.items()}


def fill(record: Record, result: Measurement, *, non_embedding_params: int) -> None:
    """Metrics and curves of a finished measurement."""
    record.ended = time.time()
    record.metrics |= k_metrics(result.histogram, result.counts) | size_metrics(non_embedding_params)
    record.metrics |= {
        "bits_per_byte": result.bits_per_byte,
        "num_tokens": result.num_tokens,
        "tie_rate": result.tie_rate,
        "peak_memory_bytes": result.peak_memory_bytes,
        "batch_tokens": result.batch_tokens,
        "chunk_tokens": result.chunk_tokens,
        "out_of_memory_recoveries": len(result.notes),
    }
    if result.fresh_tokens:
        record.metrics["tokens_per_second"] = result.fresh_tokens / result.seconds
    record.curves = curves(result.histogram)


def _skipped(connection: Connection, cell: MeasurementTags, run_id: str, wanted: list[int]) -> Outcome:
    """A cell that was measured before; k that it lacks are added from its ranks, without the model."""
    reader = Reader(connection)
    run = reader.run(run_id)
    logged = dict(run.metrics)
    ks, notes = usable_ks(wanted, int(run.params["model.vocab_size"]), cell.model)
    lacking = tuple(k for k in ks if f"rbp_{k}" not in logged)
    if lacking:
        ranks = reader.ranks(run_id)
        added = k_metrics(ranks.histogram(), ranks.document_counts(lacking))
        Writer(connection).log(run_id, metrics={k: v for k, v in added.items() if k.startswith("rbp_")})
        logged |= added
    return Outcome(cell.title, cell.model, cell.dataset, "skipped", run_id, numbers=logged, notes=notes)


def announce(outcome: Outcome, place: str) -> None:
    """One line when a cell ends."""
    n = outcome.numbers
    if outcome.status == "failed":
        say(f"{place} {outcome.title}  failed: {outcome.message}".strip())
    else:
        words = f"{outcome.status}, waits" if outcome.waits else outcome.status
        speed = (
            f"  {n['tokens_per_second']:,.0f} tok/s"
            if outcome.status == "measured" and "tokens_per_second" in n
            else ""
        )
        tokens = f"{n.get('num_tokens', 0):,.0f} tokens"
        say(f"{place} {outcome.title:<24} {words:<8} {tokens:>16}  CE {n['ce']:.3f}{speed}".strip())
