"""What a cell measures, as its fingerprint: from its config when it is resolved, and from a run's params again."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rbptrack.config.schema import Candidates, CellConfig, DatasetConfig, KConfig, ModelConfig, Rank, SequenceRule
from rbptrack.corpus.documents import selection_identity
from rbptrack.sources.fingerprint import SCORING_VERSION, fingerprint
from rbptrack.sources.pin import Source
from rbptrack.tracking.params import VERSIONS, MeasurementParams

_WHERE = "dataset.where."
_OPTIONS = ("model.", "reference.", "dataset.", "candidates", "rank")


def identity(
    config: CellConfig,
    weights: str,
    texts: Source,
    tokenizer: str,
    prefix: Sequence[int] | None,
    *,
    holes: bool = False,
    reference: str = "",
    template: str = "",
) -> str:
    """Return the fingerprint of what a cell measures: batch and chunk sizes, device, paths and k are not in it.

    Args:
        config: the cell's.
        weights: the pinned model, its own tokenizer included.
        texts: the pinned dataset.
        tokenizer: the pinned tokenizer; counts where the config names one.
        prefix: what stands before windows, where that is not what version 0.1 put there.
        holes: whether ids that the tokenizer cannot name are left out, among which version 0.1 ranked.
        reference: the pinned reference; counts where the config names one.
        template: the hash of the chat template; counts where the config asks for one.

    """
    dataset = config.dataset
    parts = {
        "model": weights,
        **selection_identity(dataset, texts),
        "sequence": dataset.sequence.value,
        "seq_len": dataset.seq_len,
        "context": dataset.context if dataset.sequence is SequenceRule.slide else 0,
        **_precision(config.model),
        "scoring": SCORING_VERSION,
    }
    # Parts that only some measurements have: without them the fingerprint is what it was before they existed.
    parts |= {"tokenizer": tokenizer} if config.model.tokenizer else {}
    parts |= {"candidates": config.candidates.value} if config.candidates is not Candidates.vocabulary else {}
    parts |= {"rank": config.rank.value} if config.rank is not Rank.paper else {}
    parts |= {"prefix": list(prefix)} if prefix is not None else {}
    parts |= {"holes": "left out"} if holes else {}
    parts |= {"chat": template} if dataset.chat else {}
    parts |= {"reference": {"model": reference, **_precision(config.reference)}} if config.reference else {}
    return fingerprint(parts)


def _precision(model: ModelConfig) -> dict[str, str]:
    return {"dtype": model.dtype.value, "matmul": "tf32" if model.tf32 else "float32"}


def identities(params: Mapping[str, str]) -> Iterator[str] | None:
    """Return the fingerprints that a run's params may have; None where the params do not suffice.

    They are several only where its windows may have had a prefix, where its tokenizer may have had holes, or where its
    texts are local. The params do not suffice for what others computed or the Python API measured, with a tokenizer of
    its own, or by another version of the scoring.
    """
    needed = ("model.commit", "dataset.commit", "dataset.sampling", "dataset.sequence", "dataset.seq_len")
    if any(not params.get(key) for key in needed) or params.get("model.tokenizer"):
        return None
    if params.get(f"{VERSIONS}scoring", "") != str(SCORING_VERSION):
        return None
    try:
        config = _config(params)
        about = MeasurementParams.read(params)
        prefix = ast.literal_eval(about.prefix) if about.prefix else None
    except (OmegaConfBaseException, ValueError, SyntaxError):
        return iter(())  # no config can say this
    prefixes: list[list[int] | None] = [None]
    if config.dataset.sequence is SequenceRule.slide:
        prefixes += [[], *([prefix] if prefix else [[i] for i in range(about.vocab_size or 0)])]
    reference = params.get("reference.commit", "")
    # Earlier versions had one fingerprint for whole text files and for their lines.
    cuts = ("",) if config.dataset.repo else ("", "line", "paragraph")
    return (
        identity(
            config,
            params["model.commit"],
            Source("", None, params["dataset.commit"], cut=cut),
            "",
            before,
            holes=holes,
            reference=reference,
            template=about.chat_template or "",
        )
        for holes in ([False] if config.candidates is not Candidates.vocabulary else [False, True])
        for before in prefixes
        for cut in cuts
    )


def _config(params: Mapping[str, str]) -> CellConfig:
    base = CellConfig(ModelConfig("", ""), DatasetConfig("", split="", seq_len=1), KConfig([1]))
    base.reference = ModelConfig("", "") if params.get("reference.commit") else None
    config = OmegaConf.structured(base)
    for key, value in _known(params, config):
        OmegaConf.update(config, key, value)
    config.dataset.where = {k.removeprefix(_WHERE): v for k, v in params.items() if k.startswith(_WHERE)}
    return OmegaConf.to_object(config)  # type: ignore[return-value]


def _known(params: Mapping[str, str], config: DictConfig) -> Iterator[tuple[str, object]]:
    """Yield the options among params, as the config takes them."""
    for key, text in params.items():
        if key.startswith(_OPTIONS) and not key.startswith(_WHERE) and OmegaConf.select(config, key) is not None:
            yield key, ast.literal_eval(text) if text[:1] in ("[", "{") else text
