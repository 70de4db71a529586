"""Conversations: prompt and answer as the model's chat template writes them, and where the answer stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rbptrack.base.errors import BadInput, first_line
from rbptrack.base.files import read_small
from rbptrack.config.paths import user_path
from rbptrack.corpus.documents import Document

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "\u2042rbptrack\u2042"  # stands where the answer goes, to find what the template writes before and after it
_TODAY = datetime(2024, 7, 26)  # for templates that print the date: numbers must not change from day to day
_DIRECTIVES = "aAbBcdfHIjmMpSuUwWxXyYzZ"  # of strftime


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
    """Return the chat template in a file. If `file` is empty, return the template of the tokenizer.

    Raises:
        BadInput: the file cannot be read, or the model has no template.

    """
    if file:
        return read_small(user_path(file), "model.chat_template")
    own = tokenizer.chat_template
    if isinstance(own, dict):
        own = own.get("default")
    if not own:
        raise BadInput(
            f"model {model} has no chat template: give model.chat_template=FILE, or measure without dataset.chat"
        )
    return str(own)


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
    try:
        text = tokenizer.apply_chat_template(messages, chat_template=_undated(template), tokenize=False)
    except Exception as error:  # a template is a program, and may divide by zero
        raise BadInput(f"the chat template fails on a prompt and its answer: {first_line(error)}") from error
    return str(text)


def _undated(template: str) -> str:
    """Add a `strftime_now` to a template. It replaces that of transformers and always returns one fixed day.

    It is a macro, because transformers passes data to templates and no functions.
    """
    if "strftime_now" not in template:
        return template
    replaced = ""
    for directive in [f"%{sign}{letter}" for letter in _DIRECTIVES for sign in ("", "-")]:
        replaced += f" | replace('{directive}', '{_TODAY.strftime(directive)}')"
    return f"{{% macro strftime_now(form) %}}{{{{ form{replaced} }}}}{{% endmacro %}}\n{template}"
