"""Run sweeps and estimate their costs. A sweep measures cells, delivers the measurements and analyses them."""

from rbptrack.sweep.cells import Cell
from rbptrack.sweep.cost import plan
from rbptrack.sweep.jobs import run_job
from rbptrack.sweep.measuring import measure_cell
from rbptrack.sweep.messages import failure_lines
from rbptrack.sweep.outcomes import Failed, Found, Measured, Outcome
from rbptrack.sweep.resolver import Resolver, resolve
from rbptrack.sweep.sweep import run

__all__ = [
    "Cell",
    "Failed",
    "Found",
    "Measured",
    "Outcome",
    "Resolver",
    "failure_lines",
    "measure_cell",
    "plan",
    "resolve",
    "run",
    "run_job",
]
