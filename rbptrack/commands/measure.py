"""`python -m rbptrack` or `python -m rbptrack measure`: measure every cell of a sweep, then analyse them."""

from __future__ import annotations

from rbptrack.commands.runner import HydraCommand, load_plugins
from rbptrack.config.compose import Request, measuring, sweep_of
from rbptrack.reporting.runner import choose
from rbptrack.sweep import preflight
from rbptrack.sweep.launch import Sweep, without_secrets
from rbptrack.sweep.resolve import process_resolver


def _measure(request: Request) -> int:
    request = without_secrets(request)
    settings, cells = sweep_of(request)
    plugins = load_plugins(settings.plugins.get("path", []))
    analyzers = choose(plugins, settings.analyzers) if request.multirun else []
    typed = any(o.startswith(("k=", "k.values=")) for o in request.overrides)
    preflight.check(settings, cells, process_resolver(), ks_were_typed=typed)
    return Sweep(request, settings, cells, analyzers).run()


main = HydraCommand(measuring, _measure)
