"""Read the header of a GGUF file: the keys and tensors that it holds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rbptrack.base.errors import BadInput, first_line, shortened_list
from rbptrack.models.checkpoint import local_file
from rbptrack.models.quantised import silence_torchao
from rbptrack.sources import hub
from rbptrack.sources.pin import Pinned

_STRING_LISTS = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")
_COUNT_OFFSET = 16  # bytes before the number of keys in a file, an unsigned integer of 8 bytes
_MIN_BITS = 1.5  # of a weight in the smallest quantised format
_MAX_INTEGER = 2**31 - 1
_MAX_NAMES = 4  # the largest number of keys or tensors that an error names
_REMEDY = "give the original model instead of the GGUF file"


@dataclass(frozen=True)
class GgufHeader:
    """The header of a GGUF file.

    Attributes:
        path: the file.
        architecture: llama.cpp's name of the architecture, such as `qwen3`.
        values: the value of each key.
        tensors: the names of the tensors.

    """

    path: Path
    architecture: str
    values: dict[str, Any]
    tensors: tuple[str, ...]

    def has_tensor(self, suffix: str) -> bool:
        """Return whether the name of a tensor ends with `suffix`."""
        return any(name.endswith(suffix) for name in self.tensors)

    def refuse(self, fault: str, remedy: str = _REMEDY) -> BadInput:
        """Return an error about a fault that another file of the model may not have."""
        return BadInput(f"{self.path.name}: {fault}: {remedy}")


def gguf_path(pinned: Pinned) -> Path:
    """Return the path of the GGUF file of a pinned model. Downloads it if it is on the Hub and not cached."""
    path = local_file(pinned, pinned.gguf)
    if path is None and pinned.revision is not None:
        from huggingface_hub import hf_hub_download

        def download() -> str:
            return str(hf_hub_download(pinned.location, pinned.gguf, revision=pinned.revision))

        path = Path(hub.call_hub("model", pinned.location, pinned.requested, download))
    if path is None:
        raise BadInput(f"model.gguf={pinned.gguf}: there is no such file in {pinned.location}")
    return path


def read_gguf(path: Path) -> GgufHeader:
    """Read the header of a GGUF file. Raises BadInput if the file is damaged, or does not hold one whole model."""
    if find_spec("gguf") is None:  # transformers reads the header without it, but not the weights
        raise BadInput("model.gguf needs the package gguf: pip install 'rbptrack[gguf]'")
    status = path.stat()
    return _read_header(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=2)  # the header holds the vocabulary, which takes some 50 MB
def _read_header(path: Path, size: int, mtime_ns: int) -> GgufHeader:
    silence_torchao()
    try:
        from transformers.integrations.gguf.reader import read_gguf_metadata

        values, tensors = read_gguf_metadata(str(path), _STRING_LISTS)
        with path.open("rb") as file:
            file.seek(_COUNT_OFFSET)
            num_keys = int.from_bytes(file.read(8), "little")
    except OSError as error:
        raise BadInput(f"model.gguf: {path} cannot be read: {error.strerror}") from error
    except Exception as error:  # the reader raises what the damaged bytes lead to
        raise BadInput(f"model.gguf: {path} is damaged or not a GGUF file ({first_line(error)[:200]})") from error
    header = GgufHeader(path, str(values["general.architecture"]), values, tensors)
    if len(values) != num_keys or len(set(tensors)) != len(tensors):
        raise header.refuse("a key or a tensor appears twice")
    if values.get("general.type", "model") != "model":
        raise BadInput(f"{path.name} holds no model, but a part of one (general.type = {values['general.type']})")
    if values.get("split.count", 0) > 1:
        raise BadInput(
            f"{path.name} is one of {values['split.count']} parts of a model (split.count): join them with "
            "llama-gguf-split --merge"
        )
    return header


def check_gguf_size(header: GgufHeader, num_parameters: int) -> None:
    """Raise BadInput if a file is too small for the number of parameters that its keys ask for."""
    if num_parameters * _MIN_BITS > 8 * header.path.stat().st_size:
        raise BadInput(
            f"{header.path.name} is damaged: its keys ask for {num_parameters:,} parameters, but it holds less"
        )


def check_gguf_tensors(header: GgufHeader, module: Any) -> None:
    """Check that transformers loads each tensor of a GGUF file into `module`. Raises BadInput if it leaves out one."""
    from transformers import modeling_gguf_pytorch_utils as loader

    processor = loader.TENSOR_PROCESSORS.get(header.architecture, loader.TensorProcessor)(config={})
    names: Any = loader.get_gguf_hf_weights_map(module, processor)
    unused = [name for name in header.tensors if name not in names and name.removesuffix(".weight") not in names]
    unused = [name for name in unused if name != "rope_freqs.weight"]  # `_rope_of_factors` has used it
    if unused:
        listed = shortened_list(sorted(unused), limit=_MAX_NAMES)
        raise header.refuse(f"transformers does not use {len(unused)} of its tensors ({listed})")


def gguf_type(header: GgufHeader) -> str:
    """Return the quantisation of a GGUF file, such as `Q4_K_M`, from its header.

    If the header does not name it, the function returns the type that most of the weights have.
    """
    from gguf import GGUFReader, LlamaFileType

    with suppress(KeyError, ValueError):  # not in the header, or not known to the installed version of gguf
        return LlamaFileType(header.values["general.file_type"]).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    sizes: Counter[str] = Counter()
    for tensor in GGUFReader(header.path).tensors:
        sizes[tensor.tensor_type.name] += int(tensor.n_elements)
    return sizes.most_common(1)[0][0]


class Keys:
    """The keys of a file that have one prefix. Each method takes a key, and remembers that it was used.

    Args:
        header: the header of the file.
        prefix: the prefix, such as `llama.`, which is left out of the names of keys.
        remedy: what to do if a key has a wrong value.

    """

    def __init__(self, header: GgufHeader, prefix: str, remedy: str = _REMEDY) -> None:
        self.header = header
        self._prefix = prefix
        self._remedy = remedy
        self._used: set[str] = set()

    def value(self, name: str, default: Any = None) -> Any:
        self._used.add(self._prefix + name)
        return self.header.values.get(self._prefix + name, default)

    def integer(self, name: str, default: int | None = None, *, limit: int = _MAX_INTEGER) -> int:
        """Return a whole number from 1 to `limit`. Raises BadInput if it is none, or is missing without a default."""
        value = self.value(name, default)
        if type(value) is not int or not 1 <= value <= limit:
            raise self.wrong(name, f"one whole number from 1 to {limit:,}")
        return value

    def number(self, name: str, default: float | None = None, *, above: float = 0) -> float:
        """Return a number above `above`. Raises BadInput if it is missing without a default, or of another kind."""
        value = self.value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < math.inf:
            raise self.wrong(name, f"a number above {above:g}")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.value(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def wrong(self, name: str, expected: str) -> BadInput:
        """Return the error for a key with a wrong value, or without a value."""
        value = self.header.values.get(self._prefix + name)
        found = "is missing" if value is None else f"is {str(value)[:60]}"
        return self.refuse(f"{self._prefix}{name} {found}, expected {expected}")

    def refuse(self, fault: str) -> BadInput:
        return self.header.refuse(fault, self._remedy)

    def check_all_used(self, allowed_values: Mapping[str, object], no_effect: Collection[str]) -> None:
        """Raise BadInput if a key was not taken and may change the numbers.

        Args:
            allowed_values: keys that are not supported, and the value with which each has no effect.
            no_effect: keys that change nothing.

        """
        for name, allowed in allowed_values.items():
            if self._prefix + name not in self._used and self.value(name, allowed) != allowed:
                raise self.wrong(name, f"no such key, or {allowed}")
        known = self._used | {self._prefix + name for name in no_effect}
        left_over = [name for name in self.header.values if name.startswith(self._prefix) and name not in known]
        if left_over:
            listed = shortened_list(sorted(left_over), limit=_MAX_NAMES)
            raise self.refuse(f"rbptrack does not know the meaning of {listed}")
