"""Sweeps: their cells, what is measured already, measuring here or in jobs, the summary; and plans of their cost."""

from rbptrack.sweep.cell import FAILED, FOUND, Outcome, measure_cell
from rbptrack.sweep.cost import plan
from rbptrack.sweep.resolve import Cell, Resolver, resolve
from rbptrack.sweep.run import run

__all__ = ["FAILED", "FOUND", "Cell", "Outcome", "Resolver", "measure_cell", "plan", "resolve", "run"]
