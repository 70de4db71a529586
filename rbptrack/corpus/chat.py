"""Render a prompt and its answer with a model's chat template, and find the answer in the rendered text."""

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

_MARK = "\u2042rbptrack\u2042"  # rendered in place of the answer, to find the text that the template writes around it
_TODAY = datetime(2024, 7, 26)  # the date that templates print; fixed, because numbers must not depend on the day
_DIRECTIVES = "aAbBcdfHIjmMpSuUwWxXyYzZ"  # the letters of strftime's directives


@dataclass(frozen=True)
class Conversation:
    """A document that a chat template has rendered.

    Attributes:
        text: the whole text that the model reads, with the special tokens that the template writes.
        start: index of the answer's first character in the text.
        stop: index after the answer's last character in the text.

    """

    text: str
    start: int
    stop: int


def find_chat_template(file: str, tokenizer: PreTrainedTokenizerBase, model: str) -> str:
    """Return the chat template that a file contains, or the tokenizer's own template if `file` is empty.

    Raises BadInput if the file cannot be read, or if the tokenizer has no template. The message names the model.
    """
    if file:
        return read_small(user_path(file), "model.chat_template")
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if not template:
        raise BadInput(
            f"model {model} has no chat template: give model.chat_template=FILE, or measure without dataset.chat"
        )
    return str(template)


def render_conversation(
    document: Document, tokenizer: PreTrainedTokenizerBase, template: str, separator: str
) -> Conversation:
    """Render a document as a conversation and find the answer in it.

    The last field is the assistant's answer. The fields before it, joined with `separator`, are the user's prompt. To
    find the answer, the template is also rendered with a mark in its place: the text before and after the mark must be
    the text before and after the answer. The template may strip spaces around the answer, but may not change it
    otherwise. Raises BadInput if the template fails, leaves the answer out, or changes it.
    """
    *prompt_fields, answer = document.fields
    prompt = separator.join(prompt_fields)
    before, mark, after = _render(prompt, _MARK, tokenizer, template).rpartition(_MARK)
    if not mark:
        raise BadInput(
            "the chat template does not write the assistant's message, so no answer can be scored. Give another "
            "template with model.chat_template=FILE"
        )
    text = _render(prompt, answer, tokenizer, template)
    for rendered_answer in (answer, answer.strip()):
        if text == before + rendered_answer + after:
            return Conversation(text, len(before), len(before) + len(rendered_answer))
    raise BadInput(
        f"the chat template changes the answer of document {document.id}, so its tokens cannot be found. Give another "
        "template with model.chat_template=FILE"
    )


def _render(prompt: str, answer: str, tokenizer: PreTrainedTokenizerBase, template: str) -> str:
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    try:
        text = tokenizer.apply_chat_template(messages, chat_template=_with_fixed_date(template), tokenize=False)
    except Exception as error:  # a template is a program and can raise anything, for example ZeroDivisionError
        raise BadInput(
            f"the chat template fails on a prompt and its answer ({first_line(error)}). Give another template with "
            "model.chat_template=FILE"
        ) from error
    return str(text)


def _with_fixed_date(template: str) -> str:
    """Add a macro to a template that replaces its function `strftime_now` and always formats the date `_TODAY`.

    It is a macro because transformers passes only data to templates, not functions.
    """
    if "strftime_now" not in template:
        return template
    replacements = ""
    for directive in [f"%{sign}{letter}" for letter in _DIRECTIVES for sign in ("", "-")]:
        replacements += f" | replace('{directive}', '{_TODAY.strftime(directive)}')"
    return f"{{% macro strftime_now(form) %}}{{{{ form{replacements} }}}}{{% endmacro %}}\n{template}"
