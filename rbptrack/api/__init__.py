"""Functions for Python: measure a model in memory, read, compare and analyse measurements, and fit laws.

They need no config file. A measurement is logged only if its method `log` is called. In notebooks, charts need no
network: unless another renderer of Altair is enabled, one is enabled that puts Vega into each chart.
"""

from rbptrack.api.comparing import compare
from rbptrack.api.loggable import LoggableMeasurement
from rbptrack.api.measuring import measure
from rbptrack.api.stored import StoredRuns, laws, report, runs

__all__ = ["LoggableMeasurement", "StoredRuns", "compare", "laws", "measure", "report", "runs"]
