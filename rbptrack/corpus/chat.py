"""Conversations: prompt and answer as the model's chat template writes them, and where the answer stands."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from rbptrack.base.errors import BadInput, first_line
from rbptrack.corpus.documents import Document
from rbptrack.sources.pin import chat_file

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "\u2042rbptrack\u2042"  # stands where the answer goes, to find what the template writes before and after it
_DATE = re.compile(r"""strftime_now\(\s*(["'])([^"']*)\1\s*\)""")
_TODAY = datetime(2024, 7, 26)  # for templates that print the date: numbers must not change from day to day


@dataclass(frozen=True)
class Conversation:
    """A rendered document.

    Attributes:
        text: all that the model reads, with the special tokens that the template writes.
        start: the answer's first character.
        stop: one past its last.

    """

    text: str
    start: int
    stop: int


def template_of(file: str, tokenizer: PreTrainedTokenizerBase, model: str) -> str:
    """Read the chat template of a file, or of the model's own tokenizer where `file` is empty.

    Raises:
        BadInput: the file cannot be read, or the model has no template.

    """
    if file:
        return chat_file(file)
    held = tokenizer.chat_template
    template = held.get("default") if isinstance(held, dict) else held
    if not template:
        raise BadInput(
            f"model {model} has no chat template: give model.chat_template=FILE, or measure without dataset.chat"
        )
    return str(template)


def template_hash(template: str) -> str:
    """Return SHA-256 (hex) of a chat template."""
    return hashlib.sha256(template.encode()).hexdigest()


def conversation(document: Document, tokenizer: PreTrainedTokenizerBase, template: str, separator: str) -> Conversation:
    """Render a document: its last field is the assistant's answer, the fields before it are the user's prompt.

    The answer stands between what the template writes with another answer in its place. A template may strip spaces
    around it, nothing else.

    Raises:
        BadInput: the template fails, or leaves the answer out, or changes it.

    """
    *prompt, answer = document.fields
    question = separator.join(prompt)
    before, marked, after = _rendered(question, _MARK, tokenizer, template).rpartition(_MARK)
    if not marked:
        raise BadInput("the chat template does not write the assistant's message, so no answer can be scored")
    text = _rendered(question, answer, tokenizer, template)
    for written in (answer, answer.strip()):
        if text == before + written + after:
            return Conversation(text, len(before), len(before) + len(written))
    raise BadInput(f"the chat template changes the answer of document {document.id}, so its tokens cannot be found")


def _rendered(question: str, answer: str, tokenizer: PreTrainedTokenizerBase, template: str) -> str:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    undated = _DATE.sub(lambda call: repr(_TODAY.strftime(call[2])), template)
    if "strftime_now(" in undated:
        raise BadInput(
            "the chat template prints the date of the day, so its numbers would change: write a date into it"
        )
    try:
        return str(tokenizer.apply_chat_template(messages, chat_template=undated, tokenize=False))
    except (TemplateError, TypeError, ValueError) as error:
        raise BadInput(f"the chat template fails on a prompt and its answer: {first_line(error)}") from error
