"""Estimate how good a model is as the draft model of a larger one in speculative decoding.

Source: Leviathan et al., arXiv 2211.17192. The analyzer reads measurements with `reference=`. The reference is the
large model, and the measured model is its draft model. Both read the texts of the dataset, so acceptance may differ on
text that the reference writes itself.

Acceptance is the mean of the sum over v of min(p, q). One call of the reference yields the accepted tokens of a draft
and one token of its own. The number of accepted tokens is computed from products of consecutive acceptances, so tokens
are not assumed to be independent. The speed-up follows theorem 3.8 with these products: (accepted + 1) / (L c + 1), for
drafts of L tokens and a cost c per drafted token.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from pydantic import Field, PositiveInt, model_validator

from rbptrack.analysis import (
    Analyzer,
    Family,
    Report,
    Runs,
    Term,
    clip_share,
    counted,
    format_number,
    listed,
    read_families,
    short_hash,
)
from rbptrack.figures import facets
from rbptrack.ranks import FloatArray, IntArray, RankTable
from rbptrack.stats import Estimate, Sums, estimate, first_largest, laws

GLOSSARY: dict[str, str | Term] = {
    "acceptance": Term("share of drafted tokens that the reference accepts, sum of min(p, q)", form=".3f"),
    "tokens_per_call": Term("tokens per call of the reference: accepted tokens and one of its own", "", ".2f"),
    "speed_up": Term("speed with drafts of the best length over speed without drafts", "speed-up", ".2f"),
    "kl": Term("KL(reference || model), nats per token", "KL", ".4g"),
    "alpha": Term("exponent of -ln acceptance = A S^-alpha", "α", ".3f"),
    "reference": "the large model",
    "length": "number of tokens of a draft",
    "cost": Term("time of a step of the draft model divided by the time of a call of the reference", form=".3f"),
    "independent": Term("tokens per call if each token were accepted independently of the others", form=".2f"),
    "R2": Term("R² of the law", "R²", ".3f"),
}
# Columns of the sums by document.
TOKENS = 0  # scored tokens
KL = 1
ACCEPT = 2
STARTS = 3  # number of drafts
RUNS = 4  # this column and the next ones: number of drafts whose first 1, 2, ... tokens are accepted


class Draft(Analyzer):
    """Acceptance, tokens per call and speed-up of models as drafts of a larger model, and acceptance by size."""

    length: PositiveInt = 5
    """number of tokens of a draft"""

    longest: Annotated[int, Field(ge=1, le=100)] = 12
    """the longest draft to try in the search for the best length"""

    step_cost: Annotated[float, Field(ge=0)] = 0.0
    """time of a step of the draft model divided by that of a call of the reference; 0: estimated from the parameters"""

    @model_validator(mode="after")
    def _length_is_tried(self) -> Self:
        if self.length > self.longest:
            raise ValueError(f"length={self.length} must be at most longest={self.longest}")
        return self

    def analyze(self, runs: Runs) -> Report:
        report = Report(GLOSSARY)
        measured = runs.frame[runs.frame["reference"].notna()]
        if not len(measured):
            report.notes.append("No measurement has a reference: measure a draft with reference=MODEL.")
            return report
        lengths: list[dict[str, Any]] = []

        def load(family: Family, run_id: str) -> Sums:
            pieces = runs.rank_pieces(run_id, ["document", "position", "kl", "accept"])
            return Sums.concatenate([Sums(piece.documents[0], draft_sums(piece, self.longest)) for piece in pieces])

        commits = measured["reference_commit"].fillna("unknown")
        for (name, commit), rows in measured.groupby(["reference", commits]):
            several = commits[measured["reference"] == name].nunique() > 1
            reference = f"{name}@{short_hash(str(commit))}" if several else str(name)
            reading = read_families(runs[runs.frame.index.isin(rows.index)], load)
            for family, sums in reading:
                lengths += self._add(report, family, [part.sums for part in sums], reference)
            report.notes += reading.notes
        if not report.questions:
            return report
        if self.step_cost:
            report.notes.append(
                f"The speed-up assumes that a step of the draft model takes {self.step_cost:g} of the time of a call "
                "of the reference (step_cost=)."
            )
        else:
            report.notes.append(
                "The speed-up assumes that times are proportional to parameters, which ignores memory bandwidth and "
                "kernels; step_cost= sets a measured cost."
            )
        report.tables["lengths"] = pd.DataFrame(lengths)
        acceptance = report.frame("acceptance").rename(columns={"S": "S of the draft"})
        report.figures["acceptance"] = facets(acceptance, x="S of the draft", y="acceptance", facet="reference")
        if "speed_up" in report.questions:
            speeds = report.frame("speed_up")
            best = speeds.iloc[first_largest(speeds["speed_up"].to_numpy(np.float64))]
            report.headline = (
                f"{best['family']}-{best['size']} on {best['dataset']} speeds {best['reference']} up most: "
                f"{format_number(best['speed_up'], '.2f')} times with drafts of "
                f"{counted(int(best['length']), 'token')}."
            )
        return report

    def _add(self, report: Report, family: Family, sums: list[FloatArray], reference: str) -> list[dict[str, Any]]:
        """Add the results of each size and the law of acceptance. Return rows for the table of lengths."""
        rows = []
        without_cost = []
        costs = family.column("total_params") / family.column("reference_params")
        for i, size_sums in enumerate(sums):
            cost = self.step_cost or float(costs[i])
            keys: dict[str, Any] = {**family.keys, "size": family.labels[i], "reference": reference}
            acceptance = estimate(size_sums, lambda x: x[..., ACCEPT] / x[..., TOKENS])
            report.add("acceptance", acceptance, **keys, show=clip_share, beside={"S": float(family.s[i])})
            kl = estimate(size_sums, lambda x: x[..., KL] / x[..., TOKENS])
            report.add("kl", kl, **keys, show=lambda nats: max(nats, 0.0))
            if not size_sums[:, STARTS].any():
                note = f"no document has {self.longest} scored tokens in a row; use a smaller longest="
                report.notes.append(f"{family}: {note}.")
                continue
            per_call = tokens_per_call(size_sums, self.length)
            report.add("tokens_per_call", per_call, **keys, beside={"length": self.length})
            speeds = []
            for length in range(1, self.longest + 1):
                tokens = tokens_per_call(size_sums, length).value
                independent = sum(acceptance.value**j for j in range(length + 1))
                speeds.append(tokens / (length * cost + 1))
                numbers = {"tokens_per_call": tokens, "independent": independent, "cost": cost, "speed_up": speeds[-1]}
                rows.append(keys | {"length": length} | numbers)
            if np.isfinite(cost):
                best = 1 + first_largest(speeds)
                speed = tokens_per_call(size_sums, best, time=best * cost + 1)
                report.add("speed_up", speed, **keys, beside={"length": best, "cost": cost})
            else:
                without_cost.append(family.labels[i])
        if without_cost:
            report.notes.append(
                f"{family}: the speed-up of {reference} by {listed(without_cost)} is unknown, because the parameters "
                "of one of the two are unknown; step_cost= sets a cost."
            )
        if len(sums) > 1:
            [law] = laws(family.s, sums, lambda x: -np.log(x[..., ACCEPT] / x[..., TOKENS]))
            if law is not None:
                report.add("alpha", law.alpha, **family.keys, reference=reference, null=0.0, beside={"R2": law.r2})
        return rows


def draft_sums(table: RankTable, longest: int) -> FloatArray:
    """Compute sums by document of a rank table that was measured with a reference.

    A draft of `longest` tokens begins at each token that starts a run of `longest` scored tokens without a gap. Each of
    its tokens is accepted with the probability `accept`. The draft ends at the first token that is rejected.

    Returns:
        An array (documents, RUNS + longest) with the columns TOKENS, KL, ACCEPT, STARTS and RUNS.

    """
    present, document = table.documents
    accept = table.column("accept").astype(np.float64)
    begin = _starts(document, table.column("position"), longest)
    columns = np.zeros((len(present), RUNS + longest))
    columns[:, TOKENS] = table.sum_by_document()
    columns[:, KL] = table.sum_by_document(table.column("kl"))
    columns[:, ACCEPT] = table.sum_by_document(accept)
    columns[:, STARTS] = np.bincount(document[begin], minlength=len(present))
    together = np.ones(len(begin))
    for j in range(longest):
        together = together * accept[begin + j]
        columns[:, RUNS + j] = np.bincount(document[begin], weights=together, minlength=len(present))
    return columns


def tokens_per_call(sums: FloatArray, length: int, *, time: float = 1.0) -> Estimate:
    """Estimate the tokens per call of the reference, divided by `time`.

    Args:
        sums: sums by document from `draft_sums`.
        length: number of tokens of a draft.
        time: the divisor. 1 gives tokens per call, and the time of a call gives the speed-up.

    """
    return estimate(sums, lambda x: (x[..., RUNS : RUNS + length].sum(axis=-1) / x[..., STARTS] + 1) / time)


def _starts(document: IntArray, position: IntArray, length: int) -> IntArray:
    """Return indices of tokens that length - 1 tokens of the same document follow without a gap."""
    last = np.arange(length - 1, len(position))
    first = last - (length - 1)
    whole = (document[first] == document[last]) & (position[last] - position[first] == length - 1)
    return np.asarray(first[whole])
