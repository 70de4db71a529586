"""Tests of rbptrack. Each process computes with one thread, because two processes run at once."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # NumPy and torch read it when they are imported, before any fixture
