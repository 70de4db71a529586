"""Loads a model's tokenizer with transformers, and makes sure that it follows the rules in its files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput, first_line, shortened_list
from rbptrack.models import sentence_piece
from rbptrack.models.architecture import load_config
from rbptrack.models.border_tokens import add_border_tokens
from rbptrack.models.checkpoint import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, local_file
from rbptrack.models.from_pretrained import explained_errors, load_part
from rbptrack.models.gguf_file import gguf_path, read_gguf
from rbptrack.models.gguf_tokenizer import load_gguf_tokenizer
from rbptrack.models.sentence_piece import REMEDY
from rbptrack.sources.model_files import read_json_object
from rbptrack.sources.pin import Pinned

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

_SECTIONS = ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens")  # of tokenizer.json
_PROBE_TEXT = (
    "In 2026 it was 12345, 3.14159265 and 1,000,000; 0x7F.\n\n\tdef f(x):\n        return x  +   1    # two\r\n"
    "don't DON'T we'll Ångström naïve cafe\u0301 İstanbul ﬁn straße Ελληνικά русский עברית العربية हिन्दी ไทย "
    "日本語と中文，한국어 🙂👩‍👩‍👧 \u00a0\u200b\ufeff\u3000 x²½ ~!@#$%^&*()_+{}|:\"<>?[]\\;',./ "
    "HTTPServer snake_case   "
)
"""Digits, spaces, line breaks, accents and several scripts. Tokenizers with different rules encode them differently."""
_PROBE_TEXTS = ("", "a", " a", _PROBE_TEXT, *_PROBE_TEXT.split("\n"))
_RANDOM_OPTIONS = ("dropout", "nbest_size")  # options of a tokenizer's model that make each encoding of a text random
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # a token that is one byte
_MAX_PROBED_TOKENS = 50  # the largest number of added tokens that probe texts contain


def load_tokenizer(pinned: Pinned) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a pinned model, with the rules that its files describe.

    transformers rebuilds a tokenizer from its class. It can then lose rules of tokenizer.json and the flag
    `add_bos_token` of tokenizer_config.json. This function corrects both. If the rules differ from tokenizer.json, it
    reads the tokenizer from that file. If tokenizer_config.json asks for a first or last token, it adds the token. It
    also switches off dropout, which makes each encoding of a text random.

    Raises:
        BadInput: the tokenizer is missing or damaged, has no fast version, or cannot be read from the Hub, or its
            files contradict each other.

    """
    if pinned.gguf:
        return load_gguf_tokenizer(read_gguf(gguf_path(pinned)))
    _check_sentencepiece(pinned)
    tokenizer = _load_by_class(pinned)
    config = _read_config(pinned)
    file = local_file(pinned, _tokenizer_file_name(config))
    with explained_errors("tokenizer", pinned, REMEDY):
        return _check_and_correct_rules(tokenizer, pinned, config, file)


def _sentencepiece_file(pinned: Pinned) -> Path | None:
    """Return the file of a tokenizer's sentencepiece model on this machine, or None."""
    return next(filter(None, (local_file(pinned, name) for name in sentence_piece.FILES)), None)


def _check_sentencepiece(pinned: Pinned) -> None:
    """Raise BadInput if sentencepiece is needed to load a tokenizer and is not installed."""
    file = _sentencepiece_file(pinned)
    if file is not None and local_file(pinned, TOKENIZER_FILE) is None:
        sentence_piece.check_sentencepiece_installed(file)


def _load_by_class(pinned: Pinned) -> PreTrainedTokenizerBase:
    """Load the tokenizer by its class. If the class cannot be loaded, load it from its tokenizer.json."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        tokenizer: PreTrainedTokenizerBase = load_part("tokenizer", pinned, AutoTokenizer.from_pretrained, REMEDY)
    except BadInput:
        _check_sentencepiece(pinned)  # the files of a repository on the Hub are there only now
        if local_file(pinned, "config.json") is not None:
            load_config(pinned)  # transformers reads config.json first, so it may be the reason for the failure
        if local_file(pinned, TOKENIZER_FILE) is None or "auto_map" in _read_config(pinned):
            raise
        tokenizer = load_part("tokenizer", pinned, PreTrainedTokenizerFast.from_pretrained, REMEDY)
    return tokenizer


def _check_and_correct_rules(
    tokenizer: PreTrainedTokenizerBase, pinned: Pinned, config: dict[str, Any], file: Path | None
) -> PreTrainedTokenizerBase:
    """Return a tokenizer that follows the rules in its files. Raises BadInput if the files are incomplete or damaged.

    `config` is the content of tokenizer_config.json, and `file` is the path of tokenizer.json, if there is one.
    """
    if file is not None:
        tokenizer = _with_rules_of_file(file, tokenizer, pinned)
    check_fast(tokenizer, f"the tokenizer of {pinned.location}")
    sentencepiece_file = _sentencepiece_file(pinned)
    if file is None and sentencepiece_file is not None:
        sentence_piece.follow_sentencepiece(tokenizer, sentencepiece_file, [*_PROBE_TEXTS])
    # If the files are missing, transformers returns a tokenizer that has special tokens only.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise BadInput(f"{pinned.location} has no tokenizer{REMEDY}")
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    if file is not None:
        _check_prefix_space(pinned, config, tokenizer)
    _check_vocabulary(pinned, tokenizer)
    add_border_tokens(pinned, config, tokenizer)
    return tokenizer


def _check_vocabulary(pinned: Pinned, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise BadInput if a vocabulary gives one id to several tokens, or if its list of merges is missing."""
    ids = tokenizer.get_vocab()
    if len(set(ids.values())) < len(ids):
        names: dict[int, str] = {}
        for name, token_id in ids.items():
            other = names.setdefault(token_id, name)
            if other != name:
                raise BadInput(
                    f"the tokenizer of {pinned.location} is damaged: {other!r} and {name!r} both have the id {token_id}"
                )
    if '"merges":[]' not in tokenizer.backend_tokenizer.to_str():
        return
    added = tokenizer.get_added_vocab()
    unreachable = [name for name in ids if len(name) > 1 and name not in added and not _BYTE.fullmatch(name)]
    if unreachable:
        raise BadInput(
            f"the tokenizer of {pinned.location} is damaged: its list of merges is empty, though {len(unreachable):,} "
            f"tokens need merges ({shortened_list(sorted(unreachable), limit=3)})"
        )


def check_tokenizer(tokenizer: Any) -> None:
    """Check a tokenizer object that a user passes to the Python interface.

    It must be a fast tokenizer and follow the rules in the files from which it was loaded. If its vocabulary differs
    from those files, it was trained or changed on purpose, and its rules are not checked.

    Raises:
        BadInput: the object is not a fast tokenizer, has no tokens or random rules, or does not follow its files.

    """
    check_fast(tokenizer, "tokenizer")
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise BadInput(
            f"tokenizer has no tokens ({tokenizer.name_or_path or 'no name'}). transformers returns such a tokenizer "
            "for a folder without tokenizer files: load it from a folder that has tokenizer.json"
        )
    for name in _RANDOM_OPTIONS:
        if getattr(tokenizer.backend_tokenizer.model, name, None):
            raise BadInput(
                f"tokenizer has {name}, which makes each encoding of a text random: set "
                f"tokenizer.backend_tokenizer.model.{name} = None"
            )
    file = _origin_file(tokenizer, TOKENIZER_FILE)
    if file is not None:
        _check_rules_of_file(tokenizer, file)


def _check_rules_of_file(tokenizer: PreTrainedTokenizerBase, file: Path) -> None:
    """Raise BadInput if a user's tokenizer has the vocabulary of its tokenizer.json, but not the rules of its files."""
    file_tokenizer = _read_tokenizer_file(file)
    if file_tokenizer.get_vocab() != tokenizer.get_vocab():
        return
    if_intended = 'If this is intended, set tokenizer.name_or_path = ""'
    if _find_differing_text(tokenizer, file_tokenizer, add_special_tokens=False):
        differing = _differing_sections(tokenizer, file_tokenizer)
        raise BadInput(
            f"tokenizer splits texts differently from its file {file} ({differing}): load it with "
            f"PreTrainedTokenizerFast.from_pretrained. {if_intended}"
        )
    config_file = _origin_file(tokenizer, TOKENIZER_CONFIG_FILE)
    config = json.loads(config_file.read_text("utf-8")) if config_file else {}
    bos_id = tokenizer.bos_token_id
    is_requested = bool(config.get("add_bos_token")) or file_tokenizer.encode("").ids[:1] == [bos_id]
    if is_requested and bos_id is not None and tokenizer("a")["input_ids"][:1] != [bos_id]:
        raise BadInput(
            f"tokenizer does not begin a text with {tokenizer.bos_token}, although its files in {file.parent} ask for "
            f"it: set tokenizer.add_bos_token = True. {if_intended}"
        )


def check_fast(tokenizer: Any, description: str) -> None:
    """Raise BadInput if an object is not a fast tokenizer. Only fast tokenizers return character offsets.

    `description` names the object in the message, such as "the tokenizer of gpt2".
    """
    from transformers import PreTrainedTokenizerBase

    if isinstance(tokenizer, type):
        name = tokenizer.__name__
        raise BadInput(f"{description} is the class {name}: give a tokenizer, such as {name}.from_pretrained(FOLDER)")
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise BadInput(f"{description} is a {type(tokenizer).__name__}: give a fast tokenizer of transformers")
    if tokenizer.is_fast is not True:
        raise BadInput(
            f"{description} has no fast version ({type(tokenizer).__name__}). Only fast tokenizers return character "
            "offsets, which rbptrack needs"
        )


def rules_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the SHA-256 of a tokenizer's rules for splitting texts and of its special tokens, in hexadecimal digits.

    Two tokenizers with equal hashes give equal ids for every text.
    """
    from tokenizers import Tokenizer

    backend = tokenizer.backend_tokenizer
    text = backend.to_str()
    if backend.truncation or backend.padding:  # each call of the tokenizer sets them, and measurements use neither
        copy = Tokenizer.from_str(text)
        copy.no_truncation()
        copy.no_padding()
        text = copy.to_str()
    special_tokens = (sorted(tokenizer.all_special_ids), tokenizer.eos_token_id, backend.encode_special_tokens)
    return hashlib.sha256(f"{text}\0{special_tokens!r}".encode()).hexdigest()


def _read_config(pinned: Pinned) -> dict[str, Any]:
    """Return the content of tokenizer_config.json."""
    path = local_file(pinned, TOKENIZER_CONFIG_FILE)
    return {} if path is None else read_json_object(path)


def _tokenizer_file_name(config: dict[str, Any]) -> str:
    """Return the name of the file that transformers reads: tokenizer.json, or a version of it that the config names."""
    from transformers.tokenization_utils_base import get_fast_tokenizer_file

    versions = config.get("fast_tokenizer_files")
    return get_fast_tokenizer_file(versions) if versions else TOKENIZER_FILE


def _read_tokenizer_file(file: Path) -> Tokenizer:
    """Read the tokenizer in a tokenizer.json, and switch its dropout, truncation and padding off."""
    from tokenizers import Tokenizer

    try:
        file_tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the Rust library raises a plain Exception
        raise BadInput(f"{file} is not a tokenizer: {first_line(error)}") from error
    _switch_off_randomness(file_tokenizer)
    file_tokenizer.no_truncation()
    file_tokenizer.no_padding()
    return file_tokenizer


def _switch_off_randomness(backend: Tokenizer) -> None:
    """Switch off random splitting of texts (BPE's dropout, Unigram's sampling)."""
    for name in _RANDOM_OPTIONS:
        if getattr(backend.model, name, None):
            setattr(backend.model, name, None)


def _with_rules_of_file(file: Path, tokenizer: PreTrainedTokenizerBase, pinned: Pinned) -> PreTrainedTokenizerBase:
    """Return the tokenizer if it has the rules of its tokenizer.json. Otherwise load one that has these rules.

    Raises BadInput if the tokenizer that transformers loads from the file does not have its rules either.
    """
    from transformers import PreTrainedTokenizerFast

    file_tokenizer = _read_tokenizer_file(file)
    if not tokenizer.is_fast or tokenizer.backend_tokenizer.to_str() != file_tokenizer.to_str():
        class_tokenizer = tokenizer
        tokenizer = load_part("tokenizer", pinned, PreTrainedTokenizerFast.from_pretrained, REMEDY)
        # Some special tokens are named by the class only, such as the end-of-text token of GPT-2.
        for role in tokenizer.SPECIAL_TOKENS_ATTRIBUTES:
            name = getattr(class_tokenizer, role)
            if name and getattr(tokenizer, role) is None and file_tokenizer.token_to_id(name) is not None:
                setattr(tokenizer, role, name)
    _switch_off_randomness(tokenizer.backend_tokenizer)
    for add_special_tokens in (False, True):
        text = _find_differing_text(tokenizer, file_tokenizer, add_special_tokens=add_special_tokens)
        if text:
            raise BadInput(
                f"the tokenizer of {pinned.location} cannot be loaded as its tokenizer.json describes it: transformers "
                f"changes {_differing_sections(tokenizer, file_tokenizer)}, and {text!r:.60} gets other ids{REMEDY}"
            )
    return tokenizer


def _differing_sections(tokenizer: PreTrainedTokenizerBase, file_tokenizer: Tokenizer) -> str:
    """Name the sections of tokenizer.json in which a tokenizer differs from the file."""
    loaded_rules = json.loads(tokenizer.backend_tokenizer.to_str())
    file_rules = json.loads(file_tokenizer.to_str())
    return " and ".join(name for name in _SECTIONS if loaded_rules[name] != file_rules[name]) or "its rules"


def _find_differing_text(
    tokenizer: PreTrainedTokenizerBase, file_tokenizer: Tokenizer, *, add_special_tokens: bool
) -> str:
    """Return a probe text to which a tokenizer and the tokenizer in its file give different ids, or an empty text."""
    file_tokenizer.encode_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens
    for text in _probe_texts(file_tokenizer):
        ids = tokenizer(text, add_special_tokens=add_special_tokens, verbose=False)["input_ids"]
        if ids != file_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids:
            return text
    return ""


def _probe_texts(file_tokenizer: Tokenizer) -> Iterator[str]:
    """Yield texts that tokenizers with different rules encode differently. Some have added tokens inside words."""
    yield from _PROBE_TEXTS
    added = [token.content for _, token in sorted(file_tokenizer.get_added_tokens_decoder().items())]
    for name in added[:_MAX_PROBED_TOKENS]:
        yield f"a {name} b{name}c  {name}\n{name}{name} {name.lower()}"


def _check_prefix_space(pinned: Pinned, config: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise BadInput if the files contradict each other about a space that is added before a text."""
    configured = config.get("add_prefix_space")
    pre_tokenizer = json.loads(tokenizer.backend_tokenizer.to_str())["pre_tokenizer"]
    if not isinstance(configured, bool) or not pre_tokenizer or pre_tokenizer["type"] != "ByteLevel":
        return
    if pre_tokenizer["add_prefix_space"] != configured:
        raise BadInput(
            f"the files of the tokenizer of {pinned.location} contradict each other: add_prefix_space is {configured} "
            f"in {TOKENIZER_CONFIG_FILE} and {not configured} in {TOKENIZER_FILE}. Correct one of them"
        )


def _origin_file(tokenizer: PreTrainedTokenizerBase, name: str) -> Path | None:
    """Return a file from the folder or cached repository from which a tokenizer was loaded, or None."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    location = str(tokenizer.name_or_path or "")
    if not location:
        return None
    path = Path(location) / name
    if path.is_file():
        return path
    try:
        cached_file = try_to_load_from_cache(location, name)
    except HFValidationError:
        return None
    return Path(cached_file) if isinstance(cached_file, str) else None
