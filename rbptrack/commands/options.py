"""Options of the commands that need no Hydra: key=value words into a dataclass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rbptrack.console import say
from rbptrack.errors import BadInput

T = TypeVar("T")


def parse(schema: type[T], arguments: Sequence[str], *, usage: str) -> T | None:
    """The options as their dataclass; None where help was asked for, which is then shown.

    Raises:
        BadInput: a word that is no option, or a value of another type; shows the usage's first line.

    """
    if any(a in ("-h", "--help") for a in arguments):
        say(usage)
        return None
    try:
        merged = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.from_dotlist(list(arguments)))
        return OmegaConf.to_object(merged)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise BadInput(f"{str(error).splitlines()[0]}\n{usage.splitlines()[0]}") from error
