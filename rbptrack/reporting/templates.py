"""What the pages have in common: the Jinja templates, the names in titles, and compressed texts."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

import rbptrack
from rbptrack.base.formatting import listed


def load_template(name: str) -> Template:
    """Load a Jinja template of this folder. It escapes all values, and knows `made`: the version and the time."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made = f"rbptrack {rbptrack.__version__}, {pd.Timestamp.now('UTC'):%Y-%m-%d %H:%M} UTC"
    return environment.get_template(name, globals={"made": made})


def families_and_datasets(frame: pd.DataFrame) -> str:
    """Name the families and datasets of rows of `Runs.frame` in one line, such as `nano on pydocs and stdlib`."""
    names = []
    for column, noun in (("family", "families"), ("dataset", "datasets")):
        values = sorted(frame[column].dropna().unique())
        names.append(listed(values) if len(values) <= 3 else f"{len(values)} {noun}")
    return f"{names[0] or 'no family'} on {names[1] or 'no dataset'}"


def compress_text(text: str) -> str:
    """Compress a text with gzip and encode it in base64, for the script of a page or for a data: URL."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
