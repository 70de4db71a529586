"""The authors' published exponents beside yours, cell by cell (arXiv 2510.20387, submission draft, Tables 1 and 2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import (
    PUBLISHED_IN,
    Analyzer,
    DocumentCounts,
    Drawing,
    Family,
    RbptrackError,
    Report,
    Runs,
    colour_and_marker,
    counted,
    log_grid,
    panels,
    published_in_k,
    published_in_size,
    rbp_ks,
    read_families,
    shared_columns,
    style,
)
from rbptrack.stats import (
    LawValues,
    Spread,
    fit_k_law,
    implied_se,
    k_slopes,
    law_values,
    positive,
    rounding_se,
)

AGREES, DIFFERS, UNSURE = "agrees", "differs", "undecided"
_UNIT = 0.001  # published values have three decimals
_LEVEL = 0.95  # nominal coverage of the intervals
_COMPARED = {
    "published": "the authors' exponent",
    "published_se": "its standard error, as their R^2, number of sizes and rounding imply",
    "published_r2": "their R^2",
    "yours": "your exponent",
    "se": "its standard error",
    "r2": "your R^2",
    "difference": "yours - published",
    "low": "lower end of the difference's 95% interval, both uncertainties taken together",
    "high": "upper end",
    "verdict": "agrees, differs, or undecided: the interval is wider than the tolerance",
}
COLUMNS = {
    "verdicts": {"table": "of the draft: 1 in k, 2 in size"}
    | shared_columns("dataset", "family")
    | dict.fromkeys((AGREES, DIFFERS, UNSURE), "cells")
    | {"largest difference": "relative, with its cell"},
    "law_in_size": shared_columns("dataset", "family", "metric")
    | {"published_sizes": "how many sizes the authors fitted", "sizes": "how many sizes you fitted"}
    | _COMPARED,
    "law_in_k": shared_columns("dataset", "family", "size")
    | _COMPARED
    | {
        "published_se": "taken as yours (as many documents), and rounding",
        "yours_every_k": "your exponent with every k weighing the same, instead of k even in ln k",
    },
}


@dataclass(kw_only=True)
class Reproduction(Analyzer):
    """Your exponents and R^2 beside the authors' published ones, with a verdict for each.

    Attributes:
        tolerance: relative width from which an interval that includes 0 is too wide to call it agreement.
        largest_k: the law in k is fitted up to this one, as `k_law` does; the authors do not say at which k they did.
        replicates: document bootstraps.

    """

    name: ClassVar[str] = "reproduction"
    tolerance: float = 0.2
    largest_k: int = 100
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Compare every cell that both have."""
        report = Report(summary="verdicts")
        in_size, in_k = published_in_size(), published_in_k()
        known = _published_runs(runs, in_size)
        size_ks = rbp_ks(set(in_size["metric"]))

        def load(family: Family, run_id: str) -> DocumentCounts:
            ks = [k for k in size_ks if k <= family.vocab_size] + self._ks(family)
            return runs.document_counts(run_id, sorted(set(ks)))

        sizes, models = list[dict[str, Any]](), list[dict[str, Any]]()
        for family, counts in read_families(known, load, report.notes):
            name, found = str(family.rows["family"].iloc[0]), law_values(counts, replicates=self.replicates)
            # Table 1 lists the sizes that Table 2 fits.
            fitted = in_k.loc[in_k["family"] == name, "size"].nunique()
            cells = [t[(t["family"] == name) & (t["dataset"] == family.dataset)] for t in (in_size, in_k)]
            if len(family.s) >= 3:
                sizes += self._size_rows(family, cells[0], found, fitted)
            models += self._k_rows(family, cells[1], found)
        if not sizes and not models:
            raise report.nothing_found("no cell of the published tables was measured")
        tables = {"law_in_size": pd.DataFrame(sizes), "law_in_k": pd.DataFrame(models)}
        report.add_table("verdicts", _verdict_rows(tables), COLUMNS["verdicts"])
        for name, table in tables.items():
            report.add_table(name, table, COLUMNS[name])
        report.add_metrics("alpha_minus_published/{family}/{dataset}/{metric}", sizes, "difference")
        caption = f"Your exponents against the published ones ({PUBLISHED_IN}). Bars: 95% intervals. Line: equality."
        report.drawings["yours_against_published"] = Drawing(_draw(tables), caption)
        report.headline = _counts(sizes + models)
        report.notes.insert(0, f"{report.headline[0].upper()}{report.headline[1:]} ({PUBLISHED_IN}).")
        report.notes += self._caveats(known, sizes)
        return report

    def _ks(self, family: Family) -> list[int]:
        """The k of the law in k."""
        return list(range(1, min(self.largest_k, family.vocab_size - 1) + 1))

    def _size_rows(
        self, family: Family, published: pd.DataFrame, found: LawValues, published_sizes: int
    ) -> Iterator[dict[str, Any]]:
        for cell in published.to_dict("records"):
            metric, alpha, r2 = str(cell["metric"]), float(cell["alpha"]), float(cell["r2"])
            law = found.fit(metric, family.s) if metric in found.metrics else None
            if law is None:
                continue
            se = implied_se(alpha, r2, published_sizes, unit=_UNIT)
            row = {"metric": metric, "published_sizes": published_sizes, "sizes": law.points}
            row |= {"published": alpha, "published_se": se, "published_r2": r2}
            row |= {"yours": law.alpha, "se": law.se, "r2": law.r2}
            spread = law.spread + Spread.estimated(se, published_sizes - 2)
            yield family.keys | row | self._verdict(law.alpha - alpha, alpha, spread)

    def _k_rows(self, family: Family, published: pd.DataFrame, found: LawValues) -> Iterator[dict[str, Any]]:
        """Rows for every size that Table 1 lists."""
        if len(self._ks(family)) < 3:
            return
        y, draws = found.of_ks(self._ks(family))  # (m, ks), (m, replicates, ks)
        every = np.array(self._ks(family))
        even = log_grid(len(every)) - 1  # places of k even in ln k
        for i, label in enumerate(family.labels):
            cell = published[published["size"] == label]
            if cell.empty or not positive(y[i]):
                continue
            beta, r2 = float(cell["beta"].iloc[0]), float(cell["r2"].iloc[0])
            fit, whole = fit_k_law(every[even], y[[i]][:, even]), fit_k_law(every, y[[i]])
            with np.errstate(divide="ignore", invalid="ignore"):
                spread = k_slopes(every[even], draws[i][:, even])
            se = float(np.std(spread[np.isfinite(spread)], ddof=1))
            # Neighbouring k share their hits, so residuals say little about the slope: sampling error on both sides.
            other = float(np.hypot(se, rounding_se(_UNIT)))
            row = {"size": label, "published": beta, "published_se": other, "published_r2": r2}
            row |= {
                "yours": float(fit.beta[0]),
                "se": se,
                "r2": float(fit.r2[0]),
                "yours_every_k": float(whole.beta[0]),
            }
            both = Spread(known=se**2 + other**2, beyond=se**2 + other**2, residual=0.0, freedom=1.0)
            yield family.keys | row | self._verdict(float(fit.beta[0]) - beta, beta, both)

    def _verdict(self, difference: float, published: float, spread: Spread) -> dict[str, Any]:
        """The interval of the difference, and what it says."""
        half = spread.half(_LEVEL)
        within = AGREES if half <= self.tolerance * abs(published) else UNSURE
        verdict = within if abs(difference) <= half else DIFFERS
        return {"difference": difference, "low": difference - half, "high": difference + half, "verdict": verdict}

    def _caveats(self, runs: Runs, sizes: list[dict[str, Any]]) -> Iterator[str]:
        frame = runs.frame
        rules = set(zip(frame["sequence"], frame["seq_len"], frame["rank"].fillna("paper"), strict=True))
        if rules != {("truncate", 512, "strict")}:
            listed = ", ".join(sorted(f"{rule} at {length} tokens, rank={rank}" for rule, length, rank in rules))
            yield f"The authors truncate at 512 tokens and count strict ranks (protocol=paper); yours: {listed}."
        fewer = [r for r in sizes if r["sizes"] != r["published_sizes"]]
        if fewer:
            families = ", ".join(sorted({f"{r['family']} {r['sizes']} of {r['published_sizes']}" for r in fewer}))
            yield f"Your sizes are not all of the authors': {families}. Another range may have another slope."


def _published_runs(runs: Runs, in_size: pd.DataFrame) -> Runs:
    """The runs of families and datasets that the tables hold; RbptrackError where there is none."""
    published = set(zip(in_size["family"], in_size["dataset"], strict=True))
    wanted = [key in published for key in zip(runs.frame["family"], runs.frame["dataset"], strict=True)]
    if not any(wanted):
        held, texts = (", ".join(sorted(set(in_size[column]))) for column in ("family", "dataset"))
        raise RbptrackError(f"nothing published to compare with: the authors' tables hold {held} on {texts}")
    return Runs(runs.frame[wanted], histogram=runs.histogram, ranks=runs.ranks, pieces=runs.rank_pieces)


def _counts(rows: list[dict[str, Any]]) -> str:
    verdicts = [row["verdict"] for row in rows]
    agree, differ, unsure = (verdicts.count(v) for v in (AGREES, DIFFERS, UNSURE))
    there = counted(len(rows), "published exponent")
    return f"of {there}, {agree} agree with yours, {differ} differ from yours and {unsure} are undecided"


def _verdict_rows(tables: dict[str, pd.DataFrame]) -> Iterator[dict[str, Any]]:
    for number, name, cell in ((2, "law_in_size", "metric"), (1, "law_in_k", "size")):
        if tables[name].empty:
            continue
        for (dataset, family), group in tables[name].groupby(["dataset", "family"], sort=True):
            relative = (group["difference"] / group["published"]).to_numpy()
            worst = int(np.abs(relative).argmax())
            row = {"table": number, "dataset": dataset, "family": family}
            row |= {verdict: int((group["verdict"] == verdict).sum()) for verdict in (AGREES, DIFFERS, UNSURE)}
            yield row | {"largest difference": f"{relative[worst]:+z.0%} ({group[cell].iloc[worst]})"}


def _draw(tables: dict[str, pd.DataFrame]) -> Figure:
    """Your exponents against the published ones, a panel per law."""
    titles = {"law_in_size": "law in size, α", "law_in_k": "law in k, β"}
    shown = [(table, titles[name]) for name, table in tables.items() if len(table)]
    names = sorted({str(family) for table, _ in shown for family in table["family"]})
    with style():
        figure, axes = panels(1, len(shown), height=4.2)
        for ax, (table, title) in zip(axes[0], shown, strict=True):
            for family, rows in table.groupby("family", sort=True):
                colour, marker = colour_and_marker(names.index(str(family)))
                drawn = {"xerr": 1.96 * rows["published_se"], "yerr": 1.96 * rows["se"], "label": family}
                drawn |= {"fmt": marker, "ms": 4.5, "lw": 0.8, "color": colour}
                ax.errorbar(rows["published"], rows["yours"], **drawn)
            both = pd.concat([table["published"], table["yours"]])
            ends = [min(0.0, float(both.min())), float(both.max()) * 1.1]
            ax.plot(ends, ends, "-", lw=0.8, color="#57606a", zorder=0)
            ax.set(title=title, xlabel="published", ylabel="yours", xlim=ends, ylim=ends)
            ax.legend(loc="best", fontsize=8)
        return figure
