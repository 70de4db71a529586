"""What commands have in common: help, options, warnings about plugins, and the hand-over to Hydra."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from rbptrack.base.errors import BadInput
from rbptrack.commands.usage import HELP_FLAGS, Help, asks_for_help
from rbptrack.config.check import wrong_value
from rbptrack.config.compose import Request
from rbptrack.config.keys import Keys, no_option
from rbptrack.config.paths import unused_configs
from rbptrack.config.patterns import lists_as_values
from rbptrack.console.sentences import complain, program
from rbptrack.reporting.discovery import Plugins, discover

T = TypeVar("T")


@dataclass(frozen=True)
class OptionsCommand(Generic[T]):
    """A command with `key=value` options, such as `export`; call it with its arguments for its exit code.

    Attributes:
        name: what users type.
        schema: the dataclass of the options.
        help: what `-h` shows.
        action: does the work and returns the exit code.
        lists: options that take a list (`family=nano,pythia`), and the key of each in the schema.
        bare_word: the option that a word without `=` gives; empty: there is none.

    """

    name: str
    schema: type[T]
    help: Help
    action: Callable[[T], int]
    lists: Mapping[str, str] = field(default_factory=dict)
    bare_word: str = ""

    def __call__(self, arguments: Sequence[str]) -> int:
        """Run the command; returns the exit code; raises BadInput for a wrong option."""
        if asks_for_help(arguments):
            self.help.show()
            return 0
        return self.action(self._parse(arguments))

    def _parse(self, arguments: Sequence[str]) -> T:
        words = list(map(self._with_key, arguments))
        known, listed = Keys.of(self.schema), self.help.keys
        for word in words:
            key = word.partition("=")[0]
            if key not in known and key not in self.lists:
                more = f"{program()} help {self.name}"
                raise no_option(key, [*self.lists, *known.settable], shown=listed, more=more)
        given: Any = OmegaConf.structured(self.schema)
        for word in lists_as_values(words, self.lists):
            try:
                given = OmegaConf.merge(given, OmegaConf.from_dotlist([word]))
            except OmegaConfBaseException as error:
                raise wrong_value(word, error) from error
        try:
            return OmegaConf.to_object(given)  # type: ignore[return-value]
        except MissingMandatoryValue as error:
            raise BadInput(f"{error.full_key}=... is missing: {program()} {self.help.synopsis}") from error

    def _with_key(self, word: str) -> str:
        """A word as `key=value`; BadInput where it is none and the command takes no bare word."""
        if "=" in word:
            return word
        if self.bare_word and not word.startswith("-"):
            return f"{self.bare_word}={word}"
        raise BadInput(f"{word}: expected key=value. {program()} {self.help.synopsis}")


@dataclass(frozen=True)
class HydraCommand:
    """A command whose options Hydra composes, such as `analyze`; call it with its arguments for its exit code.

    Attributes:
        read: understands the arguments.
        action: does the work and returns the exit code.
        help: shows what `-h` shows; given the arguments, because they may name more folders of configs and plugins.

    """

    read: Callable[[Sequence[str]], Request]
    action: Callable[[Request], int]
    help: Callable[[Sequence[str]], None]

    def __call__(self, arguments: Sequence[str]) -> int:
        """Run the command, or let Hydra show what it is asked to show; returns the exit code; raises BadInput."""
        if asks_for_help(arguments):
            self.help([word for word in arguments if word not in HELP_FLAGS])
            return 0
        for path in unused_configs():
            complain(f"{path} is ignored: a config of that name is built in; rename yours")
        request = self.read(arguments)
        if request.only_shows:
            request.show()
            return 0
        return self.action(request)


def load_plugins(folders: Sequence[str]) -> Plugins:
    """Every analyzer there is, those of some folders included; prints what is broken and left out."""
    plugins = discover(folders)
    for line in plugins.broken:
        complain(f"plugin left out: {line}")
    return plugins
