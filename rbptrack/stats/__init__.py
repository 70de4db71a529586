"""The mathematics of the laws: pure functions on arrays, each with its formula and source in its docstring.

Import a name from the module that holds it: `from rbptrack.stats.power_law import fit_power_law`.
"""

from rbptrack.base.names import moved


def __getattr__(name: str) -> object:
    """A name that `rbptrack.stats` itself held before 0.2, with a warning that says where it is."""
    return moved(__name__, __path__, name)
