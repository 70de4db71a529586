"""Which statistic of known answers orders models as their scores in a task do, and how far that can be trusted.

In the manner of arXiv 2605.18607, whose finding is that statistics of expert-written solutions order models of several
families far better than cross-entropy of all text does. The definitions are ours: eight statistics of the solution's
tokens, averaged within a solution by four weightings, then over solutions. `import scores=...` brings in the scores.

The eight statistics: mean p, CE, entropy, RBP_k, ln R, 1/R, the margin ln p(top) - ln p(target), share ranked first.
The weightings: uniform, the model's entropy, rarity of the token, position. Order is tested by Kendall's tau over
pairs of models of one family, exact p, Holm-corrected over proxies and tasks. The best of 32 proxies flatters itself
on the models that chose it, so it is chosen without two families and judged by pairs across them; that needs three
families, and four for an interval.

A dataset is flagged as possibly seen in training if a model ranks more than 5% of the solutions of 20 tokens or more
first throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis import Analyzer, Drawing, Report, Runs, Unreadable
from rbptrack.analysis.comparable import marked_candidates
from rbptrack.analysis.families import without_twins
from rbptrack.analysis.findings import Reason, Remark, Verdict, around, corrected, sure
from rbptrack.analysis.lacking import lacking
from rbptrack.analysis.rows import UNKNOWN, cells_of
from rbptrack.ranks import FloatArray

from .figures import draw_proxies
from .findings import Chosen, Extrapolation, Orders
from .matching import last_checkpoints, matched
from .ordering import Arrangement, associated, extrapolate, leave_families_out
from .rows import ProxyRow, SummaryRow, TrainingRow
from .solutions import PROXIES, Solutions, label, rarity
from .task import CE, SIGNS, Answered, Task, model_rows

_KNOWN_TOKENS = 20  # a solution this long that is ranked first throughout was likely seen in training
_KNOWN_SHARE = 0.05  # of such solutions; above it a dataset is flagged


@dataclass(kw_only=True)
class Proxies(Analyzer):
    """Which statistic of known answers orders models as their scores in a task do.

    Attributes:
        k: of RBP_k.
        least: models of one dataset and task; with fewer the task is left out.
        seen: datasets that the models may have been trained on: sentences about them say so.
        level: nominal coverage of the intervals; tests have size 1 - level, corrected (Holm).

    """

    name: ClassVar[str] = "proxies"
    k: int = 10
    least: int = 5
    seen: list[str] = field(default_factory=list)
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Join scores to measurements of answers; correlate, leave families out, and extrapolate along training."""
        scores = runs.scores()
        report = Report(summary="summary")
        if not len(scores):
            raise report.nothing_found("the store has no scores of tasks: import scores=FILE brings them in")
        answered = list(self._answered(runs, report))
        if not answered:
            raise report.nothing_found("no dataset with answers (dataset.fields with two or more) was measured")
        tasks = [task for on in answered for task in self._tasks(on, scores, report)]
        if not tasks:
            raise report.nothing_found("no scores of the models that were measured")
        self._add_proxies(report, tasks)
        training = [row for task in tasks for row in self._along_training(task)]
        report.add_rows("along_training", training)
        report.findings += [_extrapolation(row) for row in training]
        report.add_rows("models", (row for task in tasks for row in model_rows(task)))
        table = report.tables["models"].frame
        panels = [
            (
                f"{task.name}, {task.on.dataset}",
                label(PROXIES[task.best], self.k),
                table[(table[list(task.case)] == task.case).all(axis=1)],
            )
            for task in tasks
        ]
        caption = "Score against the proxy of largest rank correlation, which was chosen on these very models."
        report.drawings["best_proxy"] = Drawing(draw_proxies(panels), caption)
        for on in answered:
            unknown = np.flatnonzero(np.isnan(on.means).any(axis=1))
            report.notes += lacking(runs.frame, on.rows["run_id"].iloc[unknown].tolist(), "entropy")
        report.notes += self._flags(answered)
        return report

    def _answered(self, runs: Runs, report: Report) -> Iterator[Answered]:
        """Yield every dataset with answers, and the proxies of its models."""
        frame = without_twins(runs.frame[runs.frame["vocab_size"].notna()])
        for dataset, rows in frame.groupby(frame["dataset"] + frame["candidates"].map(marked_candidates), sort=True):
            kept = list[int]()
            means = list[FloatArray]()
            shares = list[float]()
            for place, run_id in zip(rows.index, map(str, rows["run_id"]), strict=True):
                try:
                    solutions = self._solutions(runs, run_id)
                except Unreadable as error:
                    text = f"{rows.loc[place, 'model']} on {dataset} is left out: {error}."
                    report.notes.append(Remark(text, Reason.UNREADABLE))
                    continue
                finally:
                    runs.was_read()
                if solutions is None:
                    break  # a dataset without answers, for every model
                kept.append(place)
                means.append(SIGNS * solutions.means)
                long = solutions.tokens >= _KNOWN_TOKENS
                shares.append(float(solutions.first[long].mean()) if long.any() else 0.0)
            if kept:
                yield Answered(str(dataset), rows.loc[kept], np.stack(means), np.array(shares))

    def _solutions(self, runs: Runs, run_id: str) -> Solutions | None:
        """Return the proxies of a model's solutions; None where the texts have no field after the first."""
        last = 0
        occurrences = np.zeros(0, dtype=np.int64)
        for piece in runs.rank_pieces(run_id):
            last = max(last, int(piece.column("field").max(initial=0)))
            counts = np.bincount(piece.column("token"), minlength=piece.vocab_size)
            occurrences = counts if not len(occurrences) else occurrences + counts
        if not last:
            return None
        rare = rarity(occurrences)
        return Solutions.concatenate([Solutions.of(piece, last, rare, k=self.k) for piece in runs.rank_pieces(run_id)])

    def _tasks(self, on: Answered, scores: pd.DataFrame, report: Report) -> Iterator[Task]:
        """Yield each task's scores of the models of a dataset, by name and revision."""
        for name, pairs in matched(on.rows, scores).groupby("task", sort=True):
            rows = on.rows.iloc[pairs["place"]]
            scored = pairs["score"].to_numpy(dtype=np.float64)
            means = on.means[pairs["place"]]
            last = last_checkpoints(rows)
            if (models := int(last.sum())) < self.least:
                text = f"{name}: {models} models on {on.dataset} have a score, and {self.least} are needed."
                report.notes.append(Remark(text, Reason.FEW_SIZES, needed=self.least, there=models))
                continue
            if np.ptp(scored[last]) == 0:
                report.notes.append(f"{name}: all models on {on.dataset} have the same score.")
                continue
            families = list(map(str, rows["family"][last]))
            arrangement = Arrangement.of(families)
            yield Task(
                name=str(name),
                on=on,
                rows=rows,
                means=means,
                scores=scored,
                last=last,
                arrangement=arrangement,
                associations=[associated(proxy, scored[last], arrangement) for proxy in means[last].T],
                left_out=leave_families_out(means[last], scored[last], families),
            )

    def _add_proxies(self, report: Report, tasks: Sequence[Task]) -> None:
        """Add every proxy's order, corrected over all, and the proxy that other families choose."""
        findings = corrected(
            (
                Orders(
                    case=task.case | {"proxy": label(proxy, self.k)},
                    estimate=association.spearman,
                    p=association.p,
                )
                for task in tasks
                for proxy, association in zip(PROXIES, task.associations, strict=True)
            ),
            sure(self.level, Verdict.YES),
        )
        rows = list[ProxyRow]()
        summary = list[SummaryRow]()
        chosen = list[Chosen]()
        tests = sum(isfinite(finding.p) for finding in findings)
        for number, task in enumerate(tasks):
            orders = findings[number * len(PROXIES) : (number + 1) * len(PROXIES)]
            rows += self._rows(task, orders)
            summary.append(self._summary(task, orders, tests))
            chosen.append(self._chosen(task, summary[-1], tests))
        report.findings += [*corrected(chosen, self._better_than_chance), *findings]
        report.add_rows("summary", summary)
        report.add_rows("proxies", rows)
        report.add_metrics("spearman/{dataset}/{task}/{proxy}", map(cells_of, rows), "spearman")

    def _rows(self, task: Task, orders: Sequence[Orders]) -> Iterator[ProxyRow]:
        for i, (association, finding) in enumerate(zip(task.associations, orders, strict=True)):
            yield ProxyRow(
                **task.case,
                proxy=finding.case["proxy"],
                models=int(task.last.sum()),
                spearman=association.spearman,
                kendall=association.kendall,
                p=association.p,
                p_corrected=finding.p_corrected,
                left_out=task.left_out.fixed[i] if task.left_out else np.nan,
                verdict=finding.verdict,
            )

    def _summary(self, task: Task, orders: Sequence[Orders], tests: int) -> SummaryRow:
        left = task.left_out
        models = int(task.last.sum())
        return SummaryRow(
            **task.case,
            models=models,
            families=task.rows["family"].nunique(),
            best=label(PROXIES[task.best], self.k),
            spearman=task.associations[task.best].spearman,
            ce=task.associations[CE].spearman,
            survive=sum(finding.verdict is Verdict.YES for finding in orders),
            left_out=left.right.interval(self.level, lowest=0.0, highest=1.0) if left else UNKNOWN,
            left_out_ce=left.fixed[CE] if left else np.nan,
            detectable=task.arrangement.detectable(1 - (1 - self.level) / max(tests, 1)),
        )

    def _chosen(self, task: Task, row: SummaryRow, tests: int) -> Chosen:
        """Return how well a proxy orders the models of families that did not choose it."""
        left = task.left_out
        return Chosen(
            case=task.case,
            null=0.5,
            p=left.right.spread.p(left.right.value - 0.5) if left and left.right.spread else np.nan,
            detectable_order=row.detectable,
            tests=tests,
            within=task.arrangement.within,
            units=task.arrangement.units,
            models=row.models,
            survive=row.survive,
            best=row.best,
            spearman=row.spearman,
            spearman_ce=row.ce,
            right_ce=row.left_out_ce,
            chosen=[label(PROXIES[i], self.k) for i in left.chosen] if left else [],
            pairs=left.pairs if left else 0,
            **around(row.left_out),
        )

    def _better_than_chance(self, task: Chosen) -> Verdict:
        if not task.p_corrected < 1 - self.level:
            return Verdict.UNTOLD
        return Verdict.YES if task.estimate > task.null else Verdict.NO

    def _along_training(self, task: Task) -> Iterator[TrainingRow]:
        """Yield, for each model with checkpoints, its score's second half by the proxy that fits the first half
        best.
        """
        trained = task.rows["training_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
        for (family, size), rows in task.rows.groupby(["family", "size"], sort=True):
            places = np.flatnonzero(task.rows.index.isin(rows.index) & np.isfinite(trained))
            if len(places) < 4:
                continue
            tokens = trained[places]
            values = task.means[places]
            scores = task.scores[places]
            early = tokens <= tokens.max() / 2
            fits = [_correlation(proxy[early], scores[early]) for proxy in values.T]
            best = int(np.nanargmax(fits)) if np.isfinite(fits).any() else CE
            if extrapolated := extrapolate(tokens, values[:, best], scores):
                yield TrainingRow(
                    **task.case,
                    family=str(family),
                    size=str(size),
                    proxy=label(PROXIES[best], self.k),
                    fitted=extrapolated.checkpoints[0],
                    forecast=extrapolated.checkpoints[1],
                    error=extrapolated.error,
                    constant=extrapolated.constant,
                )

    def _flags(self, answered: Sequence[Answered]) -> Iterator[str]:
        """Yield datasets that the models may have been trained on."""
        for on in answered:
            if on.rows["dataset"].iat[0] in self.seen:
                yield f"{on.dataset}: the models may have been trained on it (analyzer.seen); a forecast then flatters."
            likely = on.rows["model"][on.known > _KNOWN_SHARE]
            if len(likely):
                yield (
                    f"{on.dataset}: {', '.join(dict.fromkeys(likely))} rank every token of {on.known.max():.0%} of the "
                    f"solutions of {_KNOWN_TOKENS} tokens or more first: they were likely trained on them."
                )


def _correlation(values: FloatArray, scores: FloatArray) -> float:
    if len(values) < 3 or np.ptp(values) == 0 or np.ptp(scores) == 0:
        return float("nan")
    return float(np.corrcoef(values, scores)[0, 1])


def _extrapolation(row: TrainingRow) -> Extrapolation:
    return Extrapolation(
        case={"dataset": row.dataset, "task": row.task, "family": row.family, "size": row.size},
        estimate=row.error,
        proxy=row.proxy,
        forecast=row.forecast,
        constant=row.constant,
    )
