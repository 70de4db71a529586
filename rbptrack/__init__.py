"""rbptrack: how families of language models rank the right next token, and what scaling law that follows."""

from importlib.metadata import version

__version__ = version("rbptrack")
