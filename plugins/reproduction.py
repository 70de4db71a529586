"""The authors' published exponents beside yours, cell by cell (arXiv 2510.20387, submission draft, Tables 1 and 2)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import Analyzer, Drawing, Report, Runs, rbp_name
from rbptrack.analysis.families import Family, families, read_families
from rbptrack.analysis.figures import colour_and_marker, panels, style
from rbptrack.analysis.findings import Finding, NothingToSay, Verdict, around, corrected
from rbptrack.analysis.published import PUBLISHED_IN, published_in_k, published_in_size
from rbptrack.analysis.rows import R2, Column, Corrected, K, OfFamily, OfMetric, OfSize
from rbptrack.ranks import DocumentCounts, log_grid, rbp_ks
from rbptrack.stats.intervals import Interval
from rbptrack.stats.k_law import fit_k_law, k_slopes
from rbptrack.stats.published import implied_se, rounding_se
from rbptrack.stats.size_laws import LawValues, law_values, positive
from rbptrack.stats.spread import Spread

AGREES, DIFFERS, UNSURE = "agrees", "differs", "undecided"
_WORDS = {Verdict.SAME: AGREES, Verdict.DIFFERENT: DIFFERS, Verdict.UNTOLD: UNSURE}
_BOTH = "lower end of its 95% interval, both uncertainties taken together"
_UNIT = 0.001  # published values have three decimals
_LEVEL = 0.95  # nominal coverage of the intervals


@dataclass(kw_only=True)
class Compared:
    """Your exponent beside the published one."""

    published: Annotated[float, Column("the authors' exponent", form=".3f")]
    published_se: Annotated[float, Column("its standard error: as R^2, sizes and rounding imply; in k as yours")]
    published_r2: Annotated[float, Column("their R^2", title="their R²", form=".3f")]
    yours: Annotated[float, Column("your exponent", form=".3f")]
    se: Annotated[float, Column("its standard error; empty where sampling errors are not known")]
    r2: R2
    difference: Annotated[Interval, Column("yours - published", form="+.3f", low=_BOTH, bare=True)]
    p_corrected: Corrected
    verdict: Annotated[str, Column("agrees, differs, or undecided: the interval is wider than the tolerance")]


@dataclass(kw_only=True)
class OfSizes(OfMetric):
    """Which law, of how many sizes."""

    published_sizes: Annotated[int, Column("how many sizes the authors fitted")]
    sizes: Annotated[int, Column("how many sizes you fitted")]


@dataclass(kw_only=True)
class SizeRow(Compared, OfSizes):
    """A cell of Table 2."""


@dataclass(kw_only=True)
class OfModel(OfFamily):
    """Which model."""

    size: Annotated[str, Column("the size as published")]


@dataclass(kw_only=True)
class KRow(Compared, OfModel):
    """A cell of Table 1."""

    yours_every_k: Annotated[float, Column("with every k weighing the same, instead of k even in ln k", form=".3f")]


@dataclass(kw_only=True)
class VerdictRow(OfFamily):
    """The cells of one family on one dataset, counted."""

    table: Annotated[int, Column("of the draft: 1 in k, 2 in size")]
    agrees: Annotated[int, Column("cells")]
    differs: Annotated[int, Column("cells")]
    undecided: Annotated[int, Column("cells")]
    largest_difference: Annotated[str, Column("relative, with its cell", title="largest difference")]


@dataclass(kw_only=True)
class SequenceRow(OfSize):
    """Imported success of N tokens in a row (`F_N` of the authors' files)."""

    k: K
    N: Annotated[int, Column("tokens in a row")]
    share: Annotated[float, Column("of such runs all of whose tokens have R <= k, as imported", form=".3g")]
    independent: Annotated[float, Column("RBP_k^N: the share were tokens independent", form=".3g")]
    worth: Annotated[
        float, Column("ln share / ln RBP_k: as how many independent tokens the N count", "N_eff", form=".2f")
    ]


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
        sizes = {family.path: self._asked(family, in_size) for family in families(known, [])}

        def load(family: Family, run_id: str) -> DocumentCounts:
            return runs.document_counts(run_id, sizes.get(family.path) or self._asked(family, in_size))

        cells = list[tuple[Finding, dict[str, Any]]]()
        for family, counts in read_families(known, load, report.notes):
            name, values = str(family.rows["family"].iloc[0]), law_values(counts, replicates=self.replicates)
            # Table 1 lists the sizes that Table 2 fits.
            fitted = in_k.loc[in_k["family"] == name, "size"].nunique()
            mine = [t[(t["family"] == name) & (t["dataset"] == family.dataset)] for t in (in_size, in_k)]
            if len(family.s) >= 3:
                cells += self._in_size(family, mine[0], values, fitted)
            cells += self._in_k(family, mine[1], values, sampled=len(counts[0].document) > 1)
        if not cells:
            raise report.nothing_found("no cell of the published tables was measured")
        findings = corrected((one for one, _ in cells), self._decide)
        rows = [_row(one, row) for one, (_, row) in zip(findings, cells, strict=True)]
        in_sizes = [row for row in rows if isinstance(row, SizeRow)]
        in_ks = [row for row in rows if isinstance(row, KRow)]
        sequences = [row for family in families(known, []) for row in _sequences(family)]
        report.findings += [*findings, *_of_sequences(sequences)]
        report.add_rows("verdicts", [*_counted(2, in_sizes), *_counted(1, in_ks)])
        report.add_rows("law_in_size", in_sizes)
        report.add_rows("law_in_k", in_ks)
        report.add_rows("sequences", sequences, caption="Success of tokens in a row, as imported.")
        report.add_metrics("alpha_minus_published/{family}/{dataset}/{metric}", in_sizes, "difference")
        caption = f"Your exponents against the published ones ({PUBLISHED_IN}). Bars: 95% intervals. Line: equality."
        report.drawings["yours_against_published"] = Drawing(_draw(in_sizes, in_ks), caption)
        report.notes += self._caveats(known, in_sizes)
        return report

    def _asked(self, family: Family, in_size: pd.DataFrame) -> list[int]:
        """The k to count: those published, and those of the law in k; of imports without ranks the ones logged."""
        published = rbp_ks(set(in_size["metric"]))
        if not family.vocab_size:
            return [k for k in family.logged_ks if k in published or k <= self.largest_k]
        every = range(1, min(self.largest_k, family.vocab_size - 1) + 1)
        return sorted({*every, *(k for k in published if k <= family.vocab_size)})

    def _in_size(
        self, family: Family, published: pd.DataFrame, values: LawValues, published_sizes: int
    ) -> Iterator[tuple[Finding, dict[str, Any]]]:
        for cell in published.to_dict("records"):
            metric, alpha, r2 = str(cell["metric"]), float(cell["alpha"]), float(cell["r2"])
            law = values.fit(metric, family.s) if metric in values.metrics else None
            if law is None:
                continue
            se = implied_se(alpha, r2, published_sizes, unit=_UNIT)
            row = {"metric": metric, "published_sizes": published_sizes, "sizes": law.points, "published": alpha}
            row |= {"published_se": se, "published_r2": r2, "yours": law.alpha, "se": law.se, "r2": law.r2}
            spread = law.spread + Spread.estimated(se, published_sizes - 2)
            yield _cell(family, {"metric": metric}, row, spread, inverse=law.high < 0)

    def _in_k(
        self, family: Family, published: pd.DataFrame, values: LawValues, *, sampled: bool
    ) -> Iterator[tuple[Finding, dict[str, Any]]]:
        """Every size that Table 1 lists; of sampling errors that are not known there is no interval."""
        every = np.array([k for k in rbp_ks(values.metrics) if k <= self.largest_k and k != family.vocab_size])
        if len(every) < 3:
            return
        y, draws = values.of_ks(every.tolist())  # (m, ks), (m, replicates, ks)
        even = np.flatnonzero(np.isin(every, log_grid(int(every[-1])))) if sampled else np.arange(len(every))
        for i, label in enumerate(family.labels):
            cell = published[published["size"] == label]
            if cell.empty or not positive(y[i]):
                continue
            beta, r2 = float(cell["beta"].iloc[0]), float(cell["r2"].iloc[0])
            fit, whole = fit_k_law(every[even], y[[i]][:, even]), fit_k_law(every, y[[i]])
            with np.errstate(divide="ignore", invalid="ignore"):
                slopes = k_slopes(every[even], draws[i][:, even])
            se = float(np.std(slopes[np.isfinite(slopes)], ddof=1)) if sampled else np.nan
            # Neighbouring k share their hits, so residuals say little about the slope: sampling error on both sides.
            other = float(np.hypot(se, rounding_se(_UNIT)))
            row = {"size": label, "published": beta, "published_se": other, "published_r2": r2, "se": se}
            row |= {"yours": float(fit.beta[0]), "r2": float(fit.r2[0]), "yours_every_k": float(whole.beta[0])}
            both = Spread(known=se**2 + other**2, beyond=se**2 + other**2, residual=0.0, freedom=1.0)
            yield _cell(family, {"size": label}, row, both if sampled else None)

    def _decide(self, one: Finding) -> Verdict:
        if one.p_corrected < 1 - _LEVEL:
            return Verdict.DIFFERENT
        within = one.low <= 0 <= one.high and one.high - one.estimate <= self.tolerance * abs(one.extras["published"])
        return Verdict.SAME if within else Verdict.UNTOLD

    def _caveats(self, runs: Runs, sizes: list[SizeRow]) -> Iterator[str]:
        frame = runs.frame
        rules = set(zip(frame["sequence"], frame["seq_len"], frame["rank"].fillna("paper"), strict=True))
        if rules != {("truncate", 512, "strict")} and frame["vocab_size"].notna().any():
            listed = ", ".join(sorted(f"{rule} at {length} tokens, rank={rank}" for rule, length, rank in rules))
            yield f"The authors truncate at 512 tokens and count strict ranks (protocol=paper); yours: {listed}."
        fewer = [r for r in sizes if r.sizes != r.published_sizes]
        if fewer:
            names = ", ".join(sorted({f"{r.family} {r.sizes} of {r.published_sizes}" for r in fewer}))
            yield f"Your sizes are not all of the authors': {names}. Another range may have another slope."


def _published_runs(runs: Runs, in_size: pd.DataFrame) -> Runs:
    """The runs of families and datasets that the tables hold; NothingToSay where there is none."""
    published = set(zip(in_size["family"], in_size["dataset"], strict=True))
    wanted = [key in published for key in zip(runs.frame["family"], runs.frame["dataset"], strict=True)]
    if not any(wanted):
        held, texts = (", ".join(sorted(set(in_size[column]))) for column in ("family", "dataset"))
        raise NothingToSay(f"nothing published to compare with: the authors' tables hold {held} on {texts}")
    return Runs(runs.frame[wanted], histogram=runs.histogram, ranks=runs.ranks, pieces=runs.rank_pieces)


def _cell(
    family: Family, which: dict[str, str], row: dict[str, Any], spread: Spread | None, *, inverse: bool = False
) -> tuple[Finding, dict[str, Any]]:
    """The difference of a cell with its interval and p, none where the error is not known; and the row so far."""
    difference = row["yours"] - row["published"]
    half, p = (spread.half(_LEVEL), spread.p(difference)) if spread else (np.nan, np.nan)
    number = Interval.around(difference, half)
    extras, case = {"published": row["published"], "inverse": inverse}, family.keys | which
    finding = Finding(question="published exponent", case=case, p=p, extras=extras, **around(number))
    return finding, family.keys | row | {"difference": number}


def _row(one: Finding, row: dict[str, Any]) -> SizeRow | KRow:
    whole = row | {"p_corrected": one.p_corrected, "verdict": _WORDS[one.verdict]}
    return SizeRow(**whole) if "metric" in row else KRow(**whole)


def _counted(table: int, rows: list[Any]) -> Iterator[VerdictRow]:
    for dataset, family in sorted({(row.dataset, row.family) for row in rows}):
        mine = [row for row in rows if (row.dataset, row.family) == (dataset, family)]
        shares = {i: row.difference.value / row.published for i, row in enumerate(mine) if row.published}  # one is 0
        counts = {verdict: sum(row.verdict == verdict for row in mine) for verdict in _WORDS.values()}
        text = ""
        if shares:
            most = max(shares, key=lambda i: abs(shares[i]))
            worst = mine[most]
            text = f"{shares[most]:+z.0%} ({worst.metric if isinstance(worst, SizeRow) else worst.size})"
        yield VerdictRow(table=table, dataset=dataset, family=family, **counts, largest_difference=text)


def _sequences(family: Family) -> Iterator[SequenceRow]:
    """Imported shares of sequences that succeed, beside those of independent tokens."""
    for column in family.rows.columns:
        if not (named := re.fullmatch(r"sequence_success_k(\d+)_n(\d+)", str(column))):
            continue
        k, n = map(int, named.groups())
        shares, rbp = family.column(str(column)), family.column(rbp_name(k))
        for keys, share, p in zip(family.size_keys, shares, rbp, strict=True):
            if 0 < share < 1 and 0 < p < 1:
                worth = float(np.log(share) / np.log(p))
                yield SequenceRow(**keys, k=k, N=n, share=float(share), independent=float(p**n), worth=worth)


def _of_sequences(rows: list[SequenceRow]) -> Iterator[Finding]:
    for family, dataset in dict.fromkeys((row.family, row.dataset) for row in rows if row.N > 1):
        mine = [row.worth / row.N for row in rows if (row.family, row.dataset) == (family, dataset) and row.N > 1]
        case, number = {"dataset": dataset, "family": family}, Interval(float(np.median(mine)), min(mine), max(mine))
        yield Finding(question="sequences succeed", case=case, extras={"cases": len(mine)}, **around(number))


def _draw(in_size: list[SizeRow], in_k: list[KRow]) -> Figure:
    """Your exponents against the published ones, a panel per law."""
    shown = [(rows, title) for rows, title in ((in_size, "law in size, α"), (in_k, "law in k, β")) if rows]
    names = sorted({row.family for rows, _ in shown for row in rows})
    with style():
        figure, axes = panels(1, len(shown), height=4.2)
        for ax, (rows, title) in zip(axes[0], shown, strict=True):
            for family, mine in pd.DataFrame(map(vars, rows)).groupby("family", sort=True):
                colour, marker = colour_and_marker(names.index(str(family)))
                drawn = {"xerr": 1.96 * mine["published_se"], "yerr": 1.96 * mine["se"], "label": family}
                drawn |= {"fmt": marker, "ms": 4.5, "lw": 0.8, "color": colour}
                ax.errorbar(mine["published"], mine["yours"], **drawn)
            both = [value for row in rows for value in (row.published, row.yours)]
            ends = [min(0.0, min(both)), max(both) * 1.1]
            ax.plot(ends, ends, "-", lw=0.8, color="#57606a", zorder=0)
            ax.set(title=title, xlabel="published", ylabel="yours", xlim=ends, ylim=ends)
            ax.legend(loc="best", fontsize=8)
        return figure
