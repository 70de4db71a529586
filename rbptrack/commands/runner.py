"""What commands have in common: help, options, warnings about plugins, and the hand-over to Hydra."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rbptrack.config.compose import Request
from rbptrack.config.patterns import lists_as_values
from rbptrack.console import complain, say
from rbptrack.errors import BadInput
from rbptrack.reporting.discovery import Plugins, discover

T = TypeVar("T")


@dataclass(frozen=True)
class OptionsCommand(Generic[T]):
    """A command with `key=value` options, such as `export`; call it with its arguments for its exit code.

    Attributes:
        schema: the dataclass of the options.
        usage: what `-h` shows; its first line follows the message about a wrong option.
        action: does the work and returns the exit code.
        lists: options that take a list (`family=nano,pythia`), and the key of each in the schema.
        bare_word: the option that a word without `=` gives; empty: there is none.

    """

    schema: type[T]
    usage: str
    action: Callable[[T], int]
    lists: Mapping[str, str] = field(default_factory=dict)
    bare_word: str = ""

    def __call__(self, arguments: Sequence[str]) -> int:
        """Run the command; returns the exit code; raises BadInput for a wrong option."""
        if asks_for_help(arguments):
            say(self.usage)
            return 0
        return self.action(self._parse(arguments))

    def _parse(self, arguments: Sequence[str]) -> T:
        words = list(arguments)
        if self.bare_word:
            words = [w if "=" in w or w.startswith("-") else f"{self.bare_word}={w}" for w in words]
        try:
            given = OmegaConf.from_dotlist(lists_as_values(words, self.lists))
            merged = OmegaConf.merge(OmegaConf.structured(self.schema), given)
            return OmegaConf.to_object(merged)  # type: ignore[return-value]
        except OmegaConfBaseException as error:
            raise BadInput(f"{str(error).splitlines()[0]}\n{self.usage.splitlines()[0]}") from error


@dataclass(frozen=True)
class HydraCommand:
    """A command whose options Hydra composes, such as `analyze`; call it with its arguments for its exit code.

    Attributes:
        read: understands the arguments.
        action: does the work and returns the exit code.
        usage: what `-h` shows; empty: Hydra's own help on the command's config.

    """

    read: Callable[[Sequence[str]], Request]
    action: Callable[[Request], int]
    usage: str = ""

    def __call__(self, arguments: Sequence[str]) -> int:
        """Run the command, or let Hydra show what it is asked to show; returns the exit code; raises BadInput."""
        if self.usage and asks_for_help(arguments):
            say(self.usage)
            return 0
        request = self.read(arguments)
        if request.only_shows:
            request.hand_to_hydra(_never_run)
            return 0
        return self.action(request)


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether `-h` or `--help` is among the arguments."""
    return bool({"-h", "--help"} & set(arguments))


def load_plugins(folders: Sequence[str]) -> Plugins:
    """Every analyzer there is, those of some folders included; prints what is broken and left out."""
    plugins = discover(folders)
    for line in plugins.broken:
        complain(f"plugin left out: {line}")
    return plugins


def _never_run(composed: DictConfig) -> None:
    """The job of a command line with which Hydra only shows something."""
