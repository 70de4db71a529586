"""Vega as a script, for pages and for the output of notebooks. Neither loads anything from the network."""

from __future__ import annotations

import functools
import json
import uuid
from importlib.metadata import version
from typing import Any

import altair as alt
import pyarrow as pa

from rbptrack.base.formatting import plain_json
from rbptrack.figures.drawing import CannotDraw, draw
from rbptrack.sources.cache import cached_table, hash_settings

_SNIPPET = "window.vegaEmbed = vegaEmbed;"
_RENDERER = "rbptrack"


@functools.cache
def vega_script() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script. It is cached on disk, because it takes a second to make.

    Raises CannotDraw if V8, which makes the script, cannot run on this machine.
    """

    def bundle() -> pa.Table:
        return pa.table({"script": [draw("javascript_bundle", snippet=_SNIPPET).decode()]})

    parts = {"snippet": _SNIPPET} | {name: version(name) for name in ("vl-convert-python", "altair")}
    table = cached_table(f"vega/{hash_settings(parts)}", pa.schema({"script": pa.string()}), bundle)
    return str(table["script"][0].as_py()).replace("</script", "<\\/script")


def show_without_network() -> None:
    """Let notebooks show charts with the script of Vega in their output, so that they need no network.

    Altair's default renderer loads Vega from a server. If the user has enabled another renderer, it stays.
    """
    alt.renderers.register(_RENDERER, _render)
    if alt.renderers.active == "default":
        alt.renderers.enable(_RENDERER)


def _render(spec: dict[str, Any], **_: Any) -> dict[str, str]:
    """Return a chart as the HTML of a notebook's output. If Vega cannot be bundled, the output says why."""
    try:
        script = vega_script()
    except CannotDraw as error:
        return {"text/plain": f"the chart cannot be shown: {error}"}
    element = f"vega-{uuid.uuid4().hex}"
    chart = json.dumps(plain_json(spec)).replace("</", "<\\/")
    options = json.dumps({"mode": "vega-lite", "renderer": "svg", "actions": False})
    # Every output has the script, because a reader may delete the output of another cell.
    load = f"<script>if (!window.vegaEmbed) {{ {script} }}</script>"
    embed = f"<script>vegaEmbed('#{element}', {chart}, {options});</script>"
    return {"text/html": f'<div id="{element}"></div>{load}{embed}'}
