"""The authors' published exponents beside yours, cell by cell (arXiv 2510.20387, submission draft, Tables 1 and 2).

The authors publish no standard errors. For the law in size they follow from R^2 and the number of sizes, for the law
in k yours are used. Verdicts come from Welch's interval of the difference, Holm-corrected: it agrees if the interval
lies within `tolerance`. Scatter between models counts as independent although both measured the same models, so
*differs* is cautious. `protocol=paper` measures as the authors did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis import Analyzer, Drawing, NothingToSay, Report, Runs
from rbptrack.analysis.families import Family, families, read_families
from rbptrack.analysis.findings import Verdict, around, corrected, within_margin
from rbptrack.analysis.published import PUBLISHED_IN, published_in_k, published_in_size
from rbptrack.ranks import DocumentCounts, log_grid, rbp_ks
from rbptrack.stats.intervals import Interval
from rbptrack.stats.k_law import fit_k_law, k_slopes
from rbptrack.stats.size_laws import LawValues, law_values, positive
from rbptrack.stats.spread import Spread

from .figure8 import predicted_law_rows, rank_fit_rows
from .figures import draw
from .findings import PublishedExponent, SequencesSucceed
from .rows import WORDS, KRow, SequenceRow, SizeRow, sequence_rows, verdict_rows
from .uncertainty import implied_se, rounding_se

_UNIT = 0.001  # published values have three decimals
_LEVEL = 0.95  # nominal coverage of the intervals

_FIGURE_8 = (
    "The rank distribution and its predictions by the authors' own code (powerlaw 1.5, continuous integrals), beside "
    "the measured values. The analyzer lognormal has the exact sums."
)

Cell = tuple[PublishedExponent, dict[str, Any]]
"""The difference of a cell with its interval and p, and its row so far."""


@dataclass(kw_only=True)
class Reproduction(Analyzer):
    """Your exponents and R^2 beside the authors' published ones, with a verdict for each.

    Attributes:
        tolerance: share of the published exponent within which the interval of the difference must lie to agree.
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
        in_size = published_in_size()
        in_k = published_in_k()
        published = _published_runs(runs, in_size)
        ks = {family.path: self._counted_ks(family, in_size) for family in families(published, [])}

        def load(family: Family, run_id: str) -> DocumentCounts:
            return runs.document_counts(run_id, ks.get(family.path) or self._counted_ks(family, in_size))

        cells = list[Cell]()
        for family, counts in read_families(published, load, report.notes):
            name = str(family.rows["family"].iloc[0])
            values = law_values(counts, replicates=self.replicates)
            # Table 1 lists the sizes that Table 2 fits.
            fitted = in_k.loc[in_k["family"] == name, "size"].nunique()
            if len(family.s) >= 3:
                cells += self._in_size(family, _of(in_size, name, family.dataset), values, fitted)
            cells += self._in_k(family, _of(in_k, name, family.dataset), values, sampled=len(counts[0].document) > 1)
        if not cells:
            raise report.nothing_found("no cell of the published tables was measured")
        findings = corrected((finding for finding, _ in cells), self._decide)
        in_sizes = list[SizeRow]()
        in_ks = list[KRow]()
        for finding, (_, row) in zip(findings, cells, strict=True):
            row |= {"p_corrected": finding.p_corrected, "verdict": WORDS[finding.verdict]}
            if "metric" in row:
                in_sizes.append(SizeRow(**row))
            else:
                in_ks.append(KRow(**row))
        sequences = [row for family in families(published, []) for row in sequence_rows(family)]
        report.findings += [*findings, *_of_sequences(sequences)]
        report.add_rows("verdicts", [*verdict_rows(2, in_sizes), *verdict_rows(1, in_ks)])
        report.add_rows("law_in_size", in_sizes)
        report.add_rows("law_in_k", in_ks)
        report.add_rows("sequences", sequences, caption="Success of tokens in a row, as imported.")
        ranks = list(rank_fit_rows(published))
        report.add_rows("figure_8b", ranks, caption=_FIGURE_8)
        report.add_rows(
            "figure_8c", predicted_law_rows(ranks), caption="Least squares through the values of figure_8b."
        )
        report.add_metrics("alpha_minus_published/{family}/{dataset}/{metric}", in_sizes, "difference")
        caption = f"Your exponents against the published ones ({PUBLISHED_IN}). Bars: 95% intervals. Line: equality."
        report.drawings["yours_against_published"] = Drawing(draw(in_sizes, in_ks), caption)
        report.notes += self._caveats(published, in_sizes)
        return report

    def _counted_ks(self, family: Family, in_size: pd.DataFrame) -> list[int]:
        """Return the k to count: those published, and those of the law in k; of imports without ranks the ones
        logged.
        """
        published = rbp_ks(set(in_size["metric"]))
        if not family.vocab_size:
            return [k for k in family.logged_ks if k in published or k <= self.largest_k]
        every = range(1, min(self.largest_k, family.vocab_size - 1) + 1)
        return sorted({*every, *(k for k in published if k <= family.vocab_size)})

    def _in_size(
        self, family: Family, published: pd.DataFrame, values: LawValues, published_sizes: int
    ) -> Iterator[Cell]:
        for cell in published.to_dict("records"):
            metric = str(cell["metric"])
            law = values.fit(metric, family.s) if metric in values.metrics else None
            if law is None:
                continue
            se = implied_se(float(cell["alpha"]), float(cell["r2"]), published_sizes, unit=_UNIT)
            row = {
                "metric": metric,
                "published_sizes": published_sizes,
                "sizes": law.points,
                "published": float(cell["alpha"]),
                "published_se": se,
                "published_r2": float(cell["r2"]),
                "yours": law.alpha,
                "se": law.se,
                "r2": law.r2,
            }
            spread = law.spread + Spread.estimated(se, published_sizes - 2)
            yield self._cell(family, {"metric": metric}, row, spread, inverse=law.high < 0)

    def _in_k(self, family: Family, published: pd.DataFrame, values: LawValues, *, sampled: bool) -> Iterator[Cell]:
        """Yield every size that Table 1 lists; without sampling errors it has no interval."""
        every = np.array([k for k in rbp_ks(values.metrics) if k <= self.largest_k and k != family.vocab_size])
        if len(every) < 3:
            return
        y, draws = values.of_ks(every.tolist())  # (m, ks), (m, replicates, ks)
        even = np.flatnonzero(np.isin(every, log_grid(int(every[-1])))) if sampled else np.arange(len(every))
        for i, label in enumerate(family.labels):
            cell = published[published["size"] == label]
            if cell.empty or not positive(y[i]):
                continue
            fit = fit_k_law(every[even], y[[i]][:, even])
            whole = fit_k_law(every, y[[i]])
            with np.errstate(divide="ignore", invalid="ignore"):
                slopes = k_slopes(every[even], draws[i][:, even])
            se = float(np.std(slopes[np.isfinite(slopes)], ddof=1)) if sampled else np.nan
            # Neighbouring k share their hits, so residuals say little about the slope: sampling error on both sides.
            other = float(np.hypot(se, rounding_se(_UNIT)))
            row = {
                "size": label,
                "published": float(cell["beta"].iloc[0]),
                "published_se": other,
                "published_r2": float(cell["r2"].iloc[0]),
                "yours": float(fit.beta[0]),
                "se": se,
                "r2": float(fit.r2[0]),
                "yours_every_k": float(whole.beta[0]),
            }
            both = Spread(known=se**2 + other**2, beyond=se**2 + other**2, residual=0.0, freedom=1.0)
            yield self._cell(family, {"size": label}, row, both if sampled else None)

    def _cell(
        self,
        family: Family,
        which: dict[str, str],
        row: dict[str, Any],
        spread: Spread | None,
        *,
        inverse: bool = False,
    ) -> Cell:
        """Return the difference of a cell with its interval and p, none where the error is unknown; and the row so
        far.
        """
        difference = row["yours"] - row["published"]
        number = Interval.around(difference, spread.half(_LEVEL) if spread else np.nan)
        finding = PublishedExponent(
            case=family.keys | which,
            p=spread.p(difference) if spread else np.nan,
            margin=self.tolerance * abs(row["published"]),
            published=row["published"],
            inverse=inverse,
            **around(number),
        )
        return finding, family.keys | row | {"difference": number}

    def _decide(self, finding: PublishedExponent) -> Verdict:
        if finding.p_corrected < 1 - _LEVEL:
            return Verdict.DIFFERENT
        return within_margin(Verdict.SAME, finding.interval, finding.margin)

    def _caveats(self, runs: Runs, sizes: list[SizeRow]) -> Iterator[str]:
        frame = runs.frame
        rules = set(zip(frame["sequence"], frame["seq_len"], frame["rank"].fillna("paper"), strict=True))
        if rules != {("truncate", 512, "strict")} and frame["vocab_size"].notna().any():
            listed = ", ".join(sorted(f"{rule} at {length} tokens, rank={rank}" for rule, length, rank in rules))
            yield f"The authors truncate at 512 tokens and count strict ranks (protocol=paper); yours: {listed}."
        fewer = [row for row in sizes if row.sizes != row.published_sizes]
        if fewer:
            names = ", ".join(sorted({f"{row.family} {row.sizes} of {row.published_sizes}" for row in fewer}))
            yield f"Your sizes are not all of the authors': {names}. Another range may have another slope."


def _of(published: pd.DataFrame, family: str, dataset: str) -> pd.DataFrame:
    return published[(published["family"] == family) & (published["dataset"] == dataset)]


def _published_runs(runs: Runs, in_size: pd.DataFrame) -> Runs:
    """Return the runs of families and datasets that the tables hold; NothingToSay without any."""
    published = set(zip(in_size["family"], in_size["dataset"], strict=True))
    wanted = [key in published for key in zip(runs.frame["family"], runs.frame["dataset"], strict=True)]
    if not any(wanted):
        names = ", ".join(sorted(set(in_size["family"])))
        texts = ", ".join(sorted(set(in_size["dataset"])))
        raise NothingToSay(f"nothing published to compare with: the authors' tables hold {names} on {texts}")
    return Runs(runs.frame[wanted], runs.source)


def _of_sequences(rows: Sequence[SequenceRow]) -> Iterator[SequencesSucceed]:
    for family, dataset in dict.fromkeys((row.family, row.dataset) for row in rows if row.N > 1):
        worth = [row.worth / row.N for row in rows if (row.family, row.dataset) == (family, dataset) and row.N > 1]
        number = Interval(float(np.median(worth)), min(worth), max(worth))
        case = {"dataset": dataset, "family": family}
        yield SequencesSucceed(case=case, cases=len(worth), **around(number))
