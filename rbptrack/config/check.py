"""Check the values of a config against rules that a type cannot express.

The command line and the Python API use the same checks.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rbptrack.base.errors import BadInput
from rbptrack.base.files import read_small
from rbptrack.base.secrets import is_secret, names_a_secret, refuse_password
from rbptrack.config.keys import dotted_items
from rbptrack.config.paths import user_path
from rbptrack.config.schema import Candidates, Config, DatasetConfig, ModelConfig, Rank, SequenceRule

MAX_NAME_LENGTH = 200
"""The largest number of characters in the name of a family, size, dataset, sweep or experiment."""

MIN_SEQ_LEN = 2
"""The smallest number of tokens of a sequence: one token to read and one to rank."""

_RESERVED_SBATCH_OPTIONS = ("array", "open-mode", "output", "parsable", "signal", "test-only", "wait", "wrap")

MAX_REQUESTS = 256
"""The largest number of requests that are sent to a server at once."""

_MAX_THREADS = 1024  # more threads do not help, and operating systems may refuse to start them


def check(config: Config) -> None:
    """Check the values of a config. Their types must be right already.

    Raises BadInput if a value is outside its range, two values contradict each other, or a key names a secret.
    """
    refuse_secrets(asdict(config))
    _check_model(config.model, "model")
    _check_dataset(config.dataset)
    _check_reference(config)
    ks = config.k.values
    if not ks or not all(isinstance(k, int) and k >= 1 for k in ks):  # OmegaConf accepts a list of lists
        raise BadInput(f"k must be between 1 and the vocabulary's size; got {', '.join(map(str, ks)) or 'no k'}")
    _check_minima(config.engine, "engine", batch_tokens=0, chunk_tokens=0, threads=0)
    if config.engine.threads > _MAX_THREADS:
        raise BadInput(f"engine.threads must be at most {_MAX_THREADS}; got {config.engine.threads}")
    _check_minima(config.engine, "engine", requests=0, timeout=1, deadline=0)
    if config.engine.requests > MAX_REQUESTS:
        raise BadInput(f"engine.requests must be at most {MAX_REQUESTS}; got {config.engine.requests}")
    _check_server(config)
    _check_sbatch_options(config.launch.options)
    if config.sweep:
        check_name("sweep", config.sweep)
    check_store(config.tracking.uri, config.tracking.experiment)


def _check_sbatch_options(options: Mapping[str, str]) -> None:
    """Check the names and values of options for sbatch. sbatch also accepts the beginning of a name."""
    for name, value in options.items():
        if not re.fullmatch(r"[a-z][a-z-]+", name):
            raise BadInput(f"launch.options.{name}: give the long name of an option of sbatch, such as partition")
        if any(reserved.startswith(name) for reserved in _RESERVED_SBATCH_OPTIONS):
            raise BadInput(f"launch.options.{name} cannot be set, because rbptrack sets it for its array of jobs")
        if not value.isprintable():
            raise BadInput(f"launch.options.{name} must be one line without control characters; got {value[:60]!r}")


def check_store(uri: str, experiment: str) -> None:
    """Check the address of a tracking store and the name of its experiment.

    Raises BadInput if the address is not a text or contains a password, or the name is not valid.
    """
    if not isinstance(uri, str):
        raise BadInput(f"tracking.uri must be a text; got {str(uri)[:60]!r}")
    if experiment:
        check_name("tracking.experiment", experiment)
    refuse_password(uri)


def check_name(key: str, name: str) -> None:
    """Check a name that is used in the store and in paths. `key` is its configuration key, such as `model.family`.

    Raises BadInput if the name is not a text, is empty, is longer than 200 characters, or contains control characters.
    """
    if not isinstance(name, str):
        raise BadInput(f"{key} must be a text; got {str(name)[:60]!r}")
    if not name.strip():
        raise BadInput(f"{key}= is empty: give a name, such as {key}=mine")
    if len(name) > MAX_NAME_LENGTH:
        raise BadInput(f"{key} must have at most {MAX_NAME_LENGTH} characters; got {len(name)}: {name[:40]!r}...")
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in name):
        raise BadInput(f"{key} must not contain control characters; got {name[:60]!r}")


def refuse_secrets(values: dict[str, Any]) -> None:
    """Raise BadInput if a key of nested dictionaries names a secret, such as `token`, or a value looks like one.

    The config is stored with each measurement, and others can read it there.
    """
    for key, value in dotted_items(values):
        name = key.rpartition(".")[2]
        elements = value if isinstance(value, list) else [value]
        if key != "tracking.uri" and any(is_secret(name, str(element)) for element in elements):
            raise BadInput(
                f"{key}: a config must not contain a {name if names_a_secret(name) else 'secret'}, because each "
                "measurement stores it. Export an environment variable, such as HF_TOKEN; jobs inherit it"
            )


def _check_model(model: ModelConfig, section: str) -> None:
    if bool(model.repo) == bool(model.path):
        raise BadInput(
            f"{section} needs either {section}.repo (a repository of the Hub) or {section}.path (a folder); "
            f"got {section}.repo={model.repo!r} and {section}.path={model.path!r}"
        )
    check_name(f"{section}.family", model.family)
    if model.size:
        check_name(f"{section}.size", model.size)
    check_name(f"{section}.revision", model.revision)
    if model.gguf and not model.gguf.lower().endswith(".gguf"):
        raise BadInput(f"{section}.gguf must name a file that ends in .gguf; got {model.gguf!r}")
    _check_minima(model, section, seed=0, training_tokens=0)
    if model.chat_template:
        template = read_small(user_path(model.chat_template), f"{section}.chat_template")
        if not template.strip():
            raise BadInput(f"{section}.chat_template: {model.chat_template} is empty")


def _check_server(config: Config) -> None:
    """Check that a model that runs on a server is measured only as a server allows it."""
    model = config.model
    if config.reference is not None and config.reference.server:
        raise BadInput("reference.server cannot be used: a server does not return whole distributions")
    if not model.server:
        for name in ("server_name", "server_dtype"):
            if getattr(model, name):
                raise BadInput(f"model.{name} needs model.server, the address of the server")
        return
    check_server_address(model.server, config.engine.key_variable)
    local = ModelConfig()
    for name in ("gguf", "dtype", "pickles", "device", "device_map", "max_memory", "attention"):
        if getattr(model, name) != getattr(local, name):
            raise BadInput(
                f"model.{name} is for models that run here. Set it where you start the server, and leave it out"
            )
    if config.rank is Rank.strict:
        raise BadInput("rank=strict needs the number of ties, which a server does not return. Leave out rank=")
    if config.candidates is Candidates.tokenizer:
        raise BadInput("candidates=tokenizer cannot be used: a server ranks among the whole vocabulary")
    if config.reference is not None:
        raise BadInput("reference= cannot be used: a server does not return the whole distributions to compare")


def check_server_address(address: str, key_variable: str) -> None:
    """Raise BadInput if the address of a server is not a web address, or may hold a password."""
    if not isinstance(address, str) or not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#@]*)?", address):
        raise BadInput(
            "model.server must be an address without a password, such as http://host:8000. The server's key is read "
            f"from the environment variable {key_variable} (engine.key_variable)"
        )


def _check_dataset(dataset: DatasetConfig) -> None:
    origins = [name for name in ("repo", "path", "files") if getattr(dataset, name)]
    if len(origins) != 1 and origins != ["repo", "files"]:
        raise BadInput(
            "dataset needs one of dataset.repo (a repository of the Hub), dataset.path (a folder) and dataset.files "
            f"(files or patterns); got {', '.join(origins) or 'none'}"
        )
    check_name("dataset.name", dataset.name)
    check_name("dataset.revision", dataset.revision)
    _check_minima(dataset, "dataset", seq_len=MIN_SEQ_LEN, documents=0, head=0, longer_than=0, seed=0)
    if dataset.sequence is SequenceRule.slide and not 1 <= dataset.context < dataset.seq_len:
        raise BadInput(
            f"dataset.context must be between 1 and seq_len - 1 = {dataset.seq_len - 1}; got {dataset.context}"
        )
    if not dataset.fields:
        raise BadInput("dataset.fields is empty: name at least one field to read, such as dataset.fields=text")
    if dataset.chat and len(dataset.fields) < 2:
        raise BadInput(
            "dataset.chat=true needs a prompt and an answer, such as dataset.fields=question,answer; "
            f"got {dataset.fields}"
        )


def _check_reference(config: Config) -> None:
    reference = config.reference
    if reference is None:
        return
    _check_model(reference, "reference")
    if config.model.device_map or reference.device_map:
        raise BadInput(
            "with reference=, both models run on one device: leave out model.device_map and reference.device_map"
        )
    if reference.device not in ("auto", config.model.device):
        raise BadInput(
            f"reference.device={reference.device}: the reference runs on the device of the model. Set "
            "model.device, and leave out reference.device"
        )


def _check_minima(values: Any, section: str, **minima: int) -> None:
    """Raise BadInput if a value in a section of the config is below its minimum, infinite or NaN."""
    for name, minimum in minima.items():
        value = getattr(values, name)
        if not minimum <= value < math.inf:
            raise BadInput(f"{section}.{name} must be a number and at least {minimum}; got {value}")
