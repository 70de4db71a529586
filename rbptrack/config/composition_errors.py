"""Turn errors of Hydra, OmegaConf and YAML into errors for users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from yaml import YAMLError

from rbptrack.base.errors import BadInput, first_line


@contextmanager
def readable_errors() -> Iterator[None]:
    """While a block runs, turn errors of Hydra, OmegaConf and YAML into BadInput with one line that names the key."""
    try:
        yield
    except MissingMandatoryValue as error:
        raise BadInput(f"a value is missing: give {error.full_key}=...") from error
    except (HydraException, OmegaConfBaseException) as error:
        raise BadInput(_useful_line(error)) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"while composing: a config is not UTF-8 text. Save it as UTF-8 ({error})") from error
    except (YAMLError, OSError, ValueError) as error:  # a file is not YAML or cannot be read
        raise BadInput(f"while composing: {' '.join(str(error).split())}") from error


def _useful_line(error: Exception) -> str:
    """Return the line of an error of Hydra or OmegaConf that a user needs.

    These errors have a chain of causes, and lines about classes of Hydra. The rules:

    - The first cause is kept, after the key that it names. For example, `Error merging override rank=strct` is caused
      by `Invalid value 'strct', expected one of [paper, strict]`, and the key is `rank`.
    - If the first line ends in a colon (`In 'model/mine': ConfigKeyError raised while composing config:`), the second
      line is added.
    - Only the text after `raised while resolving interpolation: ` is kept. A function of rbptrack raised it.
    """
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = first_line(cause)
    if text.endswith(":"):
        text = " ".join(str(cause).splitlines()[:2])
    text = text.rpartition("raised while resolving interpolation: ")[2]
    key = getattr(cause, "full_key", None) or ""
    return text if key in text else f"{key}: {text}"
