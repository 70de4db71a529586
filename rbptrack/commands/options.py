"""A command with `key=value` options, such as `list`: reading and checking them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from rbptrack.base.errors import BadInput
from rbptrack.commands.pages import PAGES
from rbptrack.config.check import wrong_value
from rbptrack.config.keys import Keys, no_option
from rbptrack.config.patterns import lists_as_values
from rbptrack.console.output import program

T = TypeVar("T")


@dataclass(frozen=True)
class OptionsCommand(Generic[T]):
    """A command with `key=value` options, such as `export`; call it with its arguments for its exit code."""

    name: str
    schema: type[T]
    action: Callable[[T], int]
    lists: Mapping[str, str] = field(default_factory=dict)  # options that take a list, and their keys
    bare_word: str = ""  # the option that a word without `=` gives; empty: there is none

    def __call__(self, arguments: Sequence[str]) -> int:
        """Run the command; returns the exit code; raises BadInput for a wrong option."""
        return self.action(self._parse(arguments))

    def _parse(self, arguments: Sequence[str]) -> T:
        words = list(map(self._with_key, arguments))
        known, listed = Keys.of(self.schema), PAGES[self.name].keys
        for word in words:
            key = word.partition("=")[0]
            if key not in known and key not in self.lists:
                more = f"{program()} help {self.name}"
                raise no_option(key, [*self.lists, *known.settable], shown=listed, more=more)
            known.check_flag(key, word.partition("=")[2])
        given: Any = OmegaConf.structured(self.schema)
        for word in lists_as_values(words, self.lists):
            word = f"{word[:-1]}'?'" if word.endswith("=?") else word  # which YAML takes for a mapping
            try:
                given = OmegaConf.merge(given, OmegaConf.from_dotlist([word]))
            except OmegaConfBaseException as error:
                raise wrong_value(word, error) from error
        try:
            return OmegaConf.to_object(given)  # type: ignore[return-value]
        except MissingMandatoryValue as error:
            raise BadInput(f"{error.full_key}=... is missing: {program()} {PAGES[self.name].synopsis}") from error

    def _with_key(self, word: str) -> str:
        """A word as `key=value`; BadInput where it is none and the command takes no bare word."""
        if "=" in word:
            return word
        if self.bare_word and not word.startswith("-"):
            return f"{self.bare_word}={word}"
        raise BadInput(f"{word}: expected key=value. {program()} {PAGES[self.name].synopsis}")
