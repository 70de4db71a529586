"""`python -m rbptrack` or `python -m rbptrack measure`: measure every cell of a sweep, then analyse them."""

from __future__ import annotations

from rbptrack.analysis.display import HEADLINE_KS
from rbptrack.commands.runner import HydraCommand, load_plugins
from rbptrack.config.request import Request, measuring, sweep_of
from rbptrack.console.progress import spinner
from rbptrack.reporting.runner import choose
from rbptrack.sweep import preflight
from rbptrack.sweep.launch import Sweep
from rbptrack.sweep.resolve import Resolver


def _measure(request: Request) -> int:
    with spinner("reading configs"):
        settings, cells = sweep_of(request)
    plugins = load_plugins(settings.plugins.get("path", []))
    typed = any(o.startswith(("k=", "k.values=")) for o in request.overrides)
    ks = sorted({k for cell in cells for k in cell.k.values}) if typed else []
    analyzers = choose(plugins, settings.analyzers, ks=ks)  # a wrong name is said also where none will run
    analyzers = analyzers if request.multirun else []
    with spinner("looking for models and datasets"):
        resolved = preflight.check(settings, cells, Resolver(), ks_were_typed=typed)
    return Sweep(request, settings, cells, resolved, analyzers, ks or HEADLINE_KS).run()


main = HydraCommand(measuring, _measure)
