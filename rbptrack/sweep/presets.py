"""The executors behind `launch=...`."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module

from rbptrack.analysis.executors import Executor
from rbptrack.config.schema import LaunchConfig


def executor(launch: LaunchConfig) -> Executor:
    """Return the executor of a preset, with the options that it has."""
    name = launch.where.value
    cls: type[Executor] = getattr(import_module(f"rbptrack.plugins.executors.{name}"), name.capitalize())
    return cls(**{f.name: getattr(launch, f.name) for f in fields(cls) if getattr(launch, f.name) not in ("",)})
