"""Models in the order of RBP_k, per dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from matplotlib.figure import Figure

from rbptrack.analysis import Analyzer, Cell, Drawing, Finding, Lead, RbptrackError, Report, Runs, rbp_name
from rbptrack.analysis.rows import Column
from rbptrack.ranks import metric_label


@dataclass(kw_only=True)
class Place:
    """A model's place on a dataset."""

    dataset: Annotated[str, Column("the texts")]
    place: Annotated[int, Column("1 is best")]
    model: Annotated[str, Column("its name")]
    rbp: Annotated[float, Column("RBP_k of the option k", form=".3f")]


@dataclass(frozen=True, kw_only=True)
class Leader(Finding):
    """The best model of a dataset; `estimate` is its RBP_k."""

    question: str = "who leads"
    model: str
    family: str

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say who leads on each dataset."""
        for finding in findings:
            metric = metric_label(finding.case["metric"])
            yield f"{finding.model} leads on {finding.case['dataset']} with {metric} = {finding.estimate:.3f}."

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        """A cell for each dataset, the first sentence, and the figure."""
        cells = [
            Cell(
                line="best model",
                text=finding.model,
                family=finding.family,
                dataset=finding.case["dataset"],
                metric=finding.case["metric"],
                value=finding.estimate,
                opens=True,
            )
            for finding in findings
        ]
        return Lead(cells=cells, sentence=next(cls.say(findings)), drawing="ranking", order=90)


@dataclass(kw_only=True)
class Ranking(Analyzer):
    """Models in the order of RBP_k, per dataset."""

    name: ClassVar[str] = "ranking"
    k: int = 10

    def analyze(self, runs: Runs) -> Report:
        column = rbp_name(self.k)
        if column not in runs.frame:
            raise RbptrackError(f"analyzer.k={self.k}: no run has logged {metric_label(column)}")
        frame = runs.frame.dropna(subset=[column]).sort_values(["dataset", column], ascending=[True, False])
        rows = [
            Place(dataset=dataset, place=place, model=row["model"], rbp=float(row[column]))
            for dataset, models in frame.groupby("dataset", sort=True)
            for place, row in enumerate(models.to_dict("records"), start=1)
        ]
        report = Report(summary="ranking")
        report.add_rows("ranking", rows)
        for row in frame.drop_duplicates("dataset").to_dict("records"):
            case = {"dataset": row["dataset"], "metric": column}
            report.findings.append(
                Leader(case=case, estimate=float(row[column]), model=row["model"], family=row["family"])
            )
        figure = Figure(figsize=(6, 3), layout="constrained")
        ax = figure.subplots()
        for dataset, models in frame.groupby("dataset", sort=True):
            ax.plot(models["model"], models[column], "o", label=dataset)
        ax.set(xlabel="model", ylabel=metric_label(column))
        report.drawings["ranking"] = Drawing(figure, f"{metric_label(column)} of each model.")
        return report
