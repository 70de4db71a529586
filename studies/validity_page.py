"""Makes docs/explanation/validity.md from the results of the studies.

The text is that of studies/validity.md.jinja. Its tables and rates are made from studies/validity.csv, freedom.csv and
seeds.csv. `python -m studies.validity --table` writes the page, and tests/test_docs.py checks that it is current.

Each row of studies/validity.csv is one claim in one cell, a combination of settings. Its columns are:

    experiment  name of the experiment
    claim       kind of the claim (see studies/experiment.py), a colon, and what is claimed
    nominal     value that the claim should have in percent, or empty
    where       settings of the cell, such as `m=3 D=20 t3 even tau=0`
    draws       number of draws
    judged      number of draws in which the analyzer gave an answer
    value       result, in percent for most kinds of claims
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined

from studies import freedom, seeds
from studies.experiment import NOMINAL, ROOT, kind_of
from studies.freedom import LENGTHS

CSV = ROOT / "studies/validity.csv"
TEMPLATE = ROOT / "studies/validity.md.jinja"
PAGE = ROOT / "docs/explanation/validity.md"
ALIKE = r"^(?!.*(?:ends|grows|ar)=)"
"""A pattern of the settings of cells in which all models scatter alike."""

_SCATTER = {
    "ends": "end sizes scatter {} times as much",
    "grows": "the largest model scatters {} times as much as the smallest",
    "ar": "scatter of neighbouring sizes correlated by {}",
}

_TOPICS = {
    "the law of one family": ("exponents", "hard", "dependent", "edge", "forecasts", "forms", "outlier"),
    "several families, datasets or seeds": (
        "together",
        "families",
        "equivalent",
        "shared",
        "datasets",
        "means",
        "seeds",
    ),
    "documents with a common source": ("sources", "near_copies"),
}
"""The experiments of each table of intervals. All other experiments are in the table of `_OTHER_TOPIC`."""
_OTHER_TOPIC = "single models and other analyzers"

_TOLERATED = 3.0  # percentage points that a result may be off its nominal value; chance alone explains some 2 of them

_LABELS = {"false": "false alarm", "share": "share of draws"}
"""The first words of titles, by the first word of the claim. Other claims keep their first word."""


def write_page() -> None:
    """Write the page."""
    PAGE.write_text(page_text(), encoding="utf-8")


def page_text() -> str:
    """Return the text that the page should have."""
    rows = pd.read_csv(CSV)
    tables = {title: make_table(rows) for title, make_table in TABLES.items()}
    tables["other rules"] = freedom_table(pd.read_csv(freedom.CSV))
    tables["several runs of one size"] = seeds_table(pd.read_csv(seeds.CSV))
    names = {
        "table": tables.__getitem__,
        "rate": partial(rate, rows),
        "highest": partial(rate, rows, only_highest=True),
    }
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(names, ALIKE=ALIKE)


def rate(
    rows: pd.DataFrame,
    claim: str,
    where: str = "",
    experiment: str = "",
    *,
    digits: int = 0,
    only_highest: bool = False,
) -> str:
    """Return the least and the largest result of a claim, such as `62 to 96`. Exits if the CSV has no such cells.

    Args:
        rows: the rows of studies/validity.csv.
        claim: the claim, as in the CSV.
        where: a regular expression. Only cells whose settings match it are used.
        experiment: the experiment that the cells belong to; empty if only one experiment makes the claim.
        digits: the number of digits after the decimal point.
        only_highest: whether to return only the largest result.

    """
    chosen = rows[(rows["claim"] == claim) & rows["where"].str.contains(where) & (rows["judged"] >= rows["draws"] / 2)]
    if experiment:
        chosen = chosen[chosen["experiment"] == experiment]
    if not len(chosen):
        raise SystemExit(f"studies/validity.csv has no cells of {claim!r} where {where!r}")
    least, most = (f"{value:.{digits}f}" for value in (chosen["value"].min(), chosen["value"].max()))
    return most if only_highest or least == most else f"{least} to {most}"


def _topic_of(experiment: str) -> str:
    return next((topic for topic, names in _TOPICS.items() if experiment in names), _OTHER_TOPIC)


def interval_table(topic: str, rows: pd.DataFrame) -> str:
    """Return the table of intervals and false alarms of one topic.

    A row has the median and the worst of the cells of a claim. Cells in which models do not scatter alike are left out.
    """
    lines = [
        "| claim | nominal | median | worst | where | cells | draws a cell |",
        "|---|---:|---:|---:|---|---:|---:|",
    ]
    chosen = rows["claim"].map(kind_of).isin(["covers", "false"]) & (rows["experiment"] != "deciding")
    chosen &= (rows["experiment"].map(_topic_of) == topic) & (_scatter_of_cells(rows) == "")
    for title, cells in _group_by_claim(rows[chosen]):
        kind = kind_of(cells["claim"].iloc[0])
        worst = cells.sort_values("value", ascending=kind == "covers", kind="stable").iloc[0]
        lines.append(
            f"| {title} | {NOMINAL[kind]} | {cells['value'].median():.1f} | {_format_result(worst)} "
            f"| {_settings_text(worst)} | {len(cells)} | {_draws_text(cells)} |"
        )
    return "\n".join(lines)


def scatter_table(rows: pd.DataFrame) -> str:
    """Return the table of cells in which models do not scatter alike: the median and the worst of each claim."""
    scatter = _scatter_of_cells(rows)
    chosen = (scatter != "") & rows["claim"].map(kind_of).isin(["covers", "false"])
    rows = rows.assign(scatter=scatter)[chosen & (rows["judged"] >= rows["draws"] / 2)]
    names = list(rows["scatter"].unique())
    lines = [
        f"| claim | nominal | {' | '.join(f'{name}: median | worst' for name in names)} |",
        "|---|" + "---:|" * (1 + 2 * len(names)),
    ]
    for claim, claim_rows in rows.groupby("claim", sort=False):
        kind = kind_of(str(claim))
        columns = []
        for name in names:
            cells = claim_rows[claim_rows["scatter"] == name]
            worst = cells.sort_values("value", ascending=kind == "covers", kind="stable").iloc[0]
            columns.append(f"{cells['value'].median():.1f} | {_format_result(worst)}")
        lines.append(f"| {_title(str(claim))} | {NOMINAL[kind]} | {' | '.join(columns)} |")
    return "\n".join(lines)


def _range_cells(cells: pd.DataFrame, form: str, unit: str = "") -> str:
    """Return the median, the least and the largest result of a claim's cells, with their settings, as table cells."""
    ordered = cells.sort_values("value", kind="stable")
    parts = [f"{cells['value'].median():{form}}{unit}"]
    for _, row in ordered.iloc[[0, -1]].iterrows():
        parts += [f"{row['value']:{form}}{unit}", _settings_text(row)]
    return " | ".join(parts)


def power_table(rows: pd.DataFrame) -> str:
    """Return the table of what tests find. A row has the median, least and largest result of a claim's cells."""
    lines = [
        "| test | median | least | where | most | where | draws a cell |",
        "|---|---:|---:|---|---:|---|---:|",
    ]
    for title, cells in _group_by_claim(rows[rows["claim"].map(kind_of) == "found"]):
        lines.append(f"| {title} | {_range_cells(cells, '.0f')} | {_draws_text(cells)} |")
    return "\n".join(lines)


def other_numbers_table(rows: pd.DataFrame) -> str:
    """Return the table of numbers without a nominal value."""
    lines = ["| number | median | least | where | most | where |", "|---|---:|---:|---|---:|---|"]
    chosen = rows["claim"].map(kind_of).isin(["share", "median", "error"])
    for title, cells in _group_by_claim(rows[chosen & (_scatter_of_cells(rows) == "")]):
        kind = kind_of(cells["claim"].iloc[0])
        form = ".3f" if kind == "error" else ".0f"
        unit = "%" if kind == "share" else ""
        lines.append(f"| {title} | {_range_cells(cells, form, unit)} |")
    return "\n".join(lines)


def deciding_table(rows: pd.DataFrame) -> str:
    """Return the table of how many documents decide a number.

    A row is for one number of documents and one distribution of lengths. It has ranges over all cells with these two
    settings, which differ in the distribution of difficulty and in the scatter of models.
    """
    lines = [
        "| documents, longest of 100 | α is covered (95) | 90th percentile of the width over its median "
        "| Δα is falsely found (5) |",
        "|---|---:|---:|---:|",
    ]
    rows = rows[rows["experiment"] == "deciding"]
    for documents, (lengths, label) in product((20, 50, 135), LENGTHS.items()):
        cells = rows[rows["where"].str.contains(rf"D={documents} \w+ {lengths}")]
        values_of_kind = dict(list(cells.groupby(cells["claim"].map(kind_of))["value"]))
        spread = values_of_kind["spread"].max()
        percent_false = values_of_kind["false"]
        lines.append(
            f"| {documents}, {label} | {_range_text(values_of_kind['covers'])} "
            f"| at most {_format_number(spread, bold=spread > 2.5)} "
            f"| {percent_false.min():.1f} to {_format_false(percent_false.max())} |"
        )
    return "\n".join(lines)


def freedom_table(rows: pd.DataFrame) -> str:
    """Return the table of rules for degrees of freedom. rows: those of studies/freedom.csv."""
    lines = [
        "| d | longest of 100 | Δα is covered (95): worst to best cell | median | Δα = 0.03 is found "
        "| 90th percentile of the width over its median |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in rows.to_dict("records"):
        lines.append(
            f"| {row['rule']} | {LENGTHS[row['lengths']]} "
            f"| {_format_coverage(row['covered_min'])} to {row['covered_max']:.1f} | {row['covered_median']:.1f} "
            f"| {_percent_range(row['found_min'], row['found_max'])} | at most {row['spread_max']:.1f} |"
        )
    return "\n".join(lines)


def seeds_table(rows: pd.DataFrame) -> str:
    """Return the table of laws of several runs of each size. rows: those of studies/seeds.csv."""
    lines = [
        "| sizes, runs of each | variance shared by a size | one point a size: α is covered (95) | width "
        "| one point a run: α is covered | width |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (sizes, runs), cells in rows.groupby(["sizes", "runs"], sort=False):
        columns = [
            cells["shared_variance"].map("{:.0%}".format),
            cells["covered_by_size"].map(_format_coverage),
            cells["width_by_size"].map("{:.3f}".format),
            cells["covered_by_run"].map(_format_coverage),
            cells["width_by_run"].map("{:.3f}".format),
        ]
        lines.append(f"| {sizes}, {runs} | {' | '.join(' / '.join(texts) for texts in columns)} |")
    return "\n".join(lines)


TABLES: Mapping[str, Callable[[pd.DataFrame], str]] = {
    **{topic: partial(interval_table, topic) for topic in (*_TOPICS, _OTHER_TOPIC)},
    "models that do not scatter alike": scatter_table,
    "what tests find": power_table,
    "other numbers": other_numbers_table,
    "how many documents decide": deciding_table,
}


def _title(claim: str) -> str:
    """Return the title of a claim in the tables: `false alarm: a bend` for `false: a bend`."""
    kind, _, subject = claim.partition(": ")
    return f"{_LABELS.get(kind, kind)}: {subject}"


def _group_by_claim(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the title of each claim in the tables, and its rows.

    Cells in which an analyzer answered in fewer than half of the draws are left out. A claim without other cells is not
    returned. The cells of `exponents` in which models do not scatter alike form claims of their own.
    """
    claims = []
    for (_, claim, scatter), claim_rows in rows.groupby(["experiment", "claim", _scatter_of_cells(rows)], sort=False):
        usable = claim_rows[claim_rows["judged"] >= claim_rows["draws"] / 2]
        if len(usable):
            title = _title(str(claim))
            claims.append((f"{title}; {scatter}" if scatter else title, usable))
    return claims


def _scatter_of_cells(rows: pd.DataFrame) -> pd.Series:
    """Describe how models scatter in the cell of each row. The text is empty if all models scatter alike."""
    return rows["where"].where(rows["experiment"] == "exponents", "").map(_describe_scatter)


def _describe_scatter(settings: str) -> str:
    for name, description in _SCATTER.items():
        match = re.search(rf"\b{name}=(\S+)", settings)
        if match:
            return description.format(match[1])
    return ""


def _settings_text(row: pd.Series) -> str:
    """Return the settings of a cell, without settings of the scatter, which the title of the claim describes."""
    settings = str(row["where"])
    if row["experiment"] != "exponents":
        return settings
    return re.sub(rf" ?\b({'|'.join(_SCATTER)})=\S+", "", settings)


def _format_result(row: pd.Series) -> str:
    """Format the result of a cell. It is bold if it is more than 3 percentage points worse than its nominal value."""
    kind = kind_of(row["claim"])
    excess = float(row["value"]) - NOMINAL.get(kind, np.nan)
    return _format_number(row["value"], bold=excess > _TOLERATED if kind == "false" else excess < -_TOLERATED)


def _format_false(percent: float) -> str:
    """Write a percentage of false alarms. It is bold if it is too high."""
    return _format_number(percent, bold=percent > NOMINAL["false"] + _TOLERATED)


def _format_number(value: float, *, bold: bool) -> str:
    return f"**{value:.1f}**" if bold else f"{value:.1f}"


def _format_coverage(percent: float) -> str:
    return _format_number(percent, bold=percent < NOMINAL["covers"] - _TOLERATED)


def _draws_text(rows: pd.DataFrame) -> str:
    fewest, most = rows["judged"].min(), rows["judged"].max()
    return f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"


def _percent_range(least: float, most: float) -> str:
    return f"{least:.0f}%" if least == most else f"{least:.0f} to {most:.0f}%"


def _range_text(values: pd.Series) -> str:
    return f"{values.min():.1f} to {values.max():.1f}"
