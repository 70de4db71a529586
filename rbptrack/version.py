"""The version of this program, from its package's metadata."""

from importlib.metadata import version

__version__ = version("rbptrack")
