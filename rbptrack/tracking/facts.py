"""The facts of one measurement, as the tags and params of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from rbptrack.config.schema import CellConfig, DatasetConfig, Dtype, ModelConfig, SequenceRule, TrackingConfig
from rbptrack.facts import Place, texts
from rbptrack.sources.fingerprint import SCORING_VERSION, fingerprint
from rbptrack.tracking.names import Kind, Tag

if TYPE_CHECKING:  # torch and transformers load only where a model runs
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of one measurement besides its numbers.

    Attributes:
        config: as it was composed; a `Config` is kept whole as config.yaml.
        identity: everything that determines the numbers; the fingerprint is its hash.
        values: the facts by their names in `rbptrack.facts`. What is not known is empty, zero or left out.

    """

    config: CellConfig
    identity: Mapping[str, Any]
    values: Mapping[str, object]

    @classmethod
    def of(
        cls,
        config: CellConfig,
        identity: Mapping[str, Any],
        further: Mapping[str, object],
        *,
        model: CausalModel | None = None,
        corpus: Corpus | None = None,
    ) -> Facts:
        """Collect the facts of a configuration, of a loaded model and of its texts.

        Args:
            config: of the cell.
            identity: of the measurement.
            further: facts that none of the others knows, by name.
            model: if it was loaded.
            corpus: if it was read.

        """
        values = _of_model_config(config.model) | _of_dataset_config(config.dataset)
        values |= {"candidates": config.candidates.value, "rank": config.rank.value}
        values |= {"tokenizer_rules": identity.get("tokenizer_rules", "")}
        values |= {"scoring": SCORING_VERSION, "software": software()}
        if config.reference is not None:
            values["reference"] = reference_title(config.reference)
        if model is not None:
            values |= _of_model(model)
        if corpus is not None:
            values |= {"documents_hash": corpus.texts_hash, "documents": len(corpus.document_ids)}
        return cls(config=config, identity=identity, values={**values, **further})

    @property
    def fingerprint(self) -> str:
        """The hash of everything that determines the numbers."""
        return fingerprint(self.identity)

    @property
    def title(self) -> str:
        """The run's name: `pythia-70m / wiki`."""
        return title(self.config.model.name, self.config.dataset.name)

    def tags(self) -> dict[str, str]:
        """The run's tags."""
        return tags_of({**self.values, "fingerprint": self.fingerprint})

    def params(self) -> dict[str, str]:
        """The run's params, without defaults that say nothing."""
        return texts(Place.PARAM, self.values)

    def yaml(self) -> str:
        """The whole config without the address of the store: whoever reads it has a store of their own."""
        config = self.config
        tracking = getattr(config, "tracking", None)
        if isinstance(tracking, TrackingConfig):
            config = replace(config, tracking=replace(tracking, uri=""))  # type: ignore[call-arg]
        return OmegaConf.to_yaml(OmegaConf.structured(config))


def title(model: str, dataset: str) -> str:
    """A measurement's name: `pythia-70m / wiki`."""
    return f"{model} / {dataset}"


def tags_of(values: Mapping[str, object]) -> dict[str, str]:
    """The tags of a measurement's run, of facts by name."""
    kind = {Tag.KIND: Kind.MEASUREMENT}
    return kind | {Tag.PREFIX + name: text for name, text in texts(Place.TAG, values).items()}


def reference_title(reference: ModelConfig) -> str:
    """A reference's name, with its precision if that is not float32: `pythia-1b bfloat16`."""
    if reference.dtype is Dtype.float32:
        return reference.name
    return f"{reference.name} {reference.dtype.value}"


def software() -> str:
    """What measures now: `rbptrack 0.1.0, scoring 7, torch 2.13.0, transformers 5.23.0`."""
    versions = [f"{name} {version(name)}" for name in ("torch", "transformers")]
    return ", ".join([f"rbptrack {version('rbptrack')}", f"scoring {SCORING_VERSION}", *versions])


def _of_model_config(model: ModelConfig) -> dict[str, object]:
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


def _of_dataset_config(dataset: DatasetConfig) -> dict[str, object]:
    return {
        "dataset": dataset.name,
        "dataset_repo": dataset.repo,
        "dataset_config": dataset.config,
        "split": dataset.split,
        "fields": ", ".join(dataset.fields) if dataset.fields != ["text"] else "",
        "selection": _selection(dataset),
        "sequence": dataset.sequence.value,
        "seq_len": dataset.seq_len,
        "context": dataset.context if dataset.sequence is SequenceRule.slide else 0,
    }


def _of_model(model: CausalModel) -> dict[str, object]:
    return {
        "weights": model.weights,
        "non_embedding_params": model.non_embedding_params,
        "total_params": model.total_params,
        "vocab_size": model.vocab_size,
        "device": str(model.device),
        "reference_params": model.reference.model.total_params if model.reference else 0,
    }


def _selection(dataset: DatasetConfig) -> str:
    """How documents were selected: `of the first 1000 rows, lang=en, longer than 200, 100 by shuffle, seed 42`."""
    parts = []
    if dataset.head:
        parts.append(f"of the first {dataset.head} rows")
    parts += [f"{name}={value}" for name, value in sorted(dataset.where.items())]
    if dataset.longer_than:
        parts.append(f"longer than {dataset.longer_than}")
    if dataset.documents:
        parts.append(f"{dataset.documents} by {dataset.sampling.value}, seed {dataset.seed}")
    return ", ".join(parts)
