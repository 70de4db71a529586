"""The page: one HTML file that needs no network, with Vega and all data inside.

Everything that comes from data is escaped: in HTML by Jinja2, in JSON by `_json`; figures are gzip in base64 besides.
Rendering calls no plugin.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import math
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import rbptrack
from rbptrack.analysis import Report, Runs, charts
from rbptrack.base.errors import first_line
from rbptrack.base.words import compact, counted, listed, short_hash
from rbptrack.ranks import HEADLINE_KS, rbp_name
from rbptrack.reporting.analyse import Outcome
from rbptrack.reporting.tables import ResultsTable, results_tables, table_text
from rbptrack.sources.cache import cached
from rbptrack.sources.fingerprint import fingerprint

_PLAIN_CSV = 20_000  # bytes; a larger table is in the page compressed
_ALL_CSV = 180_000  # bytes of all tables' links together; the largest beyond are in the store only
_MOST_ROWS = 100  # of a folded table; all are in its CSV
_LONG = 120  # characters of a sentence that a line of the page cannot be relied on to hold
_GLYPHS = "●■▲◆✚▼◀▶"  # as charts.SHAPES


def render(runs: Runs, outcomes: Sequence[Outcome], title: str = "", command: str = "") -> str:
    """The page of a set of analyses: the leading one's sentence, figure and table, a line for each; all else folded.

    Args:
        runs: the measurements that were analysed.
        outcomes: of `analyse`.
        title: empty: what was measured.
        command: the command line that made it, for the page's end.

    """
    lead = next((outcome for outcome in outcomes if outcome.leads and outcome.report is not None), None)
    report = lead.report if lead else None
    explorer = next(iter(report.figures.values()), None) if report else None
    spec, problem = _spec(explorer) if explorer is not None else ("", "")
    table = Markup("")
    tables = results_tables(report) if report else []
    if tables:
        table = _html_table(tables[0].without_asides().without_beside(), filtered=True)
    frame = runs.frame
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = environment.get_template("page.html")
    left_out = _left_out(outcomes)
    parts = [_part(outcome, opened=outcome is lead) for outcome in outcomes if _is_shown(outcome)]
    _drop_largest_links(parts)
    return page.render(
        title=title or page_title(runs),
        sentence=report.headline if report else "",
        problems=[problem] if problem else [],
        explorer=spec,
        controls=_controls(explorer),
        table=table,
        parts=parts,
        measured=_measured(runs),
        measurements=_plain_table(_measurements(frame)),
        measurements_link=_link_to("measurements.csv", frame),
        left_out=left_out,
        left_out_count=counted(len(left_out), "note"),
        made=f"rbptrack {rbptrack.__version__}, {pd.Timestamp.now('UTC'):%Y-%m-%d %H:%M} UTC",
        command=command,
        versions=_plain_table(_versions(frame)),
        css=_asset("page.css"),
        script=_asset("page.js"),
        vega=_vega(),
        config=_json(charts.theme()["config"]),
    )


def page_title(runs: Runs) -> str:
    """What was measured, in a line: `nano on pydocs and stdlib`."""
    names = []
    for column, word in (("family", "families"), ("dataset", "datasets")):
        values = sorted(runs.frame[column].dropna().unique())
        names.append(listed(values) if len(values) <= 3 else f"{len(values)} {word}")
    return f"{names[0] or 'no family'} on {names[1] or 'no dataset'}"


_FOLDER = Path(__file__).parent


@functools.cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@functools.cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script; kept in the cache, as it takes more than a second to make."""

    def bundle() -> pa.Table:
        return pa.table({"script": [vl_convert.javascript_bundle(_SNIPPET)]})

    parts = {"snippet": _SNIPPET} | {name: version(name) for name in ("vl-convert-python", "altair")}
    table = cached(f"vega/{fingerprint(parts)}", pa.schema({"script": pa.string()}), bundle)
    return str(table["script"][0].as_py()).replace("</script", "<\\/script")


def _is_shown(outcome: Outcome) -> bool:
    return outcome.report is None or outcome.has_results


def _part(outcome: Outcome, *, opened: bool) -> dict[str, Any]:
    """An analyzer's line and what is folded below it; opened: its headline and first figure stand above already."""
    report = outcome.report
    sentence = outcome.question if opened else outcome.sentence
    begins = sentence.partition("; ")[0]
    line = f"{begins.removesuffix('.')}."
    part: dict[str, Any] = {"name": outcome.name.replace("_", " "), "line": line, "sentence": ""}
    if len(begins) > _LONG or begins != sentence:
        part["sentence"] = sentence
    part |= {"figures": [], "tables": [], "glossary": [], "notes": [], "links": []}
    if report is None:
        return part
    for name, chart in list(report.figures.items())[1 if opened else 0 :]:
        spec, problem = _spec(chart)
        part["figures"].append({"name": name.replace("_", " "), "spec": spec, "problem": problem})
    part["tables"] = [_html_table(table, most=_MOST_ROWS) for table in results_tables(report)]
    part["glossary"] = _glossary(report)
    part["notes"] = report.notes
    if report.questions:
        part["links"].append(_link_to(f"{outcome.name}.csv", report.results))
    part["links"] += [_link_to(f"{outcome.name}-{name}.csv", table) for name, table in report.tables.items()]
    return part


def _glossary(report: Report) -> list[tuple[str, str]]:
    """Titles and meanings of the questions and of what stands beside them."""
    names = []
    for question in report.questions:
        names += [question, *report.case_columns(question), *report.beside_columns(question)]
    terms = [report.term(name) for name in dict.fromkeys(names)]
    return [(term.title, term.meaning) for term in terms if term.meaning]


def _spec(chart: Any) -> tuple[str, str]:
    """A chart's JSON, packed for the page's script, or "" and why it cannot be drawn."""
    try:
        spec = chart.to_dict(validate=False)  # a third of the time; the browser says what it cannot draw
    except Exception as error:  # a plugin's chart may break any rule of Vega-Lite's
        return "", f"this figure cannot be drawn: {type(error).__name__}: {first_line(error)}"
    spec.pop("config", None)  # in the page once, for all figures
    for name, data in spec.get("datasets", {}).items():
        spec["datasets"][name] = json.loads(data) if isinstance(data, str) else data
    return _packed(_json(spec)), ""


def _json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it ends the element."""
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), default=str)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _finite(value: Any) -> Any:
    """The same with null for every number that is NaN or infinite, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _controls(chart: Any) -> dict[str, Any] | None:
    """What the explorer's slider, lists and legend offer; None for another figure."""
    usermeta = getattr(chart, "usermeta", None)
    if not isinstance(usermeta, dict) or not usermeta.keys() >= {"ks", "families", "metrics", "datasets"}:
        return None
    families = []
    for i, name in enumerate(usermeta["families"]):
        families.append((name, charts.COLOURS[i % len(charts.COLOURS)], _GLYPHS[i % len(_GLYPHS)]))
    return usermeta | {"families": families}


def _html_table(table: ResultsTable, *, filtered: bool = False, most: int | None = None) -> Markup:
    """A table of results: meanings under the pointer, intervals faint, a family and dataset named once.

    Args:
        table: the texts.
        filtered: whether the explorer's legend filters the rows, which then carry their family and dataset.
        most: rows that are shown.

    """
    frame = table.frame if most is None else table.frame.head(most)
    titles = table.titles
    groups = [title for title in titles if table.names[title] in ("family", "dataset")]
    words = [title for title in titles if table.names[title] in ("family", "dataset", "metric", "verdict")]
    head = Markup("")
    for title in titles:
        meaning = table.report.term(table.names[title]).meaning
        head += Markup('<th class="{}" title="{}">{}</th>').format("" if title in words else "number", meaning, title)
    body = Markup("")
    group_before: tuple[str, ...] = ()
    for row in frame.to_dict("records"):
        group = tuple(row[title] for title in groups)
        cells = Markup("")
        for title in titles:
            kind = "number"
            text = row[title]
            if title in groups and group == group_before:
                kind = "again"
            elif title in words:
                kind = ""
            else:
                text = _with_faint_ends(text)
            cells += Markup('<td class="{}">{}</td>').format(kind, text)
        data = Markup("")
        if filtered:
            keys = {"family": "", "dataset": ""} | {table.names[title]: row[title] for title in groups}
            data = Markup(' data-family="{family}" data-dataset="{dataset}"').format(**keys)
        body += Markup('<tr class="{}"{}>{}</tr>\n').format("" if group == group_before else "group", data, cells)
        group_before = group
    more = len(table.frame) - len(frame)
    if more:
        body += Markup('<tr><td colspan="{}">and {} more in the CSV</td></tr>').format(len(titles), more)
    return Markup("<table><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table>").format(head, body)


def _with_faint_ends(text: str) -> str:
    estimate, opening, ends = text.partition(" (")
    if not opening or not ends.endswith(")"):
        return text
    return Markup("{} <small>({}</small>").format(estimate, ends)


def _plain_table(frame: pd.DataFrame) -> Markup:
    """A table of texts, right-aligned where all are numbers."""
    numeric = {name for name in frame if frame[name].str.fullmatch(r"[\d.,]*[kMBT]?").all()}
    kinds = {name: "number" if name in numeric else "" for name in frame}
    head = Markup("").join(Markup('<th class="{}">{}</th>').format(kinds[name], name) for name in frame)
    rows = [
        Markup("<tr>{}</tr>").format(
            Markup("").join(Markup('<td class="{}">{}</td>').format(kinds[name], row[name]) for name in frame)
        )
        for row in frame.to_dict("records")
    ]
    return Markup("<table><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table>").format(head, Markup("\n").join(rows))


def _measured(runs: Runs) -> str:
    frame = runs.frame
    tokens = frame["num_tokens"].sum()
    models = frame["model"].nunique()
    datasets = counted(frame["dataset"].nunique(), "dataset")
    return f"{len(frame):,} of {counted(models, 'model')} on {datasets}, {compact(float(tokens))} tokens"


def _measurements(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per measurement, as texts."""
    shown = {
        "name": "measurement",
        "non_embedding_params": "S",
        "num_tokens": "tokens",
        "documents": "documents",
        "ce": "CE",
    }
    forms: dict[str, Callable[[Any], str]] = {
        "non_embedding_params": compact,
        "num_tokens": "{:,}".format,
        "documents": "{:,}".format,
        "ce": "{:.4f}".format,
    }
    for k in HEADLINE_KS:
        shown[rbp_name(k)] = f"RBP_{k}"
        forms[rbp_name(k)] = "{:.4f}".format
    shown |= {"dtype": "dtype", "fingerprint": "fingerprint"}
    forms["fingerprint"] = lambda text: str(text)[:8]
    ordered = frame.sort_values(["family", "dataset", "non_embedding_params"])
    texts = {}
    for name, title in shown.items():
        if name in ordered and ordered[name].notna().any():
            texts[title] = ["" if pd.isna(value) else forms.get(name, str)(value) for value in ordered[name]]
    return pd.DataFrame(texts, dtype="string").fillna("")


def _versions(frame: pd.DataFrame) -> pd.DataFrame:
    """What models, datasets and programs the numbers come from."""
    rows = [("rbptrack", rbptrack.__version__), ("Python", platform.python_version())]
    rows += [("measured with", text) for text in sorted(frame["software"].dropna().unique())]
    for name, *about in (("model", "repo", "commit"), ("dataset", "dataset_repo", "dataset_commit")):
        sources = frame.sort_values("non_embedding_params")[[name, *about]].fillna("").drop_duplicates()
        for what, repo, commit in sources.astype(str).to_numpy():
            rows.append((what, f"{repo} {short_hash(commit)}".strip()))
    return pd.DataFrame([row for row in rows if row[1]], columns=["what", "version or commit"], dtype="string")


def _left_out(outcomes: Sequence[Outcome]) -> list[str]:
    """What analyzers had nothing to say about, and their notes, each once."""
    lines = []
    analyzers_by_note: dict[str, list[str]] = {}
    for outcome in outcomes:
        if not _is_shown(outcome):
            lines.append(f"{outcome.name}: {outcome.sentence}")
        elif outcome.report is not None:
            for note in outcome.report.notes:
                analyzers_by_note.setdefault(note, []).append(outcome.name)
    for note, names in analyzers_by_note.items():
        who = listed(names) if len(names) < 4 else f"{len(names)} analyzers"
        lines.append(f"{who}: {note}")
    return lines


class _Link(NamedTuple):
    """A table as a file to save: its name and a data: link, which is empty where the page has no room for it."""

    name: str
    url: str


def _link_to(name: str, frame: pd.DataFrame) -> _Link:
    """A link to a table as CSV; compressed where it is large."""
    csv = table_text(frame, "csv")
    content = csv.encode()
    if len(content) > _PLAIN_CSV:
        return _Link(f"{name}.gz", "data:application/gzip;base64," + _packed(csv))
    return _Link(name, "data:text/csv;charset=utf-8," + quote(content, safe=",;:/()+-._~=|@!*?'"))


def _drop_largest_links(parts: list[dict[str, Any]]) -> None:
    """Leave out the links that a page has no room for, the largest first; their names stay."""
    links = [link for part in parts for link in part["links"]]
    kept = set()
    total = 0
    for link in sorted(links, key=lambda link: (len(link.url), link.name)):
        total += len(link.url)
        if total <= _ALL_CSV:
            kept.add(link)
    for part in parts:
        part["links"] = [link if link in kept else _Link(link.name, "") for link in part["links"]]


def _packed(text: str) -> str:
    """Text in gzip and base64, for the page's script or a data: link."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
