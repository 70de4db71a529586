"""Which statistic of known answers orders models as their scores in a task do, and how far that can be trusted.

In the manner of arXiv 2605.18607, whose finding is that statistics of expert-written solutions order models of several
families far better than cross-entropy of all text does. The definitions are ours: eight statistics of the solution's
tokens, averaged within a solution by four weightings, then over solutions. `import scores=...` brings in the scores.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from rbptrack.analysis import Analyzer, Drawing, Report, Runs, Unreadable
from rbptrack.analysis.families import without_twins
from rbptrack.analysis.findings import Finding, Reason, Remark, Verdict, corrected
from rbptrack.analysis.lacking import lacking
from rbptrack.analysis.proxy_figures import draw_proxies
from rbptrack.analysis.rows import Column, Corrected, P
from rbptrack.analysis.scored import last_checkpoints, matched
from rbptrack.ranks import FloatArray
from rbptrack.stats.bootstrap import BOOTSTRAP_SEED
from rbptrack.stats.proxies import (
    PROXIES,
    Association,
    Extrapolated,
    LeftOut,
    Solutions,
    associated,
    detectable_spearman,
    extrapolate,
    label,
    leave_families_out,
    rarity,
)

ORDERS, CHOSEN, EXTRAPOLATED = "proxy orders models", "proxy chosen by other families", "score from the first half"
_CE = next(i for i, proxy in enumerate(PROXIES) if (proxy.statistic, proxy.weighting) == ("ce", "uniform"))
_KNOWN_TOKENS = 20  # a solution this long that is ranked first throughout was likely seen in training
_KNOWN_SHARE = 0.05  # of such solutions; above it a dataset is flagged
_SIGNS = np.array([proxy.sign for proxy in PROXIES])


@dataclass(kw_only=True)
class OfTask:
    """A row about a task's scores and the answers of a dataset."""

    dataset: Annotated[str, Column("the dataset whose answers are scored")]
    task: Annotated[str, Column("the task whose scores are forecast")]


@dataclass(kw_only=True)
class ProxyRow(OfTask):
    """One statistic and weighting."""

    proxy: Annotated[str, Column("statistic of the solution's tokens, and the weighting where it is not uniform")]
    models: Annotated[int, Column("models with a score")]
    spearman: Annotated[float, Column("rank correlation with the scores; above 0: as expected", "ρ", form="+.2f")]
    spearman_low: Annotated[float, Column("lower end of its interval (models resampled; from ten models)")]
    spearman_high: Annotated[float, Column("upper end")]
    kendall: Annotated[float, Column("Kendall's tau", title="τ", form="+.2f")]
    p: P
    p_corrected: Corrected
    left_out: Annotated[
        float, Column("share of pairs of models of two families that it orders rightly", "pairs right", form=".0%")
    ]
    verdict: Annotated[str, Column("whether it orders models, corrected: yes or undecided")]


@dataclass(kw_only=True)
class SummaryRow(OfTask):
    """What a task's scores can be forecast with."""

    models: Annotated[int, Column("models with a score")]
    families: Annotated[int, Column("of so many families")]
    best: Annotated[str, Column("the proxy of largest rank correlation on these very models: flattered by the choice")]
    spearman: Annotated[float, Column("its rank correlation", "ρ", form="+.2f")]
    ce: Annotated[float, Column("that of cross-entropy", "ρ of CE", form="+.2f")]
    survive: Annotated[int, Column("proxies whose order survives correction (Holm), of 32")]
    left_out: Annotated[
        float,
        Column("share of pairs ordered rightly by the proxy that the other families chose", "pairs right", form=".0%"),
    ]
    left_out_ce: Annotated[float, Column("by cross-entropy", "pairs right by CE", form=".0%")]
    detectable: Annotated[
        float, Column("smallest rank correlation that so many models would have shown", "ρ that would show", form=".2f")
    ]


@dataclass(kw_only=True)
class TrainingRow(OfTask):
    """Scores of the second half of a training, from the first."""

    family: Annotated[str, Column("the family")]
    size: Annotated[str, Column("the size as published")]
    proxy: Annotated[str, Column("chosen on the first half")]
    fitted: Annotated[int, Column("checkpoints of the first half")]
    forecast: Annotated[int, Column("checkpoints of the second half")]
    error: Annotated[float, Column("mean distance of forecast and score there", form=".3f")]
    constant: Annotated[float, Column("that of the last score of the first half, unchanged", form=".3f")]


@dataclass(kw_only=True)
class ModelRow(OfTask):
    """A model's score and proxies."""

    family: Annotated[str, Column("the family")]
    model: Annotated[str, Column("the model")]
    revision: Annotated[str, Column("its checkpoint")]
    score: Annotated[float, Column("in the task", form=".3f")]
    best: Annotated[float, Column("the proxy of largest rank correlation, as in the summary", form=".4g")]
    ce: Annotated[float, Column("cross-entropy of the solutions, nats", title="CE", form=".3f")]
    first: Annotated[float, Column("share of whole solutions that are ranked first throughout", form=".1%")]


@dataclass(frozen=True)
class Answered:
    """The solutions of all models of a dataset that could be read."""

    dataset: str
    rows: pd.DataFrame  # of Runs.frame, one per model
    means: FloatArray  # (models, proxies), turned so that higher is better
    known: FloatArray  # share of long solutions ranked first throughout, (models,)


@dataclass(frozen=True)
class Task:
    """A task's scores of the models of a dataset, of every checkpoint."""

    name: str
    on: Answered
    rows: pd.DataFrame
    means: FloatArray
    scores: FloatArray
    last: npt.NDArray[np.bool_]  # whether a row is its model's last checkpoint: models, not checkpoints, are compared
    associations: list[Association]
    left_out: LeftOut | None

    @property
    def case(self) -> dict[str, str]:
        """What every row begins with."""
        return {"dataset": self.on.dataset, "task": self.name}

    @property
    def best(self) -> int:
        """The proxy of largest rank correlation."""
        return int(np.nanargmax([one.spearman for one in self.associations]))


@dataclass(kw_only=True)
class Proxies(Analyzer):
    """Which statistic of known answers orders models as their scores in a task do.

    Attributes:
        k: of RBP_k.
        least: models of one dataset and task, fewer of which are left out.
        seen: datasets that the models may have been trained on: said beside what is found there.
        level: nominal coverage of the intervals; tests have size 1 - level, corrected (Holm).
        replicates: bootstraps of models.

    """

    name: ClassVar[str] = "proxies"
    k: int = 10
    least: int = 5
    seen: list[str] = field(default_factory=list)
    level: float = 0.95
    replicates: int = 1000

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
        report.findings += [_of_training(row) for row in training]
        report.add_rows("models", (row for task in tasks for row in _models(task)))
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
        """Every dataset with answers, and the proxies of its models."""
        frame = without_twins(runs.frame[runs.frame["vocab_size"].notna()])
        for dataset, every in frame.groupby("dataset", sort=True):
            kept, means, known = list[int](), list[FloatArray](), list[float]()
            for place, run_id in zip(every.index, map(str, every["run_id"]), strict=True):
                try:
                    solutions = self._solutions(runs, run_id)
                except Unreadable as error:
                    text = f"{every.loc[place, 'model']} on {dataset} is left out: {error}."
                    report.notes.append(Remark(text, Reason.UNREADABLE))
                    continue
                finally:
                    runs.was_read()
                if solutions is None:
                    break  # a dataset without answers, for every model
                kept.append(place)
                means.append(_SIGNS * solutions.means)
                long = solutions.tokens >= _KNOWN_TOKENS
                known.append(float(solutions.first[long].mean()) if long.any() else 0.0)
            if kept:
                yield Answered(str(dataset), every.loc[kept], np.stack(means), np.array(known))

    def _solutions(self, runs: Runs, run_id: str) -> Solutions | None:
        """The proxies of a model's solutions; None where the texts have no field after the first."""
        last, occurrences = 0, np.zeros(0, dtype=np.int64)
        for piece in runs.rank_pieces(run_id):
            last = max(last, int(piece.column("field").max(initial=0)))
            counts = np.bincount(piece.column("token"), minlength=piece.vocab_size)
            occurrences = counts if not len(occurrences) else occurrences + counts
        if not last:
            return None
        rare = rarity(occurrences)
        return Solutions.concatenate([Solutions.of(piece, last, rare, k=self.k) for piece in runs.rank_pieces(run_id)])

    def _tasks(self, on: Answered, scores: pd.DataFrame, report: Report) -> Iterator[Task]:
        """Each task's scores of the models of a dataset, by name and revision."""
        for name, mine in matched(on.rows, scores).groupby("task", sort=True):
            rows, scored = on.rows.iloc[mine["place"]], mine["score"].to_numpy(dtype=np.float64)
            means, last = on.means[mine["place"]], last_checkpoints(on.rows.iloc[mine["place"]])
            if (models := int(last.sum())) < self.least:
                text = f"{name}: {models} models on {on.dataset} have a score, and {self.least} are needed."
                report.notes.append(Remark(text, Reason.FEW_SIZES, needed=self.least, there=models))
                continue
            if np.ptp(scored[last]) == 0:
                report.notes.append(f"{name}: all models on {on.dataset} have the same score.")
                continue
            associations = [
                associated(one, scored[last], level=self.level, replicates=self.replicates, seed=BOOTSTRAP_SEED)
                for one in means[last].T
            ]
            left_out = leave_families_out(means[last], scored[last], list(map(str, rows["family"][last])))
            yield Task(str(name), on, rows, means, scored, last, associations, left_out)

    def _add_proxies(self, report: Report, tasks: Sequence[Task]) -> None:
        """Every proxy's order, corrected over all; and the proxy that other families choose."""
        asked = [
            Finding(
                question=ORDERS, case=task.case | {"proxy": label(proxy, self.k)}, estimate=one.spearman, low=one.low,
                high=one.high, p=one.p, extras={"ce": i == _CE, "models": int(task.last.sum())},
            )
            for task in tasks
            for i, (proxy, one) in enumerate(zip(PROXIES, task.associations, strict=True))
        ]  # fmt: skip
        findings = corrected(asked, lambda one: Verdict.YES if one.p_corrected < 1 - self.level else Verdict.UNTOLD)
        rows = [
            ProxyRow(
                **task.case, proxy=finding.case["proxy"], models=int(task.last.sum()), spearman=one.spearman,
                spearman_low=one.low, spearman_high=one.high, kendall=one.kendall, p=one.p,
                p_corrected=finding.p_corrected, left_out=task.left_out.fixed[i] if task.left_out else np.nan,
                verdict=finding.verdict,
            )
            for (task, i, one), finding in zip(
                ((task, i, one) for task in tasks for i, one in enumerate(task.associations)), findings, strict=True
            )
        ]  # fmt: skip
        summary = [self._summary(task, rows) for task in tasks]
        report.findings += [self._chosen(task, row) for task, row in zip(tasks, summary, strict=True)] + findings
        report.add_rows("summary", summary)
        report.add_rows("proxies", rows)
        report.add_metrics("spearman/{dataset}/{task}/{proxy}", map(vars, rows), "spearman")

    def _summary(self, task: Task, rows: Sequence[ProxyRow]) -> SummaryRow:
        mine = [row for row in rows if (row.dataset, row.task) == (task.on.dataset, task.name)]
        left = task.left_out
        return SummaryRow(
            **task.case, models=int(task.last.sum()), families=task.rows["family"].nunique(),
            best=mine[task.best].proxy,
            spearman=mine[task.best].spearman, ce=mine[_CE].spearman,
            survive=sum(row.verdict == Verdict.YES for row in mine),
            left_out=left.right if left else np.nan, left_out_ce=left.fixed[_CE] if left else np.nan,
            detectable=detectable_spearman(int(task.last.sum()), level=self.level),
        )  # fmt: skip

    def _chosen(self, task: Task, row: SummaryRow) -> Finding:
        """How well a proxy orders the models of families that did not choose it."""
        left = task.left_out
        extras: dict[str, Any] = {name: getattr(row, name) for name in ("models", "families", "survive", "detectable")}
        extras |= {"best": row.best, "spearman": row.spearman, "ce": row.ce, "right_ce": row.left_out_ce}
        extras["chosen"] = [label(PROXIES[i], self.k) for i in left.chosen] if left else []
        extras["pairs"] = left.pairs if left else 0
        return Finding(question=CHOSEN, case=task.case, estimate=row.left_out, extras=extras)

    def _along_training(self, task: Task) -> Iterator[TrainingRow]:
        """Of every model with checkpoints: its score's second half, by the proxy that fits the first half best."""
        trained = task.rows["training_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
        for (family, size), rows in task.rows.groupby(["family", "size"], sort=True):
            places = np.flatnonzero(task.rows.index.isin(rows.index) & np.isfinite(trained))
            if len(places) < 4:
                continue
            tokens, values, scores = trained[places], task.means[places], task.scores[places]
            early = tokens <= tokens.max() / 2
            fits = [_correlation(one[early], scores[early]) for one in values.T]
            best = int(np.nanargmax(fits)) if np.isfinite(fits).any() else _CE
            extrapolated: Extrapolated | None = extrapolate(tokens, values[:, best], scores)
            if extrapolated:
                yield TrainingRow(
                    **task.case, family=str(family), size=str(size), proxy=label(PROXIES[best], self.k),
                    fitted=extrapolated.checkpoints[0], forecast=extrapolated.checkpoints[1], error=extrapolated.error,
                    constant=extrapolated.constant,
                )  # fmt: skip

    def _flags(self, answered: Sequence[Answered]) -> Iterator[str]:
        """Datasets that the models may have been trained on."""
        for on in answered:
            if on.dataset in self.seen:
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


def _models(task: Task) -> Iterator[ModelRow]:
    known = dict(zip(task.on.rows.index, task.on.known, strict=True))
    for i, (index, row) in enumerate(task.rows.iterrows()):
        yield ModelRow(
            **task.case, family=row["family"], model=row["model"], revision=row["revision"], score=task.scores[i],
            best=_SIGNS[task.best] * task.means[i, task.best], ce=-task.means[i, _CE], first=known[index],
        )  # fmt: skip


def _of_training(row: TrainingRow) -> Finding:
    case = {"dataset": row.dataset, "task": row.task, "family": row.family, "size": row.size}
    extras = {"constant": row.constant, "proxy": row.proxy, "forecast": row.forecast}
    return Finding(question=EXTRAPOLATED, case=case, estimate=row.error, extras=extras)
