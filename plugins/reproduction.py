"""The authors' published exponents beside yours, cell by cell (arXiv 2510.20387, submission draft, Tables 1 and 2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from rbptrack.analysis import (
    Analyzer,
    DocumentCounts,
    Drawing,
    Family,
    RbptrackError,
    Report,
    Runs,
    colour_and_marker,
    log_grid,
    panels,
    read_families,
    style,
)
from rbptrack.stats import FloatArray, fit_power_law, law_values, paired_covariance

REFERENCE = Path(__file__).with_name("reference")
SOURCE = "ICLR 2026 submission draft of arXiv 2510.20387"
AGREES, DIFFERS, UNSURE = "agrees", "differs", "cannot tell"
_ROUNDING = 0.0005  # published values have three decimals
_COMPARED = {
    "dataset": "the dataset",
    "family": "the family",
    "published": "the authors' exponent",
    "published_se": "its standard error, as their R^2, number of sizes and rounding imply",
    "published_r2": "their R^2",
    "yours": "your exponent",
    "se": "its standard error",
    "r2": "your R^2",
    "difference": "yours - published",
    "low": "lower end of the difference's 95 % interval, both uncertainties taken together",
    "high": "upper end",
    "verdict": "agrees, differs, or cannot tell: the interval is wider than the tolerance",
}


def _columns(*more: str) -> dict[str, str]:
    meaning = {
        "metric": "CE or RBP_k",
        "published_sizes": "how many sizes the authors fitted",
        "sizes": "how many sizes you fitted",
        "size": "published label",
    }
    keys = {name: _COMPARED[name] for name in ("dataset", "family")}
    return keys | {name: meaning[name] for name in more} | {k: v for k, v in _COMPARED.items() if k not in keys}


COLUMNS: dict[str, dict[str, str]] = {
    "verdicts": {
        "table": "of the draft: 1 in k, 2 in size",
        "dataset": "the dataset",
        "family": "the family",
        AGREES: "cells",
        DIFFERS: "cells",
        UNSURE: "cells",
        "largest difference": "relative, with its cell",
    },
    "law_in_size": _columns("metric", "published_sizes", "sizes"),
    "law_in_k": _columns("size")
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
        in_size = pd.read_csv(REFERENCE / "scaling_with_size.csv")
        in_k = pd.read_csv(REFERENCE / "scaling_with_k.csv", dtype={"size": str})
        fitted = in_k.groupby("family")["size"].nunique()  # Table 1 lists the sizes that Table 2 fits

        published = set(zip(in_size["family"], in_size["dataset"], strict=True))
        wanted = [key in published for key in zip(runs.frame["family"], runs.frame["dataset"], strict=True)]
        if not any(wanted):
            held, texts = (", ".join(sorted(set(in_size[column]))) for column in ("family", "dataset"))
            raise RbptrackError(f"nothing published to compare with: the authors' tables hold {held} on {texts}")

        known = Runs(runs.frame[wanted], histogram=runs.histogram, ranks=runs.ranks)
        size_ks = sorted({int(m[4:]) for m in in_size["metric"] if m != "ce"})

        def load(family: Family, run_id: str) -> DocumentCounts:
            ks = [k for k in size_ks if k <= family.vocab_size] + self._ks(family)
            return runs.document_counts(run_id, sorted(set(ks)))

        sizes, models = list[dict[str, Any]](), list[dict[str, Any]]()
        for family, counts in read_families(known, load, report.notes):
            name = str(family.rows["family"].iloc[0])
            found = law_values(counts, replicates=self.replicates)
            values, draws = found.values, found.draws
            place = {f"rbp_{k}": i + 1 for i, k in enumerate(counts[0].ks)} | {"ce": 0}
            theirs = in_size[(in_size["family"] == name) & (in_size["dataset"] == family.dataset)]
            if len(family.s) >= 3:
                sizes += self._in_size(family, theirs, place, values, draws, int(fitted[name]))
            columns = [place[f"rbp_{k}"] for k in self._ks(family)]
            theirs = in_k[(in_k["family"] == name) & (in_k["dataset"] == family.dataset)]
            models += self._in_k(family, theirs, values[:, columns], draws[:, :, columns])
        if not sizes and not models:
            raise report.nothing_found("no cell of the published tables was measured")
        tables = {
            table: pd.DataFrame(rows, columns=list(COLUMNS[table]))
            for table, rows in (("law_in_size", sizes), ("law_in_k", models))
            if rows
        }
        report.add_table("verdicts", _verdicts(tables), COLUMNS["verdicts"])
        for name, table in tables.items():
            report.add_table(name, table, COLUMNS[name])
        for row in sizes:
            where = f"{row['family']}/{row['dataset']}/{row['metric']}"
            report.metrics[f"alpha_minus_published/{where}"] = row["difference"]
        report.drawings["yours_against_published"] = Drawing(
            _figure(tables), f"Published: {SOURCE}. Bars: 95 % intervals; line: equality."
        )
        report.headline = _counts(sizes + models)
        report.notes.insert(0, f"{report.headline[0].upper()}{report.headline[1:]} ({SOURCE}).")
        report.notes += self._caveats(known, sizes)
        return report

    def _ks(self, family: Family) -> list[int]:
        return list(range(1, min(self.largest_k, family.vocab_size - 1) + 1))

    def _in_size(
        self,
        family: Family,
        theirs: pd.DataFrame,
        place: dict[str, int],
        values: FloatArray,
        draws: FloatArray,
        published_sizes: int,
    ) -> Iterator[dict[str, Any]]:
        for row in theirs.to_dict("records"):
            column = place.get(str(row["metric"]))
            if column is None:
                continue
            y, replicate = values[:, column], draws[:, :, column]
            if not (np.isfinite(y).all() and (y > 0).all() and (replicate > 0).all() and np.isfinite(replicate).all()):
                continue
            law = fit_power_law(family.s, y, covariance=paired_covariance(list(np.log(replicate))))
            theirs_se = _implied_se(-float(row["slope"]), float(row["r2"]), published_sizes)
            yield {
                "dataset": family.dataset,
                "family": family.name,
                "metric": row["metric"],
                "published_sizes": published_sizes,
                "sizes": law.points,
                "published": -float(row["slope"]),
                "published_se": theirs_se,
                "published_r2": float(row["r2"]),
                "yours": law.alpha,
                "se": law.se,
                "r2": law.r2,
            } | self._verdict(law.alpha, law.se, law.points - 2, -float(row["slope"]), theirs_se, published_sizes - 2)

    def _in_k(
        self, family: Family, theirs: pd.DataFrame, values: FloatArray, draws: FloatArray
    ) -> Iterator[dict[str, Any]]:
        """Rows for every size that Table 1 lists; values (m, ks) and draws (m, replicates, ks) are -ln RBP_k."""
        every = np.arange(1, values.shape[1] + 1)
        even = log_grid(len(every)) - 1  # places of k even in ln k
        x = np.log(every[even])
        x = x - x.mean()
        for i, label in enumerate(family.labels):
            found = theirs[theirs["size"] == label]
            if found.empty or not (np.isfinite(values[i]) & (values[i] > 0)).all():
                continue
            slope, r2 = float(found["slope"].iloc[0]), float(found["r2"].iloc[0])
            logs = np.log(values[i, even])
            beta = -float(x @ logs / (x @ x))
            residual = logs - logs.mean() + beta * x
            with np.errstate(divide="ignore", invalid="ignore"):
                spread = -(np.log(draws[i][:, even]) @ x) / (x @ x)
            se = float(np.std(spread[np.isfinite(spread)], ddof=1))
            # Neighbouring k share their hits, so residuals say little about the slope: sampling error on both sides.
            theirs_se = float(np.hypot(se, _ROUNDING / np.sqrt(3)))
            yield {
                "dataset": family.dataset,
                "family": family.name,
                "size": label,
                "published": -slope,
                "published_se": theirs_se,
                "published_r2": r2,
                "yours": beta,
                "se": se,
                "r2": 1 - float(residual @ residual) / float(((logs - logs.mean()) ** 2).sum()),
                "yours_every_k": -float(np.polyfit(np.log(every), np.log(values[i]), 1)[0]),
            } | self._verdict(beta, se, 1000, -slope, theirs_se, 1000)

    def _verdict(
        self, yours: float, se: float, df: int, published: float, other: float, other_df: int
    ) -> dict[str, Any]:
        """Welch's interval of the difference, and what it says."""
        both = np.hypot(se, other)
        freedom = both**4 / max(se**4 / df + other**4 / other_df, 1e-300) if both > 0 else 1.0
        half = float(stats.t.ppf(0.975, max(freedom, 1.0)) * both)
        difference = yours - published
        within = AGREES if half <= self.tolerance * abs(published) else UNSURE
        verdict = DIFFERS if abs(difference) > half else within
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
            yield f"Not the same sizes as the authors': {families}. Over another range a law may have another slope."


def _implied_se(alpha: float, r2: float, points: int) -> float:
    """Standard error of an OLS slope from its R^2, at the worst that rounding allows, and the slope's rounding."""
    lowest = min(max(r2 - _ROUNDING, 1e-6), 1.0)
    return float(np.hypot(abs(alpha) * np.sqrt((1 - lowest) / lowest / max(points - 2, 1)), _ROUNDING / np.sqrt(3)))


def _counts(rows: list[dict[str, Any]]) -> str:
    verdicts = [row["verdict"] for row in rows]
    agree, differ, unsure = (verdicts.count(v) for v in (AGREES, DIFFERS, UNSURE))
    return f"of {len(rows)} published exponents {agree} agree, {differ} differ, {unsure} cannot be told"


def _verdicts(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    rows = []
    for number, name, cell in ((2, "law_in_size", "metric"), (1, "law_in_k", "size")):
        if name not in tables:
            continue
        for (dataset, family), group in tables[name].groupby(["dataset", "family"], sort=True):
            rest = group.reset_index(drop=True)
            relative = (rest["difference"] / rest["published"]).to_numpy()
            worst = int(np.abs(relative).argmax())
            counts = {v: int((group["verdict"] == v).sum()) for v in (AGREES, DIFFERS, UNSURE)}
            largest = f"{relative[worst]:+.0%} ({rest[cell].iloc[worst]})"
            rows.append(
                {"table": number, "dataset": dataset, "family": family, **counts, "largest difference": largest}
            )
    return pd.DataFrame(rows)


def _figure(tables: dict[str, pd.DataFrame]) -> Figure:
    shown = [(n, t) for n, t in (("law_in_size", "law in size, α"), ("law_in_k", "law in k, β")) if n in tables]
    names = sorted({str(f) for n, _ in shown for f in tables[n]["family"]})
    with style():
        figure, axes = panels(1, len(shown), width=4.2, height=3.9)
        for ax, (name, title) in zip(axes[0], shown, strict=True):
            for family, rows in tables[name].groupby("family", sort=True):
                colour, marker = colour_and_marker(names.index(str(family)))
                error = {"xerr": 1.96 * rows["published_se"], "yerr": 1.96 * rows["se"]}
                ax.errorbar(
                    rows["published"], rows["yours"], fmt=marker, ms=4.5, lw=0.8, color=colour, label=family, **error
                )
            both = pd.concat([tables[name]["published"], tables[name]["yours"]])
            ends = [min(0.0, float(both.min())), float(both.max()) * 1.1]
            ax.plot(ends, ends, "-", lw=0.8, color="#57606a", zorder=0)
            ax.set(title=title, xlabel="published", ylabel="yours", xlim=ends, ylim=ends)
            ax.legend(fontsize=8)
        return figure
