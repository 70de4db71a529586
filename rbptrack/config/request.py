"""A command line as a request to Hydra: which cells it asks for, or what it only shows."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from hydra.errors import HydraException
from omegaconf import DictConfig

from rbptrack.base.errors import BadInput
from rbptrack.config.arguments import SCHEMAS, check_keys, k_group, parse_flags, reference_group
from rbptrack.config.cells import cells, swept_options
from rbptrack.config.check import refuse_secrets
from rbptrack.config.compose import Composer, glob_as_patterns, parsed, shortened
from rbptrack.config.hydra_internals import jobs_of, show
from rbptrack.config.keys import Keys, options_of
from rbptrack.config.patterns import expand, home_as_value, lists_as_values
from rbptrack.config.registration import register_resolver
from rbptrack.config.schema import Config, SweepConfig

# Nobody sweeps over these: `a,b` is one value.
_LISTS = ("analyzers", "figures", "dataset.files", "dataset.fields")


@dataclass(frozen=True)
class Request:
    """A command line for Hydra, understood.

    Attributes:
        composer: composes what the overrides ask for.
        flags: Hydra's own flags as it understands them.
        overrides: the overrides, patterns expanded.
        multirun: whether they make a sweep.
        typed: the command line as it was given.

    """

    composer: Composer
    flags: Namespace
    overrides: list[str]
    multirun: bool
    typed: list[str]

    @classmethod
    def read(
        cls, config_name: str, arguments: Sequence[str], *, groups: Sequence[str], lists: Mapping[str, str]
    ) -> Request:
        """Understand a command line.

        Args:
            config_name: the primary config: `config`, `analyze` or `report`.
            arguments: what follows the command's name.
            groups: config groups whose values may be patterns and lists, over which is swept.
            lists: options for which `a,b` is one list, and the config key of each.

        Raises:
            BadInput: a name or pattern that matches nothing, or an override that Hydra does not understand.

        """
        schema = SCHEMAS[config_name][0]
        keys = [*Keys.of(schema).folders, *lists, *(option.key for option in options_of(schema))]
        flags = parse_flags(arguments, keys)
        composer = Composer(config_name, arguments)
        overrides = [glob_as_patterns(home_as_value(word)) for word in flags.overrides]
        check_keys(overrides, composer, groups, lists)
        overrides = expand(overrides, groups=groups, options=composer.options)
        overrides = [word for o in overrides for word in reference_group(o, composer)]
        overrides = lists_as_values([k_group(o, composer) for o in overrides], lists)
        sweeps = any(o.is_sweep_override() for o in parsed(overrides))
        multirun = bool(flags.multirun or sweeps or "hydra.mode=MULTIRUN" in overrides)
        return cls(composer, flags, overrides, multirun, list(arguments))

    @property
    def only_shows(self) -> bool:
        """Whether Hydra is asked to show something (`--cfg`, `--help`) and to run nothing."""
        f = self.flags
        return bool(f.cfg or f.info or f.help or f.hydra_help or f.shell_completion)

    def jobs(self) -> list[list[str]]:
        """Return the overrides of each job, as Hydra's basic sweeper makes them."""
        if not self.multirun:
            return [self.overrides]
        try:
            return jobs_of(parsed(self.overrides))
        except HydraException as error:
            raise BadInput(shortened(error)) from error

    def show(self) -> None:
        """Let Hydra show what its flags ask for (`--cfg`, `--info`, ...); of a sweep, for its first cell."""
        register_resolver("oc.env", _as_written)
        self.flags.overrides = self.jobs()[0]
        if self.flags.cfg or self.flags.info in ("all", "config"):
            composed, hydra = self.composer.whole(self.flags.overrides)
            refuse_secrets(composed, resolve=False)
            refuse_secrets(hydra, "hydra.", resolve=False)
        self.flags.multirun = False
        self.flags.run = False
        show(self.flags, self.composer.config_name, _never_run)

    def run_by_hydra(self, job: Callable[[DictConfig], None], *, extra: Sequence[str]) -> None:
        """Let Hydra's sweeper and launcher, which somebody chose, run a job for each cell of the sweep.

        Args:
            job: called with each composed config; importable, because launchers call it in other processes.
            extra: further overrides.

        """
        mode = "MULTIRUN" if self.multirun else "RUN"
        words = [word for word in self.overrides if not word.startswith(("hydra.mode=", "hydra.searchpath="))]
        self.composer.run(mode, job, [*words, *extra, f"hydra.mode={mode}"])


def _as_written(*words: str) -> str:
    """Return the text of a config's references to the environment: displayed configs never hold a variable's value."""
    return f"${{oc.env:{','.join(words)}}}"


def _never_run(composed: DictConfig) -> None:
    """Do nothing: the job of a command line with which Hydra only shows something."""


def measuring(arguments: Sequence[str], *, lists: Sequence[str] = ()) -> Request:
    """Return a command line that asks for cells: models and datasets take patterns; `k=1,10` is one list of k.

    Args:
        arguments: what follows the command's name.
        lists: further options for which `a,b` is one list.

    Raises:
        BadInput: see `Request.read`.

    """
    named = {name: name for name in (*_LISTS, *lists)}
    return Request.read("config", arguments, groups=("model", "dataset"), lists=named)


def sweep_of(request: Request) -> tuple[SweepConfig, list[Config]]:
    """Return the settings of the sweep that a request asks for, and the config of each cell.

    Raises:
        BadInput: a config does not compose, or cells differ in what belongs to the whole sweep.

    """
    jobs = request.jobs()
    named = zip(cells(request.composer, jobs), swept_options(jobs), strict=True)
    configs = [replace(config, swept=config.swept or _swept(config, swept)) for config, swept in named]
    settings = SweepConfig(**{f.name: getattr(configs[0], f.name) for f in fields(SweepConfig)})
    for f in fields(SweepConfig):
        if any(getattr(config, f.name) != getattr(settings, f.name) for config in configs):
            raise BadInput(f"{f.name} belongs to the whole sweep and takes one value; it cannot be swept over")
    return settings, configs


def _swept(config: Config, options: str) -> str:
    """Tell a cell from others of its model and dataset, by its reference and the options that are swept."""
    return ", ".join(filter(None, [f"reference={config.reference.name}" if config.reference else "", options]))
