"""Training checkpoints (`rbptrack.config.ladders`) as a config source of Hydra, `checkpoints://`.

It also works in the processes of other launchers.
"""

from __future__ import annotations

from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import OmegaConf

from rbptrack.config.ladders import LADDERS, config


class CheckpointSource(ConfigSource):
    """The ladders as a source of Hydra's search path.

    It lists nothing, because Hydra's help prints every listed name; `names` has them.
    """

    @staticmethod
    def scheme() -> str:
        """Return the name of this source in a search path."""
        return "checkpoints"

    def load_config(self, config_path: str) -> ConfigResult:
        """Return the config of `model/<folder>/<size>-step<n>`."""
        checkpoint = _of(config_path)
        if checkpoint is None:
            raise ConfigLoadError(f"no checkpoint {config_path}")
        header: dict[str, str | None] = {"package": None}
        return ConfigResult(
            provider=self.provider, path="checkpoints://", config=OmegaConf.create(checkpoint), header=header
        )

    def is_group(self, config_path: str) -> bool:
        """Return whether this is a folder of checkpoints, or the group that holds them."""
        return config_path.rstrip("/") in {"model", *(f"model/{folder}" for folder in LADDERS)}

    def is_config(self, config_path: str) -> bool:
        """Return whether this is a checkpoint's name."""
        return _of(config_path) is not None

    def available(self) -> bool:
        """Return True."""
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return nothing: see the class."""
        return []


def _of(config_path: str) -> dict[str, str | int] | None:
    path = config_path.strip("/").removesuffix(".yaml")
    return config(path.removeprefix("model/")) if path.startswith("model/") else None
