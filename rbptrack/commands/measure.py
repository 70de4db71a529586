"""`python -m rbptrack` or `python -m rbptrack measure`: measure every cell of a sweep, then analyse them."""

from __future__ import annotations

from rbptrack.base.errors import BadInput
from rbptrack.commands.runner import HydraCommand, complain_of_broken, find_analyzers
from rbptrack.config.request import Request, sweep_of
from rbptrack.console.progress import spinner
from rbptrack.ranks import HEADLINE_KS
from rbptrack.reporting.runner import choose
from rbptrack.sweep.executors import requested
from rbptrack.sweep.launch import Sweep
from rbptrack.sweep.resolve import Resolver
from rbptrack.tracking.store import Store


def _measure(request: Request) -> int:
    with spinner("reading configs"):
        settings, cells = sweep_of(request)
    typed = any(o.startswith(("k=", "k.values=")) for o in request.overrides)
    ks = sorted({k for cell in cells for k in cell.k.values}) if typed else []
    with spinner("loading plugins"):
        plugins = find_analyzers(settings.plugins.get("path", []))
        analyzers = choose(plugins, settings.analyzers, ks=ks)  # a wrong name is an error even if none will run
    complain_of_broken(plugins)
    analyzers = analyzers if request.multirun else []
    with spinner("looking for models and datasets"):
        Store(settings.tracking).check_writable()
        resolver = Resolver()
        resolved = [resolver.resolve(cell) for cell in cells]
    largest = max(cell.candidates for cell in resolved)
    if too_large := [k for k in ks if k > largest]:  # of the default list, such k are left out later, with a note
        raise BadInput(
            f"k must be between 1 and {largest}, the largest vocabulary of the models asked for; "
            f"got {', '.join(map(str, too_large))}"
        )
    return Sweep(request, settings, cells, resolved, analyzers, ks or HEADLINE_KS).run()


main = HydraCommand(requested, _measure)
