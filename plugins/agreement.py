"""Two models on the same tokens: where they agree, what changed, and which texts show it.

For a quantised or pruned checkpoint against its base, a distilled model against its teacher, a fine-tune against its
start, a checkpoint against the next, bfloat16 against float32. Models are paired token by token, so that a difference
which two separate measurements could not show is seen; beside each one stands the smallest that these texts could have
shown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations, pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, Unreadable
from rbptrack.analysis.agreement_figures import draw_moves
from rbptrack.analysis.families import without_twins
from rbptrack.analysis.findings import Finding, Reason, Remark, Verdict, corrected
from rbptrack.analysis.lacking import lacking
from rbptrack.analysis.references import findings_of, read_beside
from rbptrack.analysis.rows import Column, Corrected, High, Low, P, cells_of
from rbptrack.ranks import metric_label
from rbptrack.stats.agreement import ENTROPY, KL, AgreementSums, Change, OtherTokens, TokenPairs, decade_names, paired

Measured = tuple[str, str]  # run id and name

SAME_TOP, CHANGED, FLIPS = "same top token", "changed", "right and wrong"
_SAME_TEXTS = ("dataset", "documents_hash", "sequence", "seq_len", "context", "candidates", "rank", "vocab_size",
               "num_tokens")  # fmt: skip
_LABELS = {ENTROPY: ENTROPY, KL: "KL"}
_BEFORE = 24  # tokens of context that are shown
_DRAWN = 6  # pairs that have a panel


@dataclass(kw_only=True)
class PairRow:
    """A row about two models on one dataset."""

    dataset: Annotated[str, Column("the dataset")]
    A: Annotated[str, Column("one model")]
    B: Annotated[str, Column("the other, on the same tokens")]


@dataclass(kw_only=True)
class SummaryRow(PairRow):
    """What two models share."""

    tokens: Annotated[int, Column("scored tokens", form=",.0f")]
    same_top: Annotated[
        float, Column("share of them at which both rank the same token first", "same top token", form=".2%")
    ]
    same_top_low: Low
    same_top_high: High
    lost: Annotated[float, Column("share that A ranks first and B does not (right to wrong)", form=".2%")]
    gained: Annotated[float, Column("share that B ranks first and A does not (wrong to right)", form=".2%")]
    p_flips: Annotated[
        float, Column("p of as many lost as gained (McNemar's test by document; Holm over all pairs)", form=".3g")
    ]


@dataclass(kw_only=True)
class ChangeRow(PairRow):
    """A metric in both."""

    metric: Annotated[str, Column("CE, entropy of the model's distribution, KL to the same reference (nats); RBP_k")]
    value_A: Annotated[float, Column("of A", form=".4f")]
    value_B: Annotated[float, Column("of B", form=".4f")]
    difference: Annotated[float, Column("B less A (documents paired)", form="+.4f")]
    low: Low
    high: High
    p: P
    p_corrected: Corrected
    detectable: Annotated[
        float, Column("smallest difference that these texts would have shown with a power of 80%", form=".4f")
    ]
    verdict: Annotated[str, Column("different or undecided")]


@dataclass(kw_only=True)
class DecadeRow(PairRow):
    """Where the tokens of a decade of A's ranks went."""

    rank_A: Annotated[str, Column("rank of the right token in A", title="rank in A")]
    rank_B: Annotated[str, Column("in B", title="rank in B")]
    tokens: Annotated[int, Column("tokens with both", form=",.0f")]
    share: Annotated[float, Column("of the tokens with that rank in A", form=".2%")]


@dataclass(kw_only=True)
class DocumentRow(PairRow):
    """A document that lost most."""

    document: Annotated[int, Column("its number in the selection (documents.parquet has its id)")]
    tokens: Annotated[int, Column("its scored tokens", form=",.0f")]
    ce_A: Annotated[float, Column("its CE in A, nats", title="CE of A", form=".3f")]
    ce_B: Annotated[float, Column("in B", title="CE of B", form=".3f")]
    nats: Annotated[float, Column("what it costs B more than A, nats in all", form="+.1f")]
    same_top: Annotated[
        float, Column("share of its tokens at which both rank the same token first", "same top token", form=".1%")
    ]


@dataclass(kw_only=True)
class TokenRow(PairRow):
    """A token that lost most, in its context."""

    document: Annotated[int, Column("number of its document")]
    position: Annotated[int, Column("its place there, in tokens")]
    text: Annotated[str, Column(f"the {_BEFORE} scored tokens before it")]
    token: Annotated[str, Column("the token")]
    rank_A: Annotated[int, Column("its rank in A", title="rank in A")]
    rank_B: Annotated[int, Column("in B", title="rank in B")]
    instead: Annotated[str, Column("what B ranks first")]
    nats: Annotated[float, Column("-ln p in B less that in A, nats", form="+.2f")]


@dataclass(frozen=True)
class Compared:
    """Two measurements of the same tokens, by the names that tell them from the others, and what was counted."""

    dataset: str
    a: str
    b: str
    documents: AgreementSums
    sums: AgreementSums  # by source, where sources are named
    worst: list[TokenRow]
    lacking: set[str]  # run ids of those without the column top
    same_reference: bool = False

    @property
    def keys(self) -> dict[str, Any]:
        """What every row begins with."""
        return {"dataset": self.dataset, "A": self.a, "B": self.b}

    def finding(self, question: str, **about: Any) -> Finding:
        """A finding about the two."""
        case = {"dataset": self.dataset, "a": self.a, "b": self.b} | about.pop("case", {})
        return Finding(question=question, case=case, **about)


@dataclass(kw_only=True)
class Agreement(Analyzer):
    """Two models on the same tokens: how often they agree, what changed, and where.

    Without patterns, measurements of one model are paired: each checkpoint with the next, every other precision or
    seed with the first.

    Attributes:
        a: pattern of one model's name: the start, the base, the teacher.
        b: pattern of the other's.
        ks: the k to compare at.
        worst: how many documents and tokens are shown of each pair.
        most: how many pairs are read at most.
        level: nominal coverage of the intervals; tests have size 1 - level, corrected over all cases (Holm).

    """

    name: ClassVar[str] = "agreement"
    a: str = ""
    b: str = ""
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    worst: int = 10
    most: int = 100
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Pair measurements of the same tokens, and count both."""
        report, every = Report(summary="references"), list[Compared]()
        self._add_references(report, runs)
        pairs = list(self._pairs(without_twins(runs.frame, keep="last")))
        if not pairs and report.findings:
            report.summary = "references"
            return report
        if not pairs:
            raise report.nothing_found(
                "no model twice (precision, checkpoint, seed) on the same tokens; analyzer.a and analyzer.b pair others"
            )
        if len(pairs) > self.most:
            text = f"{len(pairs)} pairs of models, and analyzer.most={self.most}: choose with analyzer.a and analyzer.b"
            raise BadInput(text) if self.a or self.b else report.nothing_found(text)
        for dataset, a, b in pairs:
            try:
                every.append(self._compared(runs, dataset, a, b))
            except (Unreadable, OtherTokens) as error:
                reason = Reason.UNREADABLE if isinstance(error, Unreadable) else ""
                report.notes.append(Remark(f"{a[1]} and {b[1]} on {dataset} are left out: {error}.", reason))
            runs.was_read()
        if not every and report.findings:
            report.summary = "references"
            return report
        if not every:
            raise report.nothing_found("no two measurements of the same tokens can be read")
        self._add_shares(report, every)
        self._add_changes(report, every)
        report.add_rows("rank_moves", (row for one in every for row in _moves(one)))
        report.add_rows("worst_documents", (row for one in every for row in self._worst_documents(one)))
        report.add_rows("worst_tokens", (row for one in every for row in one.worst))
        caption = "Share of the tokens of each row that have the rank of the column. The diagonal: no change."
        panels = [(f"{one.dataset}: {one.a} to {one.b}", one.sums.moves) for one in every[:_DRAWN]]
        report.drawings["rank_moves"] = Drawing(draw_moves(panels), caption)
        report.notes += lacking(runs.frame, set[str]().union(*(one.lacking for one in every)), "top")
        return report

    def _add_references(self, report: Report, runs: Runs) -> None:
        """What is known of models beside the references that were run with them."""
        every = read_beside(runs, report.notes)
        rows = [one.reference_row(every, self.level) for one in every]
        report.findings += findings_of(rows)
        report.add_rows("references", rows)
        report.add_rows("far_documents", (row for one in every for row in one.far_rows(self.worst)))
        report.add_metrics("kl/{dataset}/{model}/{reference}", map(cells_of, rows), "kl")

    def _pairs(self, frame: pd.DataFrame) -> Iterator[tuple[str, Measured, Measured]]:
        """Every two measurements of the same tokens that are asked for."""
        rows, there = frame[frame["vocab_size"].notna() & frame["documents_hash"].notna()], dict[str, None]()
        none = True
        for _, same in rows.groupby(list(_SAME_TEXTS), dropna=False, sort=True):
            dataset, names = str(same["dataset"].iloc[0]), _names(same)
            there |= dict.fromkeys(names.values())
            for a, b in self._asked(list(names.items())) if self.a or self.b else _of_one_model(same, names):
                none = False
                yield dataset, a, b
        if none and (self.a or self.b):
            raise BadInput(
                f"no two measurements of the same tokens for analyzer.a={self.a or '*'} analyzer.b={self.b or '*'}; "
                f"there are {', '.join(there) or 'none'}"
            )

    def _asked(self, models: list[Measured]) -> Iterator[tuple[Measured, Measured]]:
        """Every two of which pattern a names the one and b the other; in one order, where both orders fit."""
        for one, other in combinations(models, 2):
            for a, b in ((one, other), (other, one)):
                if fnmatchcase(a[1], self.a or "*") and fnmatchcase(b[1], self.b or "*"):
                    yield a, b
                    break

    def _compared(self, runs: Runs, dataset: str, a: Measured, b: Measured) -> Compared:
        parts, worst, without = list[AgreementSums](), list[TokenRow](), set[str]()
        texts, keys = runs.vocabulary(a[0]), {"dataset": dataset, "A": a[1], "B": b[1]}
        for pair in paired(runs.rank_pieces(a[0]), runs.rank_pieces(b[0])):
            parts.append(AgreementSums.of(pair, [k for k in sorted(self.ks) if k < pair.a.vocab_size]))
            worst = sorted([*worst, *_worst_tokens(pair, keys, texts, self.worst)], key=lambda row: -row.nats)
            del worst[self.worst :]
            without |= {run_id for (run_id, _), one in ((a, pair.a), (b, pair.b)) if one.version == 1}
        documents = AgreementSums.concatenate(parts)
        sources = runs.groups(a[0])
        return Compared(
            dataset, a[1], b[1], documents, documents.in_groups(sources) if sources else documents, worst, without,
            same_reference=_references(runs.frame, a, b) == 1,
        )  # fmt: skip

    def _add_shares(self, report: Report, every: list[Compared]) -> None:
        """How often the two agree, and the flips from right to wrong and back."""
        rows = []
        for one in every:
            tokens, same = one.sums.tokens.sum(), one.sums.agreement
            low, high = same.ends(self.level)
            rows.append(
                SummaryRow(
                    **one.keys,
                    tokens=int(tokens),
                    same_top=same.value,
                    same_top_low=low,
                    same_top_high=high,
                    lost=one.sums.lost.sum() / tokens,
                    gained=one.sums.gained.sum() / tokens,
                    p_flips=one.sums.p_flips(),
                )
            )
            report.findings.append(
                one.finding(SAME_TOP, estimate=same.value, low=low, high=high, extras={"tokens": int(tokens)})
            )
        flips = corrected(
            (
                one.finding(
                    FLIPS,
                    estimate=row.gained - row.lost,
                    p=row.p_flips,
                    extras={"lost": row.lost, "gained": row.gained},
                )
                for one, row in zip(every, rows, strict=True)
            ),
            self._differs,
        )
        for row, flip in zip(rows, flips, strict=True):
            row.p_flips = flip.p_corrected
        report.findings += flips
        report.add_rows("summary", rows)
        report.summary = "summary"
        report.add_metrics("same_top/{dataset}/{A}/{B}", map(vars, rows), "same_top")

    def _add_changes(self, report: Report, every: list[Compared]) -> None:
        """What CE, the entropy and RBP_k changed by."""
        changes = [
            (one, metric, change)
            for one in every
            for metric, change in one.sums.changes().items()
            if metric != KL or one.same_reference
        ]
        findings = corrected((self._change(*each) for each in changes), self._differs)
        rows = [
            ChangeRow(
                **one.keys, metric=_LABELS.get(metric) or metric_label(metric), value_A=change.a,
                value_B=change.b, difference=finding.estimate, low=finding.low, high=finding.high, p=finding.p,
                p_corrected=finding.p_corrected, detectable=finding.extras["detectable"], verdict=finding.verdict,
            )
            for (one, metric, change), finding in zip(changes, findings, strict=True)
        ]  # fmt: skip
        report.findings += findings
        report.add_rows("changes", rows)
        report.add_metrics("change/{dataset}/{A}/{B}/{metric}", map(vars, rows), "difference")

    def _change(self, one: Compared, metric: str, change: Change) -> Finding:
        difference = change.difference
        low, high = difference.ends(self.level)
        extras = {"detectable": difference.detectable(self.level), "a": change.a, "b": change.b}
        about: dict[str, Any] = {"estimate": difference.value, "low": low, "high": high, "p": difference.p}
        return one.finding(CHANGED, case={"metric": metric}, extras=extras, **about)

    def _differs(self, one: Finding) -> Verdict:
        return Verdict.DIFFERENT if one.p_corrected < 1 - self.level else Verdict.UNTOLD

    def _worst_documents(self, one: Compared) -> Iterator[DocumentRow]:
        sums = one.documents
        cost = sums.nats_b - sums.nats_a
        for i in np.argsort(-cost, kind="stable")[: self.worst]:
            n = sums.tokens[i]
            yield DocumentRow(
                **one.keys, document=int(sums.document[i]), tokens=int(n), ce_A=sums.nats_a[i] / n,
                ce_B=sums.nats_b[i] / n, nats=cost[i], same_top=sums.same_top[i] / n,
            )  # fmt: skip


def _names(same: pd.DataFrame) -> dict[str, str]:
    """Run id -> a name that tells a measurement from the others on the same tokens: `pythia-1b step1000`."""
    names = same["model"].astype(str)
    for column in ("revision", "dtype", "commit", "run_id"):
        ambiguous = names.duplicated(keep=False)
        several = ambiguous & (same.groupby(names)[column].transform("nunique", dropna=False) > 1)
        short = (
            same[column].astype(str).str.removeprefix("sha256:").str[: 8 if column in ("commit", "run_id") else None]
        )
        names = names.where(~several, names + " " + short)
    return dict(zip(same["run_id"].astype(str), names, strict=True))


def _references(frame: pd.DataFrame, a: Measured, b: Measured) -> int:
    """How many references the two were measured beside."""
    return int(frame.loc[frame["run_id"].isin([a[0], b[0]]), "reference_commit"].nunique())


def _of_one_model(same: pd.DataFrame, names: Mapping[str, str]) -> Iterator[tuple[Measured, Measured]]:
    """Of each model: every checkpoint with the next, or all else with the first; `compare` has two families."""
    for _, equal in same.groupby(["family", "non_embedding_params"], sort=True):
        descending = equal.sort_values(["dtype", "run_id"], ascending=[False, True])  # float32 first
        ordered = descending.sort_values("training_tokens", kind="stable")
        models = [(run_id, names[run_id]) for run_id in map(str, ordered["run_id"])]
        checkpoints = ordered["training_tokens"].nunique() == len(ordered)
        yield from pairwise(models) if checkpoints else ((models[0], other) for other in models[1:])


def _worst_tokens(pair: TokenPairs, keys: dict[str, str], texts: Mapping[int, str], most: int) -> Iterator[TokenRow]:
    """The tokens that cost b most more than a, in the text before them."""
    cost, token, document = pair.worse_by, pair.a.column("token"), pair.a.column("document")
    first = pair.b.column("top") if pair.b.version > 1 else None

    def text(token_id: int) -> str:
        return texts.get(token_id, f"<{token_id}>")

    for i in np.argsort(-cost, kind="stable")[:most]:
        before = [text(int(token[j])) for j in range(max(0, i - _BEFORE), i) if document[j] == document[i]]
        yield TokenRow(
            **keys, document=int(document[i]), position=int(pair.a.column("position")[i]), text="".join(before),
            token=text(int(token[i])), rank_A=int(pair.a.rank[i]), rank_B=int(pair.b.rank[i]),
            instead="" if first is None else text(int(first[i])), nats=float(cost[i]),
        )  # fmt: skip


def _moves(one: Compared) -> Iterator[DecadeRow]:
    names = decade_names(len(one.sums.moves))
    for i, row in enumerate(one.sums.moves):
        for j in np.flatnonzero(row):
            yield DecadeRow(
                **one.keys, rank_A=names[i], rank_B=names[j], tokens=int(row[j]), share=float(row[j] / row.sum())
            )
