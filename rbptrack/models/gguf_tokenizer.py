"""Build the tokenizer that the keys of a GGUF file describe, with the rules that llama.cpp has for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput, shortened_list
from rbptrack.models.border_tokens import set_border_tokens
from rbptrack.models.gguf_file import GgufHeader, Keys
from rbptrack.models.sentence_piece import SPACE, has_equal_scores, pair_merges, set_sentencepiece_rules

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

_PREFIX = "tokenizer.ggml."
_REMEDY = "give the original tokenizer, model.tokenizer=ORG/NAME"
_TOKEN_TYPES = range(1, 7)
_ORDINARY = 1  # the type of a token that is neither special nor a byte
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # types of tokens that are found in texts before anything else
_FOUND_FIRST = (_UNKNOWN, _CONTROL, _USER_DEFINED)
_MAX_RENAMED_SHARE = 0.01  # share of ordinary tokens that a converter may spell differently
_MAX_NAMES = 4  # the largest number of keys that an error names
_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}

_NO_EFFECT = {
    # keys of the other kind of tokenizer
    *("pre", "merges", "scores"),
    # ends of generated texts
    *("eot_token_id", "eom_token_id", "eog_token_ids"),
    # tokens of tasks that fill a gap in a text, and of models that classify
    *("prefix_token_id", "suffix_token_id", "middle_token_id"),
    *(f"fim_{name}_token_id" for name in ("pre", "suf", "mid", "pad", "rep", "sep")),
    *("seperator_token_id", "separator_token_id", "mask_token_id", "cls_token_id", "token_type_count"),
}
"""Keys that do not change how a text is split."""
_ALLOWED_VALUES: dict[str, Any] = {
    "add_sep_token": False,
    "remove_extra_whitespaces": False,
    "precompiled_charsmap": [],
}
"""Keys whose rules are not supported, and the value with which each has no effect."""

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORDS = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*")
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_GPT4O = rf"{_WORDS[0]}{_CONTRACTIONS}?|{_WORDS[1]}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_TEKKEN = rf"{_WORDS[0]}|{_WORDS[1]}|\p{{N}}|{_SIGNS}|{_SPACES}"
_DEEPSEEK = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    + _SPACES,
)


@dataclass(frozen=True)
class _Rule:
    """How a value of `tokenizer.ggml.pre` splits texts.

    Attributes:
        patterns: regular expressions that split a text one after the other; without any, GPT-2's expression splits it.
        digits: whether digits are split one by one before.
        normal_form: whether texts are put into Unicode's normal form C before.
        whole_words: whether a word that is a token is not split, whatever the merges say.
        begins: whether a text begins with the token `bos` if the file does not say so.

    """

    patterns: tuple[str, ...] = ()
    digits: bool = False
    normal_form: bool = False
    whole_words: bool = False
    begins: bool = False


_LLAMA3_RULE = _Rule((_LLAMA3,), whole_words=True, begins=True)
_RULES = {
    **dict.fromkeys(("gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat"), _Rule()),
    **dict.fromkeys(("a.x-4.0", "mellum", "mpt", "olmo", "jais", "trillion", "granite-docling"), _Rule()),
    **dict.fromkeys(("smollm", "starcoder", "refact"), _Rule(digits=True)),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0"), _LLAMA3_RULE),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _Rule((_LLAMA3,))),
    "tekken": _Rule((_TEKKEN,), whole_words=True, begins=True),
    "qwen2": _Rule((_QWEN2,), normal_form=True),
    "deepseek-r1-qwen": _Rule((_QWEN2,)),
    **dict.fromkeys(("gpt-4o", "llama4"), _Rule((_GPT4O,))),
    "deepseek-v3": _Rule(_DEEPSEEK),
}
"""By value of `tokenizer.ggml.pre`. The rules are those of the published tokenizer.json and of llama.cpp."""


def load_gguf_tokenizer(header: GgufHeader) -> PreTrainedTokenizerBase:
    """Build the fast tokenizer that a GGUF file describes.

    Raises BadInput if the file has no tokenizer, if its rule or a key is not known, or if a key has a wrong value.
    """
    from transformers import PreTrainedTokenizerFast

    keys = Keys(header, _PREFIX, _REMEDY)
    tokens = _token_list(keys)
    types = _typed_list(keys, "token_type", int, len(tokens))
    if any(token_type not in _TOKEN_TYPES for token_type in types):
        raise keys.wrong("token_type", "numbers from 1 to 6")
    kind = keys.value("model")
    if kind == "gpt2":
        backend, begins = _byte_level(keys, tokens)
    elif kind == "llama":
        backend, begins = _sentencepiece(keys, tokens, types), True
    else:
        raise keys.refuse(f"rbptrack does not read tokenizers of the kind {kind!r} (tokenizer.ggml.model)")
    role_ids = {role: _token_id(keys, f"{name}_token_id", len(tokens)) for role, name in _ROLES.items()}
    # transformers finds tokens with a role before anything else, also ordinary ones, such as "!" as a padding token
    roles = {
        role: tokens[number]
        for role, number in role_ids.items()
        if number is not None and types[number] in _FOUND_FIRST
    }
    _add_tokens(backend, tokens, types)
    borders = []  # the tokens with which texts begin and end; None for no token
    for role, default in (("bos_token", begins), ("eos_token", False)):
        is_added = keys.flag(f"add_{role}", default=default)
        if is_added and role not in roles:
            raise keys.wrong(f"{role}_id", "the id of a control token, with which texts begin or end")
        borders.append(roles[role] if is_added else None)
    set_border_tokens(backend, *borders)
    keys.check_all_used(_ALLOWED_VALUES, _NO_EFFECT)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        name_or_path=str(header.path),
        chat_template=header.values.get("tokenizer.chat_template"),
        **roles,
    )


def check_gguf_tokens(name: str, header: GgufHeader, tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that a separate tokenizer gives the same ids to tokens as the list of tokens in a GGUF file.

    Special tokens and up to 1% of the ordinary tokens may have other names, because converters spell some tokens
    differently. Raises BadInput if more than 1% of the ordinary tokens differ.
    """
    keys = Keys(header, _PREFIX, _REMEDY)
    tokens = _token_list(keys)
    types = [_ORDINARY] * len(tokens)
    if keys.value("token_type") is not None:
        types = _typed_list(keys, "token_type", int, len(tokens))
    ordinary_ids = [token_id for token_id, token_type in enumerate(types) if token_type == _ORDINARY]
    token_by_id = {token_id: token.replace(SPACE, " ") for token, token_id in tokenizer.get_vocab().items()}
    renamed = sum(token_by_id.get(token_id) != tokens[token_id].replace(SPACE, " ") for token_id in ordinary_ids)
    if renamed > _MAX_RENAMED_SHARE * len(ordinary_ids):
        raise BadInput(
            f"{name}: {tokenizer.name_or_path or 'the tokenizer'} has other names for {renamed} of the "
            f"{len(ordinary_ids)} tokens of {header.path.name}, so it belongs to another model. Leave out "
            "model.tokenizer= to use the tokenizer in the file"
        )


def _token_list(keys: Keys) -> list[str]:
    """Return the tokens in the order of their ids. Raises BadInput if there are none, or one appears twice."""
    tokens = keys.value("tokens")
    if not isinstance(tokens, list) or not tokens or not _are_texts(tokens):
        raise keys.refuse("it has no tokenizer (tokenizer.ggml.tokens)")
    if len(set(tokens)) < len(tokens):
        raise keys.refuse("its list of tokens has a token twice")
    return tokens


def _are_texts(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _typed_list(keys: Keys, name: str, kind: type, length: int) -> list[Any]:
    """Return a list of numbers, one for each token. Raises BadInput if the key has another value."""
    values = keys.value(name)
    if not isinstance(values, list) or len(values) != length or any(type(value) is not kind for value in values):
        raise keys.wrong(name, f"a list of {length:,} numbers, one for each token")
    return values


def _token_id(keys: Keys, name: str, num_tokens: int) -> int | None:
    """Return the id of a token that a key holds. Return None if the file does not have the key."""
    token_id: int | None = keys.value(name)
    if token_id is not None and (type(token_id) is not int or not 0 <= token_id < num_tokens):
        raise keys.wrong(name, f"an id below {num_tokens:,}")
    return token_id


def _byte_level(keys: Keys, tokens: Sequence[str]) -> tuple[Tokenizer, bool]:
    """Return a byte-level BPE tokenizer, and whether its rule begins texts with the token `bos`."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    name = keys.value("pre")
    rule = _RULES.get(name) if isinstance(name, str) else None
    if rule is None:
        raise keys.refuse(f"it splits texts by the rule {name!r} (tokenizer.ggml.pre), which rbptrack does not know")
    if keys.flag("add_space_prefix", default=False):
        raise keys.wrong("add_space_prefix", "false for this kind of tokenizer")
    lines = keys.value("merges")
    pairs = [tuple(line.split(" ")) for line in lines] if isinstance(lines, list) and _are_texts(lines) else []
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise keys.wrong("merges", "a list of pairs of tokens")
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    missing = [part for pair in pairs for part in (*pair, "".join(pair)) if part not in ids]
    if missing:
        raise keys.refuse(f"its merges have {shortened_list(missing, limit=_MAX_NAMES)}, which are not tokens")
    backend = Tokenizer(models.BPE(vocab=ids, merges=pairs, ignore_merges=rule.whole_words))
    if rule.normal_form:
        backend.normalizer = normalizers.NFC()
    splits: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if rule.digits else []
    splits += [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns]
    splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not rule.patterns))
    backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
    backend.decoder = decoders.ByteLevel()
    return backend, rule.begins


def _sentencepiece(keys: Keys, tokens: Sequence[str], types: Sequence[int]) -> Tokenizer:
    """Return a BPE tokenizer of sentencepiece. As in llama.cpp, its merges follow from the scores of the tokens."""
    from tokenizers import Tokenizer, models

    scores = _typed_list(keys, "scores", float, len(tokens))
    ordinary = (number for number, token_type in enumerate(types) if token_type == _ORDINARY)
    if has_equal_scores({tokens[number]: scores[number] for number in ordinary}):
        raise keys.refuse(f"several tokens have the same score ({_PREFIX}scores), which rbptrack does not support")
    merges = pair_merges(tokens, scores)
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    unknown_id = _token_id(keys, "unknown_token_id", len(tokens))
    unknown = None if unknown_id is None else tokens[unknown_id]
    backend = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    set_sentencepiece_rules(backend, [], prefix=keys.flag("add_space_prefix", default=True))
    return backend


def _add_tokens(backend: Tokenizer, tokens: Sequence[str], types: Sequence[int]) -> None:
    """Make a tokenizer find the tokens that are not made of other tokens before it splits a text."""
    from tokenizers import AddedToken

    special, ordinary = [], []
    for token, token_type in zip(tokens, types, strict=True):
        if token_type in (_UNKNOWN, _CONTROL):
            special.append(AddedToken(token, normalized=False, special=True))
        elif token_type == _USER_DEFINED:
            ordinary.append(AddedToken(token, normalized=False, special=False))
    backend.add_special_tokens(special)
    backend.add_tokens(ordinary)
