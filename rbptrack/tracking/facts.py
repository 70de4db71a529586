"""Turn the facts of a measurement into tags and params of its run, and read them from runs as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pandas as pd
from omegaconf import OmegaConf

from rbptrack.config.schema import CellConfig, DatasetConfig, Dtype, ModelConfig, SequenceRule, TrackingConfig
from rbptrack.facts import DTYPE_BY_COLUMN, FACTS, Place, convert_columns, stored_texts
from rbptrack.ranks import rbp_ks, rbp_name, se_name
from rbptrack.sources.fingerprint import SCORING_VERSION, fingerprint
from rbptrack.tracking.names import Kind, Tag

if TYPE_CHECKING:  # the modules of rbptrack import torch and transformers, which are loaded only to run a model
    from mlflow.entities import Run

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The description of one measurement, without its numbers.

    Attributes:
        config: the configuration, which config.yaml keeps.
        identity: everything that determines the numbers; its hash is the fingerprint.
        values: the facts by their names in `rbptrack.facts`. An unknown fact is empty, zero or left out.

    """

    config: CellConfig
    identity: Mapping[str, Any]
    values: Mapping[str, object]

    @classmethod
    def collect(
        cls,
        config: CellConfig,
        identity: Mapping[str, Any],
        other_facts: Mapping[str, object],
        *,
        model: CausalModel | None = None,
        corpus: Corpus | None = None,
    ) -> Facts:
        """Collect the facts of a configuration, of a loaded model and of its texts.

        Args:
            config: the configuration of the cell.
            identity: everything that determines the numbers of the measurement.
            other_facts: facts that do not follow from the other arguments, by name.
            model: the loaded model, or None if it was not loaded.
            corpus: the dataset as sequences, or None if it was not read.

        """
        values = _model_config_facts(config.model) | _dataset_config_facts(config.dataset)
        values["candidates"] = config.candidates.value
        values["rank"] = config.rank.value
        values["tokenizer_rules"] = identity.get("tokenizer_rules", "")
        values["scoring"] = SCORING_VERSION
        values["software"] = software()
        if config.reference is not None:
            values["reference"] = reference_title(config.reference)
        if model is not None:
            values |= _model_facts(model)
        if corpus is not None:
            values["documents_hash"] = corpus.texts_hash
            values["documents"] = len(corpus.document_ids)
        return cls(config=config, identity=identity, values={**values, **other_facts})

    @property
    def fingerprint(self) -> str:
        """The hash of everything that determines the numbers."""
        return fingerprint(self.identity)

    @property
    def title(self) -> str:
        """The name of the run, such as `pythia-70m / wiki`."""
        return measurement_title(self.config.model.name, self.config.dataset.name)

    def tags(self) -> dict[str, str]:
        """Return the tags of the run."""
        return measurement_tags({**self.values, "fingerprint": self.fingerprint})

    def params(self) -> dict[str, str]:
        """Return the params of the run. Facts that are unknown are left out."""
        return stored_texts(Place.PARAM, self.values)

    def yaml(self) -> str:
        """Return the configuration as YAML. The address of the store is left out, because others do not need it."""
        config = self.config
        tracking = getattr(config, "tracking", None)
        if isinstance(tracking, TrackingConfig):
            config = replace(config, tracking=replace(tracking, uri=""))  # type: ignore[call-arg]
        return OmegaConf.to_yaml(OmegaConf.structured(config))


def measurement_title(model: str, dataset: str) -> str:
    """Return the name of a measurement, such as `pythia-70m / wiki`."""
    return f"{model} / {dataset}"


def measurement_tags(values: Mapping[str, object]) -> dict[str, str]:
    """Return the tags of a measurement's run for facts by name."""
    kind = {Tag.KIND: Kind.MEASUREMENT}
    return kind | {Tag.PREFIX + name: text for name, text in stored_texts(Place.TAG, values).items()}


def reference_title(reference: ModelConfig) -> str:
    """Return the name of a reference, with its precision if that is not float32: `pythia-1b bfloat16`."""
    if reference.dtype is Dtype.float32:
        return reference.name
    return f"{reference.name} {reference.dtype.value}"


def software() -> str:
    """Return the versions of the installed software: `rbptrack 0.1.0, scoring 7, torch 2.13.0, transformers 5.23.0`."""
    versions = [f"{name} {version(name)}" for name in ("torch", "transformers")]
    return ", ".join([f"rbptrack {version('rbptrack')}", f"scoring {SCORING_VERSION}", *versions])


def _model_config_facts(model: ModelConfig) -> dict[str, object]:
    return {
        "family": model.family,
        "size": model.size,
        "model": model.name,
        "repo": model.repo,
        "gguf": model.gguf,
        "revision": model.revision,
        "seed": model.seed,
        "training_tokens": model.training_tokens,
        "tokenizer": model.tokenizer,
        "dtype": "tf32" if model.tf32 else model.dtype.value,
    }


def _dataset_config_facts(dataset: DatasetConfig) -> dict[str, object]:
    return {
        "dataset": dataset.name,
        "dataset_repo": dataset.repo,
        "dataset_config": dataset.config,
        "split": dataset.split,
        "fields": ", ".join(dataset.fields) if dataset.fields != ["text"] else "",
        "selection": _describe_selection(dataset),
        "sequence": dataset.sequence.value,
        "seq_len": dataset.seq_len,
        "context": dataset.context if dataset.sequence is SequenceRule.slide else 0,
    }


def _model_facts(model: CausalModel) -> dict[str, object]:
    return {
        "weights": model.quantisation,
        "non_embedding_params": model.non_embedding_params,
        "total_params": model.total_params,
        "vocab_size": model.vocab_size,
        "device": str(model.device),
        "reference_params": model.reference.model.total_params if model.reference else 0,
    }


def _describe_selection(dataset: DatasetConfig) -> str:
    """Describe how documents were selected, such as `of the first 1000 rows, lang=en, 100 by shuffle, seed 42`."""
    parts = []
    if dataset.head:
        parts.append(f"of the first {dataset.head} rows")
    parts += [f"{name}={value}" for name, value in sorted(dataset.where.items())]
    if dataset.longer_than:
        parts.append(f"longer than {dataset.longer_than}")
    if dataset.documents:
        parts.append(f"{dataset.documents} by {dataset.sampling.value}, seed {dataset.seed}")
    return ", ".join(parts)


def runs_frame(runs: Iterable[Run]) -> pd.DataFrame:
    """Return a frame with one row per run. Its columns are the facts, and each rbp_<k> with its standard error."""
    frame = pd.DataFrame([_facts_and_metrics(run) for run in runs])
    rbp_columns = []
    for k in rbp_ks(set(frame.columns)):
        rbp_columns += [name for name in (rbp_name(k), se_name(rbp_name(k))) if name in frame.columns]
    frame = frame.reindex(columns=[*DTYPE_BY_COLUMN, *rbp_columns])
    frame["started"] = pd.to_datetime(frame["started"], unit="ms", utc=True)
    return convert_columns(frame)


def _facts_and_metrics(run: Run) -> dict[str, Any]:
    row: dict[str, Any] = run.data.params | run.data.metrics
    row |= {"run_id": run.info.run_id, "started": run.info.start_time}
    for fact in FACTS:
        if fact.place is Place.TAG:
            row[fact.name] = run.data.tags.get(Tag.PREFIX + fact.name)
    return row
