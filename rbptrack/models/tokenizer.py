"""A model's tokenizer: loaded by transformers, and held to what its files describe."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput, RbptrackError, first_line, is_panic, shortened
from rbptrack.models.architecture import load_config, loaded, reason
from rbptrack.models.checkpoint import file_of
from rbptrack.sources.pin import Pinned

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

_FILE = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_FLAGS = ("add_bos_token", "add_eos_token")  # of tokenizer_config.json
_OBEYED_FLAGS = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer", "GPTNeoXTokenizer")
"""The classes that wrote their template by the flags, whatever tokenizer.json said, before transformers 5."""
_REMEDY = "; model.tokenizer=ORG/NAME takes another's"
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens")  # of tokenizer.json
_PROBE = (
    "In 2026 it was 12345, 3.14159265 and 1,000,000; 0x7F.\n\n\tdef f(x):\n        return x  +   1    # two\r\n"
    "don't DON'T we'll Ångström naïve cafe\u0301 İstanbul ﬁn straße Ελληνικά русский עברית العربية हिन्दी ไทย "
    "日本語と中文，한국어 🙂👩‍👩‍👧 \u00a0\u200b\ufeff\u3000 x²½ ~!@#$%^&*()_+{}|:\"<>?[]\\;',./ "
    "HTTPServer snake_case   "
)
"""A text on which two tokenizers with other rules give other ids: digits, spaces, line breaks, accents, scripts."""
_DRAWS = ("dropout", "nbest_size")  # of a model: it cuts a text otherwise each time
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # a token that is one byte
_PROBED_TOKENS = 50  # of the added tokens
_PRE_OF_GPT2 = (
    *("gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum"),
    *("mpt", "olmo", "jais", "trillion", "granite-docling"),
)
"""What `tokenizer.ggml.pre` of a GGUF file may be if llama.cpp splits texts as GPT-2 does."""


def load_tokenizer(source: Pinned) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer at a pinned source, with the rules that its files describe.

    transformers rebuilds a tokenizer by its class and then drops rules of tokenizer.json, and `add_bos_token` of
    tokenizer_config.json. If the rules differ from the file's, the file is used. A first or last token that
    tokenizer_config.json asks for is added. Dropout, which makes each encoding of a text another one, is switched off.

    Raises:
        BadInput: the tokenizer is missing or damaged, has no fast version, or cannot be read from the hub, or its
            files contradict each other.

    """
    tokenizer = _by_class(source)
    config = _config_of(source)
    file = None if source.gguf else file_of(source, _file_name(config))
    try:
        return _held_to_files(tokenizer, source, config, file)
    except RbptrackError:
        raise
    except BaseException as error:  # the libraries raise what they like, and Rust no Exception
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise BadInput(
            f"the tokenizer of {source.location} cannot be used: {reason(error, source)}{_REMEDY}"
        ) from error


def _by_class(source: Pinned) -> PreTrainedTokenizerBase:
    """The tokenizer as transformers loads it by its class; by its tokenizer.json if the class cannot be loaded."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        tokenizer: PreTrainedTokenizerBase = loaded("tokenizer", source, AutoTokenizer.from_pretrained, _REMEDY)
    except BadInput:
        if file_of(source, "config.json") is not None:
            load_config(source)  # transformers reads it first, and it may be the reason
        if source.gguf or file_of(source, _FILE) is None or "auto_map" in _config_of(source):
            raise
        tokenizer = loaded("tokenizer", source, PreTrainedTokenizerFast.from_pretrained, _REMEDY)
    return tokenizer


def _held_to_files(
    tokenizer: PreTrainedTokenizerBase, source: Pinned, config: dict[str, Any], file: Path | None
) -> PreTrainedTokenizerBase:
    """Return a tokenizer that follows the rules of its files. Raises BadInput if they are incomplete or damaged."""
    if file is not None:
        tokenizer = _with_rules_of(file, tokenizer, source)
    check_fast(tokenizer, f"the tokenizer of {source.location}")
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # if its files are missing, transformers makes one up
        raise BadInput(f"{source.location} has no tokenizer{_REMEDY}")
    if source.gguf:
        _check_gguf(source)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    if file is not None:
        _check_flags(source, config, tokenizer)
    _check_vocabulary(source, tokenizer)
    _add_ends(source, config, tokenizer)
    return tokenizer


def _check_vocabulary(source: Pinned, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a vocabulary that gives one id to several tokens, or that lacks the merges by which it was made."""
    ids = tokenizer.get_vocab()
    if len(set(ids.values())) < len(ids):
        names: dict[int, str] = {}
        for name, number in ids.items():
            other = names.setdefault(number, name)
            if other != name:
                raise BadInput(
                    f"the tokenizer of {source.location} is damaged: {other!r} and {name!r} both have the id {number}"
                )
    if '"merges":[]' not in tokenizer.backend_tokenizer.to_str():
        return
    added = tokenizer.get_added_vocab()
    merged = [name for name in ids if len(name) > 1 and name not in added and not _BYTE.fullmatch(name)]
    if merged:
        raise BadInput(
            f"the tokenizer of {source.location} is damaged: its list of merges is empty, though {len(merged):,} "
            f"tokens need them ({shortened(sorted(merged), limit=3)})"
        )


def check_given(tokenizer: Any) -> None:
    """Check that an object is a fast tokenizer with the rules of the files that it was loaded from.

    A tokenizer with another vocabulary than those files is taken as it is: it was trained or changed on purpose.

    Raises:
        BadInput: the object cannot be used, with the reason and a remedy.

    """
    check_fast(tokenizer, "tokenizer")
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise BadInput(
            f"tokenizer knows no token ({tokenizer.name_or_path or 'no name'}): transformers returns such a one for a "
            "folder without tokenizer files; load it from a folder that has tokenizer.json"
        )
    for name in _DRAWS:
        if getattr(tokenizer.backend_tokenizer.model, name, None):
            raise BadInput(
                f"tokenizer has {name}, which makes each encoding of a text another one: set "
                f"tokenizer.backend_tokenizer.model.{name} = None"
            )
    file = _file_beside(tokenizer, _FILE)
    if file is None:
        return
    own = _read(file)
    if own.get_vocab() != tokenizer.get_vocab():
        return
    on_purpose = 'If that is meant, set tokenizer.name_or_path = ""'
    if _other_ids(tokenizer, own, special=False):
        differing = " and ".join(_differences(tokenizer.backend_tokenizer, own)) or "rules"
        raise BadInput(
            f"tokenizer cuts texts otherwise than its file {file} ({differing}): load it with "
            f"PreTrainedTokenizerFast.from_pretrained. {on_purpose}"
        )
    config_file = _file_beside(tokenizer, _CONFIG)
    config = json.loads(config_file.read_text("utf-8")) if config_file else {}
    wanted = tokenizer.bos_token_id
    asked = bool(config.get("add_bos_token")) or own.encode("").ids[:1] == [wanted]
    if asked and wanted is not None and tokenizer("a")["input_ids"][:1] != [wanted]:
        raise BadInput(
            f"tokenizer does not begin a text with {tokenizer.bos_token}, as its files in {file.parent} ask: set "
            f"tokenizer.add_bos_token = True. {on_purpose}"
        )


def check_fast(tokenizer: Any, what: str) -> None:
    """Raise BadInput if an object is not a fast tokenizer. Character offsets need a fast one."""
    from transformers import PreTrainedTokenizerBase

    if isinstance(tokenizer, type):
        name = tokenizer.__name__
        raise BadInput(f"{what} is the class {name}: give a tokenizer, such as {name}.from_pretrained(FOLDER)")
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise BadInput(f"{what} is a {type(tokenizer).__name__}: give a fast tokenizer of transformers")
    if tokenizer.is_fast is not True:
        raise BadInput(f"{what} has no fast version ({type(tokenizer).__name__}), which character offsets need")


def rules_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 (hex) of everything that decides how a tokenizer cuts texts, and which of its tokens are special."""
    from tokenizers import Tokenizer

    backend = tokenizer.backend_tokenizer
    text = backend.to_str()
    if backend.truncation or backend.padding:  # set by every call, and not used here
        copy = Tokenizer.from_str(text)
        copy.no_truncation()
        copy.no_padding()
        text = copy.to_str()
    special = (sorted(tokenizer.all_special_ids), tokenizer.eos_token_id, backend.encode_special_tokens)
    return hashlib.sha256(f"{text}\0{special!r}".encode()).hexdigest()


def _config_of(source: Pinned) -> dict[str, Any]:
    """tokenizer_config.json; of a GGUF file, its flags for the first and last token."""
    if source.gguf:
        fields = _gguf_fields(source)
        return {flag: fields[f"ggml.{flag}"] for flag in _FLAGS if f"ggml.{flag}" in fields}
    path = file_of(source, _CONFIG)
    if path is None:
        return {}
    try:
        config = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged or not JSON ({first_line(error)})") from error
    return config if isinstance(config, dict) else {}


def _file_name(config: dict[str, Any]) -> str:
    """The name of the file that transformers reads in place of tokenizer.json, if the config names versions of it."""
    from transformers.tokenization_utils_base import get_fast_tokenizer_file

    versions = config.get("fast_tokenizer_files")
    return get_fast_tokenizer_file(versions) if versions else _FILE


def _read(file: Path) -> Tokenizer:
    """The tokenizer in a tokenizer.json, without dropout, truncation and padding."""
    from tokenizers import Tokenizer

    try:
        own = Tokenizer.from_file(str(file))
    except Exception as error:  # Rust raises Exception
        raise BadInput(f"{file} is not a tokenizer: {first_line(error)}") from error
    _switch_off_draws(own)
    own.no_truncation()
    own.no_padding()
    return own


def _switch_off_draws(backend: Tokenizer) -> None:
    """Let a model that draws among the ways to cut a text (BPE's dropout, Unigram's sampling) take the best one."""
    for name in _DRAWS:
        if getattr(backend.model, name, None):
            setattr(backend.model, name, None)


def _with_rules_of(file: Path, tokenizer: PreTrainedTokenizerBase, source: Pinned) -> PreTrainedTokenizerBase:
    """The tokenizer if it has the rules of its tokenizer.json, else one that is read from that file.

    Raises:
        BadInput: the rules still differ.

    """
    from transformers import PreTrainedTokenizerFast

    own = _read(file)
    if not tokenizer.is_fast or tokenizer.backend_tokenizer.to_str() != own.to_str():
        by_class = tokenizer
        tokenizer = loaded("tokenizer", source, PreTrainedTokenizerFast.from_pretrained, _REMEDY)
        for role in tokenizer.SPECIAL_TOKENS_ATTRIBUTES:
            name = getattr(by_class, role)  # GPT-2's end of text is named by its class only
            if name and getattr(tokenizer, role) is None and own.token_to_id(name) is not None:
                setattr(tokenizer, role, name)
    _switch_off_draws(tokenizer.backend_tokenizer)
    for special in (False, True):
        text = _other_ids(tokenizer, own, special=special)
        if text:
            differing = " and ".join(_differences(tokenizer.backend_tokenizer, own)) or "its rules"
            raise BadInput(
                f"the tokenizer of {source.location} cannot be loaded as its tokenizer.json describes it: transformers "
                f"changes {differing}, and {text!r:.60} gets other ids{_REMEDY}"
            )
    return tokenizer


def _differences(backend: Tokenizer, own: Tokenizer) -> list[str]:
    """The parts of tokenizer.json in which a tokenizer differs from the file, for messages."""
    given = json.loads(backend.to_str())
    described = json.loads(own.to_str())
    return [part for part in _PARTS if given[part] != described[part]]


def _other_ids(tokenizer: PreTrainedTokenizerBase, own: Tokenizer, *, special: bool) -> str:
    """Return a text that a tokenizer encodes differently from its file; empty if all probes agree."""
    own.encode_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens
    for text in _probes(own):
        ids = tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        if ids != own.encode(text, add_special_tokens=special).ids:
            return text
    return ""


def _probes(own: Tokenizer) -> Iterator[str]:
    """Yield texts that show a tokenizer's rules: the fixed text, its lines, and its added tokens within words."""
    yield from ("", "a", " a", _PROBE, *_PROBE.split("\n"))
    added = [token.content for _, token in sorted(own.get_added_tokens_decoder().items())]
    for name in added[:_PROBED_TOKENS]:
        yield f"a {name} b{name}c  {name}\n{name}{name} {name.lower()}"


def _check_flags(source: Pinned, config: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse files that contradict each other about the space before a text."""
    wanted = config.get("add_prefix_space")
    described = json.loads(tokenizer.backend_tokenizer.to_str())["pre_tokenizer"]
    if not isinstance(wanted, bool) or not described or described["type"] != "ByteLevel":
        return
    if described["add_prefix_space"] != wanted:
        raise BadInput(
            f"the files of the tokenizer of {source.location} contradict each other: add_prefix_space is {wanted} in "
            f"{_CONFIG} and {not wanted} in {_FILE}. Correct one of them"
        )


def _add_ends(source: Pinned, config: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
    """Let a tokenizer begin and end texts with the tokens that its files ask for.

    transformers 4 did so: it wrote a template of its own for `add_bos_token` and `add_eos_token`. transformers 5
    ignores both if there is a tokenizer.json.

    Raises:
        BadInput: the files name no such token, or contradict each other.

    """
    backend = tokenizer.backend_tokenizer
    given = dict(zip(_FLAGS, _ends(backend), strict=True))
    names = {"add_bos_token": tokenizer.bos_token, "add_eos_token": tokenizer.eos_token}
    wanted: dict[str, str] = {}
    for flag, found in given.items():
        name = names[flag]
        asked = config.get(flag)
        number = backend.token_to_id(name) if name else None
        if asked and number is None:
            raise BadInput(f"the files of the tokenizer of {source.location} ask for {flag} and name no such token")
        obeyed = str(config.get("tokenizer_class", "")).removesuffix("Fast") in _OBEYED_FLAGS
        if (asked and found not in ([], [number])) or (asked is False and found and obeyed):
            raise BadInput(
                f"the files of the tokenizer of {source.location} contradict each other: {flag} is {asked} in "
                f"{_CONFIG}, and {_FILE} has {tokenizer.convert_ids_to_tokens(found)} there. Correct one of them"
            )
        if name and (asked or found):
            wanted[flag] = name
    if any(not given[flag] for flag in wanted):
        _begin_and_end(backend, wanted.get("add_bos_token", ""), wanted.get("add_eos_token", ""))


def _ends(backend: Tokenizer) -> tuple[list[int], list[int]]:
    """The special tokens with which a tokenizer begins and ends a text."""
    for text in ("a", "1", ".", "一"):  # it may not know the letter
        plain = backend.encode(text, add_special_tokens=False).ids
        whole = backend.encode(text).ids
        for count in range(len(whole)):
            if plain and whole[count : count + len(plain)] == plain:
                return whole[:count], whole[count + len(plain) :]
    return [], []


def _begin_and_end(backend: Tokenizer, first: str, last: str) -> None:
    """Let a tokenizer begin texts with one token and end them with another; empty for none."""
    from tokenizers import processors

    single = " ".join(filter(None, (first, "$A", last)))
    names = dict.fromkeys(filter(None, (first, last)))
    tokens = [(name, backend.token_to_id(name)) for name in names]
    template = processors.TemplateProcessing(single=single, pair=f"{single} $B:1", special_tokens=tokens)
    own = backend.post_processor
    keeps_own = isinstance(own, processors.ByteLevel)  # it trims offsets
    backend.post_processor = processors.Sequence([own, template]) if keeps_own else template


def _file_beside(tokenizer: PreTrainedTokenizerBase, name: str) -> Path | None:
    """A file of the folder or of the cached repository that a tokenizer in memory was loaded from."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    place = str(tokenizer.name_or_path or "")
    if not place:
        return None
    path = Path(place) / name
    if path.is_file():
        return path
    try:
        cached_file = try_to_load_from_cache(place, name)
    except HFValidationError:
        return None
    return Path(cached_file) if isinstance(cached_file, str) else None


def _gguf_fields(source: Pinned) -> dict[str, Any]:
    """What a GGUF file says of its tokenizer, without lists: `{"ggml.pre": "qwen2", ...}`."""
    import gguf

    path = file_of(source, source.gguf)
    if path is None:
        return {}
    fields = gguf.GGUFReader(path).fields
    single = {name: field for name, field in fields.items() if gguf.GGUFValueType.ARRAY not in field.types}
    beginning = "tokenizer."
    return {name.removeprefix(beginning): field.contents() for name, field in single.items() if beginning in name}


def _check_gguf(source: Pinned) -> None:
    """Refuse a byte-level vocabulary of a GGUF file whose rule for splitting texts transformers does not know."""
    try:
        from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS as KNOWN
    except ImportError:  # an older transformers, which splits all as GPT-2 does
        KNOWN = {}
    fields = _gguf_fields(source)
    rule = fields.get("ggml.pre")
    if fields.get("ggml.model") != "gpt2" or rule in KNOWN or rule in _PRE_OF_GPT2:
        return
    raise BadInput(
        f"{source.gguf} splits texts by the rule {rule!r} (tokenizer.ggml.pre), which transformers does not know: give "
        "the original tokenizer, model.tokenizer=ORG/NAME"
    )
