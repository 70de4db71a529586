"""Conversations through chat templates: the answer's tokens are scored, the beginning-of-text token is read once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rbptrack.base.errors import BadInput
from rbptrack.config.request import measuring, sweep_of
from rbptrack.config.schema import CellConfig, DatasetConfig, EngineConfig, KConfig, ModelConfig, TrackingConfig
from rbptrack.corpus.chat import conversation
from rbptrack.corpus.documents import Document
from rbptrack.engine.measure import measure
from rbptrack.sweep.identity import identities
from rbptrack.sweep.resolve import Resolver
from rbptrack.tracking.store import Store
from tests import cells

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-[]/.:<>|_"


def _bpe(specials: list[str], letters: list[str], merges: list[tuple[str, str]], **options: Any) -> Tokenizer:
    vocab = {token: number for number, token in enumerate([*specials, *letters, *("".join(pair) for pair in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, **options))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return tokenizer


def _begins(tokenizer: Tokenizer, token: str) -> None:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, tokenizer.token_to_id(token))]
    )


def chatml() -> PreTrainedTokenizerFast:
    """The kind of Qwen and SmolLM2: bytes, no beginning of text; every turn between <|im_start|> and <|im_end|>."""
    specials = ["<|im_start|>", "<|im_end|>"]
    tokenizer = _bpe(specials, sorted(pre_tokenizers.ByteLevel.alphabet()), [])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=specials[1], bos_token=specials[0])
    made.chat_template = (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
        "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    return made


def inst() -> PreTrainedTokenizerFast:
    """The kind of Llama 2 and Mistral: the answer's first token holds the template's space before it."""
    tokenizer = _bpe(["<s>", "</s>", "<unk>"], ["▁", "\n", *LETTERS], [("▁", "4")], unk_token="<unk>")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Metaspace()
    _begins(tokenizer, "<s>")
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    made.chat_template = (
        "{% for message in messages %}{% if message['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}"
        "{% else %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    )
    return made


def gemma() -> PreTrainedTokenizerFast:
    """The kind of Gemma: the assistant is called model, and contents are trimmed."""
    specials = ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<unk>"]
    tokenizer = _bpe(specials, ["▁", "\n", *LETTERS], [], unk_token="<unk>")
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Replace("▁", " ")
    _begins(tokenizer, "<bos>")
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")
    made.chat_template = (
        "{{ bos_token }}{% for message in messages %}"
        "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
        "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
    )
    return made


Make = Callable[[], PreTrainedTokenizerFast]
# What the model reads of the prompt "2+2" and the answer "4 é" or " 4.1\n", token by token; and what is scored of it.
BY_HAND: dict[str, tuple[Make, str, list[str], list[str], int]] = {
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


def saved(folder: Path, tokenizer: PreTrainedTokenizerFast) -> Path:
    """A small model with this tokenizer; its weights are large enough for logits that differ."""
    torch.manual_seed(3)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), **shape, initializer_range=0.5, max_position_embeddings=64)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def texts(folder: Path, *answers: str) -> DatasetConfig:
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"question": "2+2", "answer": answer}) + "\n" for answer in answers))
    fields = ["question", "answer"]
    return DatasetConfig("sums", files=[str(path)], split="train", fields=fields, seq_len=64, context=8, chat=True)


def cell_of(folder: Path, dataset: DatasetConfig, **options: Any) -> CellConfig:
    return CellConfig(ModelConfig("toy", "1k", path=str(folder), **options), dataset, KConfig([1]))


@pytest.mark.parametrize("family", BY_HAND)
def test_the_answers_tokens_are_scored_and_nothing_else(family: str, tmp_path: Path) -> None:
    """Token by token, worked out by hand; ranks and probabilities are the plain model's on the same ids."""
    make, answer, tokens, scored, num_bytes = BY_HAND[family]
    folder = saved(tmp_path / "model", make())
    cell = Resolver().resolve(cell_of(folder, texts(tmp_path, answer)))
    corpus, tokenizer = cell.load_corpus(), cell.tokenizer
    assert tokenizer.convert_ids_to_tokens(corpus.token.tolist()) == tokens
    targets = corpus.targets(0, len(corpus.start))
    assert tokenizer.convert_ids_to_tokens(corpus.token[targets].tolist()) == scored
    assert int(corpus.num_bytes[targets].sum()) == num_bytes
    assert set(corpus.field[targets]) == {1}
    messages = [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": answer}]
    assert corpus.token.tolist() == tokenizer.apply_chat_template(messages)["input_ids"]
    table = measure(cell.load_model(), corpus, ks=(1,), engine=EngineConfig(), folder=tmp_path / "made").ranks
    ids = torch.tensor([tokenizer.convert_tokens_to_ids(tokens)])
    with torch.inference_mode():
        plain = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64)
        before = plain(ids).logits[0, targets - 1]
    target = ids[0, targets, None]
    assert table.rank.tolist() == (before >= before.gather(1, target)).sum(1).tolist()
    np.testing.assert_allclose(table.column("logprob"), before.log_softmax(1).gather(1, target)[:, 0], atol=1e-5)


def test_the_template_is_part_of_what_is_measured_only_where_it_is_used(tmp_path: Path) -> None:
    folder, dataset = saved(tmp_path / "model", chatml()), texts(tmp_path, "4")
    other = tmp_path / "other.jinja"
    other.write_text("{% for m in messages %}{{ m['content'] + '\n' }}{% endfor %}")
    plain = texts(tmp_path, "4")
    plain.chat = False
    options = [(dataset, ""), (dataset, str(other)), (plain, ""), (plain, str(other))]
    made = [Resolver().resolve(cell_of(folder, d, chat_template=file)).fingerprint for d, file in options]
    assert len(set(made)) == 3
    assert made[2] == made[3]
    other.write_text("{% for m in messages %}{{ m['content'] + '\n\n' }}{% endfor %}")
    assert Resolver().resolve(cell_of(folder, dataset, chat_template=str(other))).fingerprint != made[1]


def test_the_program_measures_conversations(tmp_path: Path, with_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its params give its fingerprint again, as `verify` demands; with a template that lacks BOS it is read once."""
    folder, template = saved(tmp_path / "model", inst()), tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m['content'] + '\n' }}{% endfor %}")
    path = texts(tmp_path, "4", "5 6").files[0]
    monkeypatch.chdir(with_store)
    asked = ("model=hf", f"model.path={folder}", "model.family=toy", "model.size=1k", f"model.chat_template={template}")
    asked += ("dataset=files", f"dataset.files={path}", "dataset.fields=[question,answer]", "dataset.seq_len=64")
    outcome = cells.run(*asked, "dataset.documents=0", "dataset.context=8", "dataset.chat=true", "k=1")
    assert outcome.numbers["num_tokens"] == 4  # 4, 5, a space, 6
    params = Store(TrackingConfig()).reader.run(outcome.run_id).params
    assert outcome.fingerprint in (identities(params) or ())
    assert params["dataset.chat"] == "True"
    corpus = Resolver().resolve(cell_of(folder, texts(tmp_path, "4"), chat_template=str(template))).load_corpus()
    assert inst().convert_ids_to_tokens(corpus.token.tolist()) == ["<s>", *"2+2\n4\n"]


REFUSED = {
    "none": ("", r"model toy-1k has no chat template: give model\.chat_template=FILE"),
    "broken": ("{% for %}", r"the chat template fails on a prompt and its answer: "),
    "refuses": ("{{ raise_exception('no system') }}", r"the chat template fails .*: no system"),
    "leaves out": ("{{ messages[0]['content'] }}", r"does not write the assistant's message"),
    "changes": ("{{ messages[1]['content'].split('=')[-1] }}", r"changes the answer of document texts.jsonl:0"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_no_template_can_render_is_refused_in_a_line(fault: str, tmp_path: Path) -> None:
    template, message = REFUSED[fault]
    tokenizer = chatml()
    tokenizer.chat_template = template or None
    cell = cell_of(saved(tmp_path / "model", tokenizer), texts(tmp_path, "2 = 2"))
    with pytest.raises(BadInput, match=message) as said:
        Resolver().resolve(cell).load_corpus()
    assert "\n" not in str(said.value)
    cell.model.chat_template = str(tmp_path / "nothing.jinja")
    with pytest.raises(BadInput, match=r"model\.chat_template=.*nothing\.jinja cannot be read"):
        Resolver().resolve(cell)


def test_a_conversation_needs_a_prompt_and_an_answer() -> None:
    with pytest.raises(BadInput, match=r"dataset\.chat=true needs a prompt and an answer"):
        sweep_of(measuring(["model=nano/6k", "dataset=pydocs", "dataset.chat=true"]))


def test_templates_that_print_the_date_print_the_same_one_every_day() -> None:
    template = "{{ strftime_now('%d %b %Y') }}:{% for m in messages %}<think></think>{{ m['content'] }};{% endfor %}"
    talk = conversation(Document("a", ("2", "+2", " 4 ")), chatml(), template, "\n")
    assert talk.text == "26 Jul 2024:<think></think>2\n+2;<think></think> 4 ;"
    assert talk.text[talk.start : talk.stop] == " 4 "
    with pytest.raises(BadInput, match="prints the date of the day"):
        conversation(Document("a", ("2", "4")), chatml(), template.replace("'%d %b %Y'", "form"), "\n")
