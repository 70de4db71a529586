"""Two measurements of the same tokens side by side: which differences are significant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from rbptrack.analysis.changes import Changed, MetricChange, changed
from rbptrack.analysis.contract import Report
from rbptrack.analysis.findings import Verdict
from rbptrack.analysis.phrases import interval
from rbptrack.analysis.runs import Runs, WithoutRanks
from rbptrack.analysis.same_tokens import SAME_TOKENS, names_apart
from rbptrack.base.errors import BadInput
from rbptrack.base.words import number, p_in_words
from rbptrack.ranks import CE, HEADLINE_KS, check_k, parse_rbp_name, rbp_name, se_name
from rbptrack.stats.intervals import Interval
from rbptrack.stats.pairs import KL, RANK, REST, Change, OtherTokens, PairSums, paired
from rbptrack.stats.shares import Share
from rbptrack.stats.spread import Spread

_UNPAIRED = "One has no rank table: logged numbers are compared, tokens are not paired, and the intervals are wider."


@dataclass(frozen=True)
class Comparison:
    """What two models differ by on the same tokens.

    Attributes:
        a: name of the first model.
        b: of the second.
        dataset: the texts that both scored.
        tokens: scored tokens; 0 where that is unknown.
        changes: CE, its parts, entropy and RBP_k, b minus a, corrected together.
        level: nominal coverage of the intervals.
        sums: counts by document (by source where sources are named); None where one has no rank table.

    """

    a: str
    b: str
    dataset: str
    tokens: int
    changes: Sequence[Changed]
    level: float
    sums: PairSums | None = field(default=None, repr=False)

    @property
    def shown(self) -> list[Changed]:
        """The differences that are significant after correction."""
        return [change for change in self.changes if change.verdict is Verdict.DIFFERENT]

    @property
    def frame(self) -> pd.DataFrame:
        """The changes as a table, a row per metric."""
        return self.report().tables["changes"].frame

    @property
    def same_top(self) -> Interval:
        """The share of tokens at which both rank the same token first; NaN where a table does not say."""
        if self.sums is None:
            return Interval(np.nan)
        return self.sums.agreement.interval(self.level, lowest=0.0, highest=1.0)

    def sentences(self) -> list[str]:
        """Say which differences are significant, how many ranks moved, and how often both rank the same token first."""
        texts = list(Changed.say(list(self.changes)))
        if self.sums is None:
            return [*texts, _UNPAIRED]
        moved = int(self.sums.moved.sum())
        if not moved:
            return [f"All {self.tokens:,} ranks of {self.a} and {self.b} on {self.dataset} are equal.", *texts]
        texts.append(f"{moved:,} of {self.tokens:,} ranks differ ({moved / self.tokens:.2%}).")
        share = self.sums.rank_share(self.level)
        if share.value == share.value:
            ends = interval(share.low, share.high, ".0%")
            texts.append(f"The rank part is {number(share.value, '.0%')} ({ends}) of the difference in CE.")
        same = self.same_top
        if same.value == same.value:
            ends = f" ({interval(same.low, same.high, '.2%')})" if same.low == same.low else ""
            texts.append(f"Both rank the same token first at {number(same.value, '.2%')}{ends} of the tokens.")
        lost, gained = (values.sum() / self.tokens for values in (self.sums.lost, self.sums.gained))
        p = self.sums.p_flips()
        tested = f" (McNemar's test by document, {p_in_words(p)})" if p == p else ""
        texts.append(f"From right to wrong: {lost:.2%} of the tokens; from wrong to right: {gained:.2%}{tested}.")
        return texts

    def report(self) -> Report:
        """Return the comparison as a report, for pages and for the terminal."""
        report = Report(summary="changes", notes=self.sentences()[1:])
        report.headline = self.sentences()[0].rstrip(".")
        report.add_rows("changes", (MetricChange(**change.cells) for change in self.changes))
        return report

    def _repr_html_(self) -> str:
        """Return the sentences and the table, for a notebook."""
        texts = "".join(f"<p>{text}</p>" for text in self.sentences())
        return texts + self.frame.to_html(index=False, border=0, float_format=lambda value: f"{value:.4g}")


def compare(runs: Runs, a: str, b: str, *, ks: Sequence[int] = HEADLINE_KS, level: float = 0.95) -> Comparison:
    """Compare two measurements of the same tokens, paired token by token.

    Args:
        runs: holds both.
        a: the first, by name or run ID: the baseline.
        b: the second.
        ks: the k of RBP_k.
        level: nominal coverage of the intervals; tests have size 1 - level, corrected over all metrics (Holm).

    Raises:
        BadInput: a name is unknown, or they did not score the same tokens.
        Unreadable: a rank table is damaged.

    """
    rows = runs[a], runs[b]
    _check_same_tokens(*rows)
    ids = [str(row["run_id"]) for row in rows]
    names = names_apart(pd.DataFrame(rows))
    dataset = str(rows[0]["dataset"])
    case = {"dataset": dataset, "a": names[ids[0]], "b": names[ids[1]]}
    sums: PairSums | None = None
    changes: Mapping[str, Change]
    try:
        sums = _sums(runs, ids[0], ids[1], ks)
    except WithoutRanks:
        changes = _logged(rows, ks)
    except OtherTokens as error:
        raise BadInput(f"{case['a']} and {case['b']} did not score the same tokens of {dataset}") from error
    else:
        references = {row["reference_commit"] for row in rows}
        changes = {metric: change for metric, change in sums.changes().items() if metric != KL or len(references) == 1}
    findings = changed([(case, metric, change) for metric, change in changes.items()], level)
    tokens = rows[0]["num_tokens"]
    return Comparison(case["a"], case["b"], dataset, 0 if pd.isna(tokens) else int(tokens), findings, level, sums)


def _check_same_tokens(a: pd.Series, b: pd.Series) -> None:
    """Raise BadInput where settings that both have say that they scored other tokens."""
    if a["run_id"] == b["run_id"]:
        raise BadInput(f"{a['model']}/{a['dataset']} is one measurement: name two")
    both = [name for name in SAME_TOKENS if pd.notna(a[name]) and pd.notna(b[name])]
    other = [f"{name}={a[name]} and {b[name]}" for name in both if a[name] != b[name]]
    if other:
        names = f"{a['model']}/{a['dataset']} and {b['model']}/{b['dataset']}"
        raise BadInput(f"{names} did not score the same tokens ({'; '.join(other)}): compare measurements of one text")


def _sums(runs: Runs, a: str, b: str, ks: Sequence[int]) -> PairSums:
    parts = []
    for pair in paired(runs.rank_pieces(a), runs.rank_pieces(b)):
        parts.append(PairSums.of(pair, [check_k(k, pair.a.vocab_size) for k in sorted(set(ks))]))
    documents = PairSums.concatenate(parts)
    sources = runs.groups(a)
    return documents.in_groups(sources) if sources else documents


def _logged(rows: Sequence[pd.Series], ks: Sequence[int]) -> Mapping[str, Change]:
    """Return the changes of logged numbers, as of independent texts: metric -> change, where both have it."""
    changes = {}
    for metric in (CE, RANK, REST, *map(rbp_name, sorted(set(ks)))):
        values = [_number(row, metric) for row in rows]
        errors = [_number(row, se_name(metric)) for row in rows]
        if np.isfinite(sum(values)):
            variance = sum(error**2 for error in errors)
            spread = Spread(variance, 0.0, 0.0, np.inf) if np.isfinite(variance) else None
            changes[metric] = Change(values[0], values[1], Share(values[1] - values[0], spread, np.empty(0)))
    if not changes:
        wanted = ", ".join(f"RBP_{parse_rbp_name(rbp_name(k))}" for k in ks)
        raise BadInput(f"one has no rank table, and CE or {wanted} was not logged for both: nothing to compare")
    return changes


def _number(row: pd.Series, name: str) -> float:
    value = row.get(name)
    return float("nan") if value is None or pd.isna(value) else float(value)
