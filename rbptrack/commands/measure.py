"""`python -m rbptrack` or `python -m rbptrack measure`: measure every cell of a sweep, then analyse them."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.analysis.display import HEADLINE_KS
from rbptrack.commands.runner import HydraCommand, load_plugins
from rbptrack.commands.usage import STORE_OPTIONS, Help, entries, write
from rbptrack.config.compose import Composer, Request, measuring, sweep_of
from rbptrack.config.patterns import families, size_key, some
from rbptrack.reporting.runner import choose
from rbptrack.sweep import preflight
from rbptrack.sweep.launch import Sweep
from rbptrack.sweep.resolve import Resolver

HELP = Help(
    "[measure] [-m] model=NAME,... dataset=NAME,... [k=1,10,100] [KEY=VALUE ...]",
    """Measures every model on every dataset, logs each measurement to the tracking store, and fits the laws.

    Models and datasets take lists and patterns: * stays inside a folder, ** crosses folders. Quotes keep the shell from
    expanding them. What was measured before is found and skipped, and a new k is computed from its stored ranks.""",
    {
        "model=NAME,...": "one model, several, or a pattern; below is what there is",
        "dataset=NAME,...": "likewise",
        "k=1,10,100": "the k of RBP_k, or a list by its name: default, paper",
        "protocol=paper": "the procedure of the paper's authors, for every dataset",
        "launch=gpus|ray|slurm": "measure on this machine's GPUs, or on a cluster",
        "launch.partition=NAME": "SLURM's; also account, time (minutes), memory (GB), setup",
        "launch.gpus=auto": "give each job the GPUs that its model needs",
        "shards=8|auto": "divide each cell among so many jobs, or by what it costs",
        "model.parallel=tensor": "split a model over the GPUs of its job",
        "analyzers=NAME,...": "what analyses a sweep at its end; all by default, [] for none",
        "force=true": "measure again what was measured before",
        "again=columns": "likewise, but only what lacks columns that rank tables have by now",
        "model.dtype=bfloat16": "and every other key of a config: --cfg job shows all, with their values",
        **STORE_OPTIONS,
        "--config-dir FOLDER": "more configs, beside conf/ of the working folder",
    },
    {
        "": "one small embedded model on an embedded corpus",
        "'model=nano/*' dataset=stdlib,pydocs": "a family on two corpora, and its law",
        "'model=pythia/*' dataset=wiki,humaneval k=1,5,50": "models and datasets of the hub; the k to show",
        "model=hf model.repo=org/name dataset=wiki": "any model of the hub",
    },
)


def show_help(arguments: Sequence[str]) -> None:
    """What `-h` shows: the options, and the models and datasets that there are."""
    HELP.show()
    composer = Composer("config", arguments)
    models = composer.options("model")
    folders = {f"{name}/": " ".join(some(sizes)) for name, sizes in families(models).items()}
    entries("Models (model=FAMILY/SIZE)", folders)
    plain = {"Models, others": [name for name in models if "/" not in name], "Datasets": composer.options("dataset")}
    for title, names in plain.items():
        write("")
        write(title, style="bold")
        write(", ".join(sorted(names, key=size_key)), indent=2)


def _measure(request: Request) -> int:
    settings, cells = sweep_of(request)
    plugins = load_plugins(settings.plugins.get("path", []))
    typed = any(o.startswith(("k=", "k.values=")) for o in request.overrides)
    ks = sorted({k for cell in cells for k in cell.k.values}) if typed else []
    analyzers = choose(plugins, settings.analyzers, ks=ks)  # a wrong name is said also where none will run
    analyzers = analyzers if request.multirun else []
    resolved = preflight.check(settings, cells, Resolver(), ks_were_typed=typed)
    return Sweep(request, settings, cells, resolved, analyzers, ks or HEADLINE_KS).run()


main = HydraCommand(measuring, _measure, show_help)
