"""Conversations through chat templates: the answer's tokens are scored, the beginning-of-text token is read once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig
from rbptrack.corpus.chat import find_chat_template, render_conversation
from rbptrack.corpus.documents import Document
from rbptrack.corpus.sequences import Corpus

Build = Callable[..., Corpus]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-[]/.:<>|_"
FastTokenizer: Any = PreTrainedTokenizerFast  # whose types transformers does not give
CONFIG = DatasetConfig("sums", files=["x"], fields=["question", "answer"], seq_len=64, context=8, chat=True)
PLAIN = "{% for m in messages %}{{ m['content'] + '\n' }}{% endfor %}"


def bpe(specials: list[str], letters: list[str], merges: list[tuple[str, str]], **options: Any) -> Tokenizer:
    vocab = {token: number for number, token in enumerate([*specials, *letters, *("".join(pair) for pair in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, **options))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return tokenizer


def begin(tokenizer: Tokenizer, token: str) -> None:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, tokenizer.token_to_id(token))]
    )


def chatml() -> Any:
    """The kind of Qwen and SmolLM2: bytes, no beginning of text; every turn between <|im_start|> and <|im_end|>."""
    specials = ["<|im_start|>", "<|im_end|>"]
    tokenizer = bpe(specials, sorted(pre_tokenizers.ByteLevel.alphabet()), [])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = FastTokenizer(tokenizer_object=tokenizer, eos_token=specials[1], bos_token=specials[0])
    made.chat_template = (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
        "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    return made


def inst() -> Any:
    """The kind of Llama 2 and Mistral: the answer's first token holds the template's space before it."""
    tokenizer = bpe(["<s>", "</s>", "<unk>"], ["▁", "\n", *LETTERS], [("▁", "4")], unk_token="<unk>")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Metaspace()
    begin(tokenizer, "<s>")
    made = FastTokenizer(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    made.chat_template = (
        "{% for message in messages %}{% if message['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}"
        "{% else %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    )
    return made


def gemma() -> Any:
    """The kind of Gemma: the assistant is called model, and contents are trimmed."""
    specials = ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<unk>"]
    tokenizer = bpe(specials, ["▁", "\n", *LETTERS], [], unk_token="<unk>")
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Replace("▁", " ")
    begin(tokenizer, "<bos>")
    made = FastTokenizer(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")
    made.chat_template = (
        "{{ bos_token }}{% for message in messages %}"
        "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
        "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    )
    return made


# By family, for the prompt "2+2": the function that makes the tokenizer, the answer, all tokens that the model reads,
# the tokens that are scored, and the number of bytes of the scored tokens.
BY_HAND: dict[str, tuple[Callable[[], Any], str, list[str], list[str], int]] = {
    "chatml": (
        chatml,
        "4 é",
        [
            *("<|im_start|>", *"userĊ2+2", "<|im_end|>", "Ċ"),
            *("<|im_start|>", *"assistantĊ", "4", "Ġ", "Ã", "©", "<|im_end|>", "Ċ"),
        ],
        ["4", "Ġ", "Ã", "©"],
        4,
    ),
    "inst": (
        inst,
        " 4.1\n",
        ["<s>", *"[INST]▁2+2▁[/INST]", "▁4", ".", "1", "▁", "</s>"],
        ["▁4", ".", "1"],
        3,
    ),
    "gemma": (
        gemma,
        " 4.1\n",
        [
            *("<bos>", "<start_of_turn>", *"user\n2+2", "<end_of_turn>", "\n"),
            *("<start_of_turn>", *"model\n", "4", ".", "1", "<end_of_turn>", "\n"),
        ],
        ["4", ".", "1"],
        3,
    ),
}


@pytest.mark.parametrize("family", BY_HAND)
def test_the_answers_tokens_are_scored_and_nothing_else(family: str, build: Build) -> None:
    make, answer, tokens, scored, num_bytes = BY_HAND[family]
    tokenizer = make()
    template = find_chat_template("", tokenizer, "toy")
    corpus = build([Document("a", ("2+2", answer))], tokenizer, CONFIG, template)
    assert tokenizer.convert_ids_to_tokens(corpus.token.tolist()) == tokens
    targets = corpus.targets(0, len(corpus.start))
    assert tokenizer.convert_ids_to_tokens(corpus.token[targets].tolist()) == scored
    assert int(corpus.num_bytes[targets].sum()) == num_bytes
    assert set(corpus.field[targets]) == {1}
    messages = [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": answer}]
    assert corpus.token.tolist() == tokenizer.apply_chat_template(messages)["input_ids"]


def test_a_template_without_a_beginning_of_text_is_given_the_tokenizers(build: Build) -> None:
    corpus = build([Document("a", ("2+2", "4"))], inst(), CONFIG, PLAIN)
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
def test_a_template_that_fails_or_loses_the_answer_is_refused_in_one_line(template: str) -> None:
    with pytest.raises(BadInput) as refused:
        render_conversation(Document("a", ("1+1", "2 = 2")), chatml(), template, "\n")
    assert "\n" not in str(refused.value)


def test_templates_come_from_a_file_or_the_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text(PLAIN)
    assert find_chat_template(str(path), chatml(), "toy") == PLAIN
    tokenizer = chatml()
    assert find_chat_template("", tokenizer, "toy") == tokenizer.chat_template
    tokenizer.chat_template = None
    for file in ("", str(tmp_path / "nothing.jinja"), str(tmp_path)):
        with pytest.raises(BadInput):
            find_chat_template(file, tokenizer, "toy")


@pytest.mark.parametrize("call", ["strftime_now('%d %b %Y')", 'strftime_now ( "%d %b %Y" )', "strftime_now(form)"])
def test_templates_that_print_the_date_print_the_same_one_every_day(call: str) -> None:
    template = "{% set form = '%d %b %Y' %}{{ " + call + " }}:{% for m in messages %}{{ m['content'] }};{% endfor %}"
    for before, shown in (("", ""), ("\n", "\n"), ("  {% if true %}x{% endif %}", "x")):  # as without the date
        conversation = render_conversation(Document("a", ("2", "+2", " 4 ")), chatml(), before + template, "\n")
        assert conversation.text == f"{shown}26 Jul 2024:2\n+2; 4 ;"
        assert conversation.text[conversation.start : conversation.stop] == " 4 "
