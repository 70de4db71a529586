"""Describe a measurement before it is made: its labels, keys and facts, from the configuration and what was pinned."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import Any

from omegaconf import OmegaConf

from rbptrack.config.schema import CellConfig, DatasetConfig, Dtype, ModelConfig, SequenceRule, TrackingConfig

SCORING_VERSION = 1
"""The version of the scoring code, a part of every fingerprint. Increase it if a change alters any measured number."""

TRANSFORMERS = "transformers"
"""The value of `engine` if transformers computed the scores in this process."""


def describe(
    config: CellConfig,
    *,
    commit: str,
    tokenizer_rules: str,
    texts: str,
    chat_template: str = "",
    reference_commit: str = "",
    engine: str = TRANSFORMERS,
) -> dict[str, Any]:
    """Return the labels, keys and facts of a measurement that are known before it is made, by field.

    All keys are among them, so `fingerprint` of the result is the measurement's. Batch and chunk sizes, device, paths
    and k are not keys, because they do not change the ranks.

    Args:
        config: the configuration of the cell.
        commit: a commit or hash that identifies the weights on every machine.
        tokenizer_rules: the hash of the rules by which the tokenizer splits texts.
        texts: the hash of what identifies the documents, and of the rules that select them.
        chat_template: the hash of the chat template that renders the documents; empty without one.
        reference_commit: a commit or hash that identifies the weights of the reference; empty without a reference.
        engine: what computes the scores.

    """
    model = config.model
    dataset = config.dataset
    fields: dict[str, Any] = {
        "family": model.family,
        "size": model.size,
        "seed": model.seed,
        "checkpoint": model.checkpoint_label,
        "training_tokens": model.training_tokens or None,
        "repo": model.repo,
        "folder": model.path,
        "gguf": model.gguf,
        "commit": commit,
        "dtype": precision(model),
        "tokenizer": model.tokenizer,
        "tokenizer_rules": tokenizer_rules,
        "chat_template": chat_template,
        "dataset": dataset.name,
        "dataset_repo": dataset.repo,
        "dataset_config": dataset.config,
        "split": dataset.split,
        "fields": ", ".join(dataset.fields) if dataset.fields != ["text"] else "",
        "selection": _describe_selection(dataset),
        "texts": texts,
        "group": dataset.group,
        "sequence": dataset.sequence.value,
        "seq_len": dataset.seq_len,
        "context": dataset.context if dataset.sequence is SequenceRule.slide else None,
        "candidates": config.candidates.value,
        "rank": config.rank.value,
        "scoring": SCORING_VERSION,
        "engine": engine,
        "software": software(),
    }
    if config.reference is not None:
        fields["reference"] = _reference_title(config.reference)
        fields["reference_commit"] = reference_commit
        fields["reference_dtype"] = precision(config.reference)
    return fields


def config_yaml(config: CellConfig) -> str:
    """Return a configuration as YAML. The address of the store is left out, because others do not need it."""
    tracking = getattr(config, "tracking", None)
    if isinstance(tracking, TrackingConfig):
        config = replace(config, tracking=replace(tracking, uri=""))  # type: ignore[call-arg]
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def precision(model: ModelConfig) -> str:
    """Return the precision of a model's forward pass. It is empty for a server, unless the user says it."""
    if model.server:
        return model.server_dtype.value if model.server_dtype else ""
    return model.dtype.value


def software() -> str:
    """Return the versions of the installed software: `rbptrack 0.1.0, torch 2.13.0, transformers 5.23.0`."""
    return ", ".join(f"{name} {version(name)}" for name in ("rbptrack", "torch", "transformers"))


def _reference_title(reference: ModelConfig) -> str:
    """Return the name of a reference, with its precision if that is not float32: `pythia-1b bfloat16`."""
    if reference.dtype is Dtype.float32:
        return reference.name
    return f"{reference.name} {reference.dtype.value}"


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
