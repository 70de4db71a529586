"""The tests, whose processes use their threads as the program does: imported before anything imports torch or NumPy."""

import os

# See rbptrack/__main__.py: beside other work (other workers of the tests), threads that spin take most of the time.
THREADS = {"GOMP_SPINCOUNT": "10000", "OPENBLAS_NUM_THREADS": "1"}
os.environ.update(THREADS)
