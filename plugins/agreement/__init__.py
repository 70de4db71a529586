"""Two models on the same tokens: where they agree, what changed, and which texts show it.

For a quantised or pruned checkpoint against its base, a distilled model against its teacher, a fine-tune against its
start, a checkpoint against the next, bfloat16 against float32. Models are paired token by token, so that a difference
which two separate measurements could not show is seen; beside each one stands the smallest that these texts could have
shown.

The same top token is counted at every position. Tokens that go from right to wrong and back are compared by McNemar's
test, clustered by document (Obuchowski 1998). Changes of CE, entropy and RBP_k have intervals over documents, p
corrected over all pairs and metrics, and the smallest change that these texts would have shown with 80% power. Such
intervals cover 93 to 99% in simulation with 10 to 135 documents; fewer than 10 documents have no interval.

Did it hurt? One-sided tests of the rank part of CE and of RBP_k at every k: yes if B ranks worse; no if harm of
`delta` or more is refuted by every measure; otherwise undecided. Of models that rank equally well, 4% are called worse.
Two copies of one model with noise in their weights differ slightly, and with enough text that shows, too: delta says
what matters.

With `reference=`, the tables `references` and `far_documents` add KL(reference || model) by token and document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pandas as pd

from rbptrack.analysis import Analyzer, BadInput, Drawing, Report, Runs, Unreadable
from rbptrack.analysis.changes import changed
from rbptrack.analysis.families import without_twins
from rbptrack.analysis.findings import Reason, Remark, around, corrected, sure
from rbptrack.analysis.lacking import lacking
from rbptrack.analysis.rows import cells_of
from rbptrack.analysis.same_tokens import same_texts
from rbptrack.ranks import HEADLINE_KS
from rbptrack.stats.pairs import KL, OtherTokens, PairSums, paired

from .figures import draw_moves
from .findings import Flips, SameTop
from .harm import LADDER, harm_of, ladder_rows
from .pairing import Measured, pairs_named, pairs_of_one_model
from .references import findings_of, read_beside
from .rows import ChangeRow, Compared, SummaryRow, TokenRow, decade_rows, document_rows, token_rows

_DRAWN = 6  # pairs that have a panel
_MOVES = "Share of the tokens of each row that have the rank of the column. The diagonal: no change."


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
        delta: how far RBP_k may fall, and the rank part of the loss rise (nats), without harm; 0: not given, so that no
            pair is called unharmed.
        level: nominal coverage of the intervals; tests have size 1 - level, corrected over all cases (Holm).

    """

    name: ClassVar[str] = "agreement"
    a: str = ""
    b: str = ""
    ks: list[int] = field(default_factory=lambda: [*HEADLINE_KS])
    worst: int = 10
    most: int = 100
    delta: float = 0.0
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Pair measurements of the same tokens, and count both."""
        report = Report(summary="references")
        self._add_references(report, runs)
        pairs = list(self._compared(report, runs))
        if not pairs and not report.findings:
            raise report.nothing_found("no two measurements of the same tokens can be read")
        if not pairs:
            return report
        self._add_shares(report, pairs)
        self._add_changes(report, pairs)
        harm = harm_of(pairs, delta=self.delta, level=self.level)
        report.findings += harm
        report.add_rows("ladder", ladder_rows(pairs, harm, self.level), caption=LADDER)
        report.add_rows("rank_moves", (row for pair in pairs for row in decade_rows(pair)))
        report.add_rows("worst_documents", (row for pair in pairs for row in document_rows(pair, self.worst)))
        report.add_rows("worst_tokens", (row for pair in pairs for row in pair.worst))
        panels = [(f"{pair.dataset}: {pair.a} to {pair.b}", pair.sums.moves) for pair in pairs[:_DRAWN]]
        report.drawings["rank_moves"] = Drawing(draw_moves(panels), _MOVES)
        report.notes += lacking(runs.frame, set[str]().union(*(pair.lacking for pair in pairs)), "top")
        return report

    def _add_references(self, report: Report, runs: Runs) -> None:
        """Add the comparisons of models with the references that were run beside them."""
        models = read_beside(runs, report.notes)
        rows = [model.reference_row(models, self.level) for model in models]
        report.findings += findings_of(rows)
        report.add_rows("references", rows)
        report.add_rows("far_documents", (row for model in models for row in model.far_rows(self.worst)))
        report.add_metrics("kl/{dataset}/{model}/{reference}", map(cells_of, rows), "kl")

    def _compared(self, report: Report, runs: Runs) -> Iterator[Compared]:
        """Read every pair; those that cannot be paired are named in the notes.

        Raises:
            NothingToSay: no pair and no reference exists.
            BadInput: the patterns name too many pairs, or none.

        """
        pairs = list(self._pairs(without_twins(runs.frame, keep="last")))
        if not pairs and not report.findings:
            raise report.nothing_found(
                "no model twice (precision, checkpoint, seed) on the same tokens; analyzer.a and analyzer.b pair others"
            )
        if len(pairs) > self.most:
            text = f"{len(pairs)} pairs of models, and analyzer.most={self.most}: choose with analyzer.a and analyzer.b"
            raise BadInput(text) if self.a or self.b else report.nothing_found(text)
        for dataset, a, b in pairs:
            try:
                yield self._read(runs, dataset, a, b)
            except (Unreadable, OtherTokens) as error:
                reason = Reason.UNREADABLE if isinstance(error, Unreadable) else ""
                report.notes.append(Remark(f"{a[1]} and {b[1]} on {dataset} are left out: {error}.", reason))
            runs.was_read()

    def _pairs(self, frame: pd.DataFrame) -> Iterator[tuple[str, Measured, Measured]]:
        """Yield every two measurements of the same tokens that are asked for."""
        names = dict[str, None]()
        paired_any = False
        for dataset, rows, models in same_texts(frame):
            names |= dict.fromkeys(models.values())
            named = self.a or self.b
            pairs = pairs_named(models, self.a, self.b) if named else pairs_of_one_model(rows, models)
            for a, b in pairs:
                paired_any = True
                yield dataset, a, b
        if not paired_any and (self.a or self.b):
            raise BadInput(
                f"no two measurements of the same tokens for analyzer.a={self.a or '*'} analyzer.b={self.b or '*'}; "
                f"available: {', '.join(names) or 'none'}"
            )

    def _read(self, runs: Runs, dataset: str, a: Measured, b: Measured) -> Compared:
        parts = list[PairSums]()
        worst = list[TokenRow]()
        without = set[str]()
        texts = runs.vocabulary(a[0])
        keys = {"dataset": dataset, "A": a[1], "B": b[1]}
        for pair in paired(runs.rank_pieces(a[0]), runs.rank_pieces(b[0])):
            parts.append(PairSums.of(pair, [k for k in sorted(self.ks) if k < pair.a.vocab_size]))
            worst = sorted([*worst, *token_rows(pair, keys, texts, self.worst)], key=lambda row: -row.nats)
            del worst[self.worst :]
            without |= {run_id for (run_id, _), table in ((a, pair.a), (b, pair.b)) if table.version == 1}
        documents = PairSums.concatenate(parts)
        sources = runs.groups(a[0])
        references = runs.frame.loc[runs.frame["run_id"].isin([a[0], b[0]]), "reference_commit"].nunique()
        return Compared(
            dataset=dataset,
            a=a[1],
            b=b[1],
            documents=documents,
            sums=documents.in_groups(sources) if sources else documents,
            worst=worst,
            lacking=without,
            same_reference=references == 1,
        )

    def _add_shares(self, report: Report, pairs: Sequence[Compared]) -> None:
        """Add how often the two agree, and the flips from right to wrong and back."""
        flips = list[Flips]()
        for pair in pairs:
            tokens = pair.sums.tokens.sum()
            lost = pair.sums.lost.sum() / tokens
            gained = pair.sums.gained.sum() / tokens
            flips.append(Flips(case=pair.case, estimate=gained - lost, p=pair.sums.p_flips(), lost=lost, gained=gained))
        flips = corrected(flips, sure(self.level))
        rows = list[SummaryRow]()
        for pair, flip in zip(pairs, flips, strict=True):
            tokens = int(pair.sums.tokens.sum())
            same = pair.sums.agreement.interval(self.level, lowest=0.0, highest=1.0)
            report.findings.append(SameTop(case=pair.case, tokens=tokens, **around(same)))
            rows.append(
                SummaryRow(
                    **pair.keys,
                    tokens=tokens,
                    same_top=same,
                    lost=flip.lost,
                    gained=flip.gained,
                    p_flips=flip.p_corrected,
                )
            )
        report.findings += flips
        report.add_rows("summary", rows)
        report.summary = "summary"
        report.add_metrics("same_top/{dataset}/{A}/{B}", map(cells_of, rows), "same_top")

    def _add_changes(self, report: Report, pairs: Sequence[Compared]) -> None:
        """Add the changes of CE, the entropy and RBP_k."""
        pairs_by_metric = [
            (pair, metric, change)
            for pair in pairs
            for metric, change in pair.sums.changes().items()
            if metric != KL or pair.same_reference
        ]
        findings = changed([(pair.case, metric, change) for pair, metric, change in pairs_by_metric], self.level)
        rows = [
            ChangeRow(**pair.keys, **finding.cells)
            for (pair, *_), finding in zip(pairs_by_metric, findings, strict=True)
        ]
        report.findings += findings
        report.add_rows("changes", rows)
        report.add_metrics("change/{dataset}/{A}/{B}/{metric}", map(cells_of, rows), "difference")
