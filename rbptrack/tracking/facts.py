"""What a measurement is of, as the tags by which it is found and the params that tell it from others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

from omegaconf import OmegaConf

from rbptrack.config.schema import CellConfig, DatasetConfig, ModelConfig, SequenceRule, TrackingConfig
from rbptrack.sources.fingerprint import SCORING_VERSION
from rbptrack.tracking.names import Kind, Tag


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a measurement beside its numbers, once model and texts have been read.

    Attributes:
        config: as it was composed; a `Config` is kept whole as config.yaml.
        fingerprint: hash of everything that determines the numbers.
        identity: what it is the hash of, `sources.fingerprint(identity)`; an import computes it again.
        sweep: its name; empty without one.
        commit: `id@commit` of the model's repository, or a hash of its files.
        dataset_commit: of the dataset.
        tokenizer_commit: of a tokenizer that is not the model's own.
        documents_hash: SHA-256 of the texts.
        non_embedding_params: S, counted from the module.
        total_params: every parameter, tied ones once.
        vocab_size: |V|, the entries that compete.
        num_documents: how many were read.
        device: where it ran.
        chat_template: SHA-256 of the template, of conversations.
        reference: the reference's name, with its precision where that is not float32.
        reference_commit: of the reference.
        reference_params: its parameters, tied ones once.
        forced: measured again although it had been measured.

    """

    config: CellConfig
    fingerprint: str
    non_embedding_params: int
    total_params: int
    vocab_size: int
    num_documents: int
    identity: Mapping[str, Any] = field(default_factory=dict)
    sweep: str = ""
    commit: str = ""
    dataset_commit: str = ""
    tokenizer_commit: str = ""
    documents_hash: str = ""
    device: str = ""
    chat_template: str = ""
    reference: str = ""
    reference_commit: str = ""
    reference_params: int = 0
    forced: bool = False

    @classmethod
    def of(cls, model: Any, corpus: Any, **further: Any) -> Facts:
        """The facts of a loaded model (`CausalModel`) and its texts (`Corpus`); further: the other attributes."""
        return cls(
            documents_hash=corpus.texts_hash,
            non_embedding_params=model.non_embedding_params,
            total_params=model.total_params,
            vocab_size=model.vocab_size,
            num_documents=len(corpus.document_ids),
            device=str(model.device),
            **further,
        )

    @property
    def title(self) -> str:
        """The run's name: `pythia-70m / wiki`."""
        return title(self.config.model.name, self.config.dataset.name)

    def tags(self) -> dict[str, str]:
        """The run's tags."""
        model = self.config.model
        tags = identity_tags(
            fingerprint=self.fingerprint,
            family=model.family,
            size=model.size,
            model=model.name,
            dataset=self.config.dataset.name,
            sweep=self.sweep,
        )
        tags |= {
            Tag.COMMIT: self.commit,
            Tag.DATASET_COMMIT: self.dataset_commit,
            Tag.TOKENIZER_COMMIT: self.tokenizer_commit,
            Tag.REFERENCE_COMMIT: self.reference_commit,
            Tag.DOCUMENTS_HASH: self.documents_hash,
            Tag.CHAT_TEMPLATE: self.chat_template,
            Tag.SOFTWARE: software(),
            Tag.FORCED: "true" if self.forced else "",
        }
        return {name: value for name, value in tags.items() if value}

    def params(self) -> dict[str, str]:
        """The run's params: what tells measurements apart, without defaults that say nothing."""
        params = _of_model(self.config.model) | _of_dataset(self.config.dataset)
        params |= {
            "candidates": self.config.candidates.value,
            "rank": self.config.rank.value,
            "total_params": self.total_params,
            "vocab_size": self.vocab_size,
            "documents": self.num_documents,
            "device": self.device,
            "reference": self.reference,
            "reference_params": self.reference_params,
        }
        return {name: str(value) for name, value in params.items() if value}

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


def identity_tags(*, fingerprint: str, family: str, size: str, model: str, dataset: str, sweep: str) -> dict[str, str]:
    """The tags by which a measurement is found."""
    return {
        Tag.KIND: Kind.MEASUREMENT,
        Tag.FINGERPRINT: fingerprint,
        Tag.FAMILY: family,
        Tag.SIZE: size,
        Tag.MODEL: model,
        Tag.DATASET: dataset,
        Tag.SWEEP: sweep,
    }


def software() -> str:
    """What measures now: `rbptrack 0.1.0, scoring 7, torch 2.13.0, transformers 5.23.0`."""
    versions = [f"{name} {version(name)}" for name in ("torch", "transformers")]
    return ", ".join([f"rbptrack {version('rbptrack')}", f"scoring {SCORING_VERSION}", *versions])


def _of_model(model: ModelConfig) -> dict[str, Any]:
    dtype = "tf32" if model.tf32 else model.dtype.value
    return {
        "repo": model.repo,
        "gguf": model.gguf,
        "revision": model.revision,
        "seed": model.seed,
        "training_tokens": model.training_tokens,
        "tokenizer": model.tokenizer,
        "dtype": dtype,
    }


def _of_dataset(dataset: DatasetConfig) -> dict[str, Any]:
    params: dict[str, Any] = {
        "dataset_repo": dataset.repo,
        "dataset_config": dataset.config,
        "split": dataset.split,
        "fields": ", ".join(dataset.fields) if dataset.fields != ["text"] else "",
        "selection": _selection(dataset),
        "chat": "true" if dataset.chat else "",
        "sequence": dataset.sequence.value,
        "seq_len": dataset.seq_len,
    }
    if dataset.sequence is SequenceRule.slide:
        params["context"] = dataset.context
    return params


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
