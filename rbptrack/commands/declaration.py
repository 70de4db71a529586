"""One declaration per command: its help page, its completion and the checks of its options come from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, make_dataclass, replace
from typing import Any, Generic, TypeVar, get_type_hints

from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from rbptrack.base.errors import BadInput
from rbptrack.commands.usage import entries, write
from rbptrack.config.check import wrong_value
from rbptrack.config.keys import Keys, Option, no_flag, no_option, options_of
from rbptrack.config.patterns import lists_as_values
from rbptrack.console.output import program

T = TypeVar("T")

FLAGS = {"--open": "open=true", "--json": "format=json"}
"""Words with a dash, and the options that they stand for, where a command has them."""


@dataclass
class NoOptions:
    """For a command that reads no option itself."""


@dataclass(frozen=True)
class Command(Generic[T]):
    """A command.

    Attributes:
        name: as users type it.
        summary: what it does, in a line.
        synopsis: the form of its command line.
        about: what it does: paragraphs, with an empty line between them.
        options: a dataclass of the options that it reads itself (`rbptrack.base.options.option`).
        composed: the schema of what Hydra composes for it, whose options it takes too.
        more: options that its page explains beside those that these two declare, and what each means.
        examples: commands without the program's name, and what each does.
        bare_word: the option that a word without `=` gives; empty for none.

    """

    name: str
    summary: str
    synopsis: str
    about: str
    options: type[T]
    composed: type = NoOptions
    more: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    bare_word: str = ""

    @property
    def lists(self) -> dict[str, str]:
        """The options for which `a,b` is one value, and the key that each sets."""
        return {option.key: option.target for option in self.declared() if option.takes_list}

    @property
    def heads(self) -> set[str]:
        """The first parts of its options' keys: `model` of `model.dtype`."""
        return {option.key.partition(".")[0] for option in self.declared()}

    def declared(self) -> list[Option]:
        """Return the command's options, those that it reads itself first."""
        return [*options_of(self.options), *options_of(self.composed)]

    @property
    def usage(self) -> str:
        """Its synopsis, as it is typed."""
        return f"{program()} {self.synopsis}"

    def show_help(self) -> None:
        """Print its page."""
        write(self.usage, style="bold")
        for paragraph in self.about.strip().split("\n\n"):
            write("")
            write(_as_typed(" ".join(paragraph.split())))
        own = {option.shown: _as_typed(option.meaning) for option in self.declared() if option.meaning}
        entries("Options", {word: _as_typed(text) for word, text in self.more.items()} | own)
        entries("Examples", {f"{program()} {words}": text for words, text in self.examples.items()}, stacked=True)

    def running(self, action: Callable[[T], int]) -> Callable[[Sequence[str]], int]:
        """Return the command's `main`: read its options, run, return the exit code; raises BadInput for a wrong
        option.
        """

        def main(arguments: Sequence[str]) -> int:
            return action(self.parsed(arguments))

        return main

    def parsed(self, arguments: Sequence[str]) -> T:
        """Return the options that arguments give.

        Raises:
            BadInput: one that does not exist, or a value that it does not take.

        """
        words = list(self._with_keys(self.without_flags(arguments)))
        keys = Keys.of(self.options)
        options = {option.key: option for option in options_of(self.options)}
        for word in words:
            key, _, value = word.partition("=")
            if key in options:
                options[key].check(value)
            elif key not in keys:
                listed = [option.key for option in options.values() if option.meaning]
                raise no_option(key, list(options), shown=listed, more=f"{program()} help {self.name}")
        return self._merged(words, options)

    def split(self, arguments: Sequence[str]) -> tuple[T, list[str]]:
        """Return the options that the command reads itself, and the other words, which are Hydra's."""
        words = self.without_flags(arguments)
        keys = Keys.of(self.options)
        own = [word for word in words if word.partition("=")[0] in keys]
        return self.parsed(own), [word for word in words if word not in own]

    def without_flags(self, arguments: Sequence[str]) -> list[str]:
        """Return the words with `--json` as `format=json`, and the like, where the command has that option."""
        keys = [option.key for option in self.declared()]
        taken = {flag: word for flag, word in FLAGS.items() if word.partition("=")[0] in keys}
        return [taken.get(word, word) for word in arguments]

    def _with_keys(self, words: Sequence[str]) -> Iterator[str]:
        bare: list[str] = []
        for number, word in enumerate(words):
            if word.startswith("-") and "=" not in word.lstrip("-").partition("=")[0]:
                keys = [option.key for option in options_of(self.options)]
                flags = [flag for flag, text in FLAGS.items() if text.partition("=")[0] in keys]
                raise no_flag(word, words[number + 1 :], keys, [*flags, "--quiet", "--help"])
            if "=" not in word and not self.bare_word:
                raise BadInput(f"{word}: expected key=value. {self.usage}")
            if word in self.lists and number + 1 < len(words) and "=" not in words[number + 1]:
                raise BadInput(f"'{word}' is an option. Write {word}={words[number + 1]}")
            bare += [word] if "=" not in word else []
            if "=" in word:
                yield word
        yield from [f"{self.bare_word}={','.join(bare)}"] if bare else []

    def _merged(self, words: Sequence[str], options: Mapping[str, Option]) -> T:
        """Return the dataclass, filled."""
        lists = {option.key: option.target for option in options.values() if option.takes_list}
        given: Any = OmegaConf.structured(self.options)
        for word in lists_as_values(words, lists):
            word = f"{word[:-1]}'?'" if word.endswith("=?") else word  # which YAML takes for a mapping
            try:
                given = OmegaConf.merge(given, OmegaConf.from_dotlist([word]))
            except OmegaConfBaseException as error:
                raise wrong_value(word, error) from error
        try:
            return OmegaConf.to_object(given)  # type: ignore[return-value]
        except MissingMandatoryValue as error:
            raise BadInput(f"{error.full_key}=... is missing: {self.usage}") from error


def _as_typed(text: str) -> str:
    """Return a text in which `rbptrack list` and the like begin as the user types them."""
    return re.sub(r"\brbptrack (?=(export|import|list|plugins)\b)", f"{program()} ", text)


def with_options(command: Command[T], plugin: type[Any]) -> Command[T]:
    """Return the command with the fields of a plugin as further options; its config is a subclass with these fields.

    Raises:
        BadInput: an option of the plugin has the name of one of the command's own.

    """
    own = get_type_hints(command.options)
    types = get_type_hints(plugin)
    options: list[Any] = []
    for option in fields(plugin):
        if option.name in own:
            raise BadInput(f"{plugin.name}: {command.name} has an option {option.name} of its own; rename the plugin's")
        default = option.default if option.default_factory is MISSING else field(default_factory=option.default_factory)
        options.append((option.name, types[option.name], "???" if default is MISSING else default))
    config = make_dataclass(f"{command.options.__name__}And{plugin.__name__}", options, bases=(command.options,))
    return replace(command, options=config)
