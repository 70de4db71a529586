"""What every other folder may use: errors, files, names, words, secrets, this process; and the program's version."""

from importlib.metadata import version

__version__ = version("rbptrack")
