"""Tests of chat templates: only the tokens of the answer are scored, and a text has one beginning-of-text token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig
from rbptrack.corpus.chat import find_chat_template, render_conversation
from rbptrack.corpus.documents import Document
from rbptrack.corpus.sequences import Corpus
from tests.corpus.conftest import BuildCorpus, FastTokenizer
from tests.tiny_models import put_before_texts

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-[]/.:<>|_"
CONFIG = DatasetConfig("sums", files=["x"], fields=["question", "answer"], seq_len=64, context=8, chat=True)
PLAIN_TEMPLATE = "{% for m in messages %}{{ m['content'] + '\n' }}{% endfor %}"


def bpe(specials: list[str], letters: list[str], merges: list[tuple[str, str]], **options: Any) -> Tokenizer:
    """Return a BPE tokenizer. Its vocabulary is the special tokens, the letters and the merged pairs, in this order."""
    tokens = [*specials, *letters, *("".join(pair) for pair in merges)]
    vocab = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, **options))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return tokenizer


def chatml() -> Any:
    """Return a tokenizer as Qwen and SmolLM2 have it.

    Its tokens are bytes, and nothing is put before a text. Each turn stands between <|im_start|> and <|im_end|>.
    """
    specials = ["<|im_start|>", "<|im_end|>"]
    tokenizer = bpe(specials, sorted(pre_tokenizers.ByteLevel.alphabet()), [])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    chat_tokenizer = FastTokenizer(tokenizer_object=tokenizer, eos_token=specials[1], bos_token=specials[0])
    chat_tokenizer.chat_template = (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
        "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    return chat_tokenizer


def inst() -> Any:
    """Return a tokenizer as Llama 2 and Mistral have it.

    The template puts a space before the answer, and the first token of the answer contains this space.
    """
    tokenizer = bpe(["<s>", "</s>", "<unk>"], ["▁", "\n", *LETTERS], [("▁", "4")], unk_token="<unk>")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Metaspace()
    put_before_texts(tokenizer, "<s>")
    chat_tokenizer = FastTokenizer(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    chat_tokenizer.chat_template = (
        "{% for message in messages %}{% if message['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}"
        "{% else %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    )
    return chat_tokenizer


def gemma() -> Any:
    """Return a tokenizer as Gemma has it. Its template calls the assistant `model` and trims the texts."""
    specials = ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<unk>"]
    tokenizer = bpe(specials, ["▁", "\n", *LETTERS], [], unk_token="<unk>")
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Replace("▁", " ")
    put_before_texts(tokenizer, "<bos>")
    chat_tokenizer = FastTokenizer(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")
    chat_tokenizer.chat_template = (
        "{{ bos_token }}{% for message in messages %}"
        "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
        "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    )
    return chat_tokenizer


@dataclass(frozen=True)
class ChatExample:
    """The prompt "2+2" with an answer, and what the corpus must hold.

    Attributes:
        tokenizer: the function that makes the tokenizer.
        answer: the text of the answer.
        read: all tokens that the model reads.
        scored: the tokens that are scored.
        scored_bytes: the number of bytes of the answer in the scored tokens. A space of the template does not count.

    """

    tokenizer: Callable[[], Any]
    answer: str
    read: list[str]
    scored: list[str]
    scored_bytes: int


EXAMPLES = {
    "chatml": ChatExample(
        tokenizer=chatml,
        answer="4 é",
        read=[
            *("<|im_start|>", *"userĊ2+2", "<|im_end|>", "Ċ"),
            *("<|im_start|>", *"assistantĊ", "4", "Ġ", "Ã", "©", "<|im_end|>", "Ċ"),
        ],
        scored=["4", "Ġ", "Ã", "©"],
        scored_bytes=4,
    ),
    "inst": ChatExample(
        tokenizer=inst,
        answer=" 4.1\n",
        read=["<s>", *"[INST]▁2+2▁[/INST]", "▁4", ".", "1", "▁", "</s>"],
        scored=["▁4", ".", "1"],
        scored_bytes=3,
    ),
    "gemma": ChatExample(
        tokenizer=gemma,
        answer=" 4.1\n",
        read=[
            *("<bos>", "<start_of_turn>", *"user\n2+2", "<end_of_turn>", "\n"),
            *("<start_of_turn>", *"model\n", "4", ".", "1", "<end_of_turn>", "\n"),
        ],
        scored=["4", ".", "1"],
        scored_bytes=3,
    ),
}


def corpus_of_example(example: ChatExample, tokenizer: Any, corpus_of: BuildCorpus) -> Corpus:
    """Build the corpus of the prompt and the answer of an example, with the tokenizer's own template."""
    template = find_chat_template("", tokenizer, "toy")
    return corpus_of([Document("a", ("2+2", example.answer))], tokenizer, CONFIG, template)


@pytest.mark.parametrize("family", EXAMPLES)
def test_build_corpus_scores_only_the_tokens_of_the_answer(family: str, corpus_of: BuildCorpus) -> None:
    example = EXAMPLES[family]
    tokenizer = example.tokenizer()
    corpus = corpus_of_example(example, tokenizer, corpus_of)
    assert tokenizer.convert_ids_to_tokens(corpus.token.tolist()) == example.read
    targets = corpus.targets(0, len(corpus.start))
    assert tokenizer.convert_ids_to_tokens(corpus.token[targets].tolist()) == example.scored
    assert int(corpus.num_bytes[targets].sum()) == example.scored_bytes
    assert set(corpus.field[targets]) == {1}


@pytest.mark.parametrize("family", EXAMPLES)
def test_build_corpus_gives_the_same_tokens_as_apply_chat_template(family: str, corpus_of: BuildCorpus) -> None:
    example = EXAMPLES[family]
    tokenizer = example.tokenizer()
    corpus = corpus_of_example(example, tokenizer, corpus_of)
    messages = [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": example.answer}]
    assert corpus.token.tolist() == tokenizer.apply_chat_template(messages)["input_ids"]


def test_build_corpus_adds_the_beginning_of_text_token_if_the_template_has_none(corpus_of: BuildCorpus) -> None:
    corpus = corpus_of([Document("a", ("2+2", "4"))], inst(), CONFIG, PLAIN_TEMPLATE)
    assert inst().convert_ids_to_tokens(corpus.token.tolist()) == ["<s>", *"2+2\n4\n"]


@pytest.mark.parametrize(
    "template",
    [
        "{% for %}",
        "{{ raise_exception('no system') }}",
        "{{ messages[0]['content'] }}",
        "{{ messages[1]['content'].split('=')[-1] }}",
        "{{ messages[1]['content'] + 1 }}",
    ],
)
def test_render_conversation_refuses_a_template_that_fails_or_loses_the_answer(template: str) -> None:
    with pytest.raises(BadInput) as caught:
        render_conversation(Document("a", ("1+1", "2 = 2")), chatml(), template, "\n")
    assert "\n" not in str(caught.value)


def test_find_chat_template_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text(PLAIN_TEMPLATE)
    assert find_chat_template(str(path), chatml(), "toy") == PLAIN_TEMPLATE


def test_find_chat_template_uses_the_template_of_the_tokenizer_if_no_file_is_named() -> None:
    tokenizer = chatml()
    assert find_chat_template("", tokenizer, "toy") == tokenizer.chat_template


@pytest.mark.parametrize("file", ["", "nothing.jinja", "."])
def test_find_chat_template_refuses_a_missing_template(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer = chatml()
    tokenizer.chat_template = None
    with pytest.raises(BadInput):
        find_chat_template(file, tokenizer, "toy")


@pytest.mark.parametrize("call", ["strftime_now('%d %b %Y')", 'strftime_now ( "%d %b %Y" )', "strftime_now(form)"])
@pytest.mark.parametrize(
    ("beginning", "rendered_beginning"), [("", ""), ("\n", "\n"), ("  {% if true %}x{% endif %}", "x")]
)
def test_render_conversation_prints_a_fixed_date(call: str, beginning: str, rendered_beginning: str) -> None:
    """A fixed date replaces today's date. Spaces and line breaks at the start of the template are rendered as usual."""
    template = "{% set form = '%d %b %Y' %}{{ " + call + " }}:{% for m in messages %}{{ m['content'] }};{% endfor %}"
    conversation = render_conversation(Document("a", ("2", "+2", " 4 ")), chatml(), beginning + template, "\n")
    assert conversation.text == f"{rendered_beginning}26 Jul 2024:2\n+2; 4 ;"
    assert conversation.text[conversation.start : conversation.stop] == " 4 "
