"""A request without its secrets: what Hydra may write into files."""

from __future__ import annotations

import os
from dataclasses import replace

from rbptrack.config.compose import Request, sweep_of
from rbptrack.config.schema import Config, SweepConfig, flat
from rbptrack.errors import BadInput
from rbptrack.redaction import holds_secret, redact, without_password


def without_secrets(request: Request) -> tuple[Request, SweepConfig, list[Config]]:
    """The request as Hydra may save it, and what it asks for: a URI with a password moves into the environment.

    Hydra writes what it composes into files, wherever it came from: the command line or a file of the user's.

    Raises:
        BadInput: another value holds a secret.

    """
    settings, cells = sweep_of(request)
    uri = settings.tracking.uri
    if without_password(uri) != uri:
        os.environ["MLFLOW_TRACKING_URI"] = uri
        overrides, typed = (
            [word for word in words if word.partition("=")[0].lstrip("+") != "tracking.uri"]
            for words in (request.overrides, request.typed)
        )
        request = replace(request, overrides=[*overrides, "tracking.uri=''"], typed=typed)
        settings, cells = sweep_of(request)
    values = {key: value for cell in cells for key, value in flat(cell).items()}
    words = [f"{key}={value}" for key, value in values.items()]
    if secret := next((word for word in [*words, *request.overrides, *request.typed] if holds_secret(word)), ""):
        raise BadInput(
            f"{redact(secret)} holds a secret, which would be written into files: leave it in the environment, "
            "where the libraries find it"
        )
    return request, settings, cells
