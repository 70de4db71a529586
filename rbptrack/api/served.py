"""Measure a model on a vLLM server."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import compact
from rbptrack.config.check import check_server_address
from rbptrack.config.schema import Config, EngineConfig, ModelConfig
from rbptrack.measurement.describe import describe
from rbptrack.measurement.record import MeasurementRecord
from rbptrack.sources.pin import pin_model
from rbptrack.sources.server import ServedModel, find_served_model
from rbptrack.sweep.loaded import measure_loaded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.engine import Ranked


@dataclass(frozen=True)
class ServedOrigin:
    """A model on a server, and the repository or folder that its config was read from.

    Attributes:
        origin: the options of the model that name it and its server.
        identity: the commit of the repository, or the hash of the folder's files.
        architecture: the transformers config of the model.
        found: what the server said.

    """

    origin: dict[str, str]
    identity: str
    architecture: Any
    found: ServedModel


def find_served(tokenizer: Any, server: str, server_name: str) -> ServedOrigin:
    """Find the model of a tokenizer on a server. Raises BadInput if this is not possible."""
    from rbptrack.models.architecture import load_config, vocab_size

    source = str(tokenizer.name_or_path)
    if not source:
        raise BadInput("tokenizer has no name: load it from the repository or folder of the model on the server")
    check_server_address(server, EngineConfig.key_variable)
    key = "path" if Path(source).is_dir() else "repo"
    origin = {key: source, "server": server, "server_name": server_name}
    model = ModelConfig(**origin)  # type: ignore[arg-type]  # these fields are texts
    pinned = pin_model(model)
    architecture = load_config(pinned)
    found = find_served_model(model, EngineConfig(), vocab_size(architecture))
    return ServedOrigin(origin, pinned.identity, architecture, found)


def measure_served(
    folder: Path,
    served: ServedOrigin,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    config: Config,
    *,
    show_bar: bool,
) -> tuple[Ranked, MeasurementRecord]:
    """Measure a corpus with a model on a server. Writes the ranks and the record into a folder."""
    from rbptrack.engine import Served
    from rbptrack.models.architecture import vocab_size
    from rbptrack.models.describe import describe_architecture
    from rbptrack.models.parameters import count_parameters
    from rbptrack.models.tokenizer_rules import rules_hash

    began = time.time()
    parameters = count_parameters(served.architecture)
    config.model.size = config.model.size or compact(parameters.non_embedding)
    description = describe(
        config, commit=served.identity, tokenizer_rules=rules_hash(tokenizer), texts=corpus.texts_hash
    )
    fields = {**describe_architecture(served.architecture, parameters), **served.found.facts(), "split": ""}
    engine = Served(config.model, served.found, corpus, vocab_size(served.architecture), config.engine)
    return measure_loaded(
        folder, config, engine, corpus, tokenizer, lambda _: {**description, **fields}, began=began, show_bar=show_bar
    )
