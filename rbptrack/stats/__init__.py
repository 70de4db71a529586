"""The mathematics of the laws: pure functions on arrays, each with its formula and source in its docstring.

Import a name from the module that holds it: `from rbptrack.stats.power_law import fit_power_law`.
"""
