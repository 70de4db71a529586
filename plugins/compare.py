"""Two families, checkpoints or precisions on the same texts, or one family on two datasets: what differs.

Three questions have three answers: whether two *models* differ on these very texts, whether the *families* differ
(other models of the same recipes would), and whether their *exponents* do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis import (
    CE,
    Analyzer,
    BadInput,
    DocumentCounts,
    Drawing,
    Family,
    RbptrackError,
    Report,
    Runs,
    colour_and_marker,
    counted,
    error_bars,
    families,
    legend_of_all,
    metric_label,
    metric_part,
    panel_per,
    rbp_name,
    read_families,
    se_name,
    short_number,
    some_of,
    style,
)
from rbptrack.stats import (
    BOOTSTRAP_SEED,
    LOG_NATS,
    Difference,
    Drawn,
    LawValues,
    holm,
    law_values,
    laws_apart,
    logged_difference,
    metric_draws,
    metric_errors,
    on_common_documents,
    paired_differences,
    simultaneous_differences,
    unpaired_differences,
)

TEXT = "ln nats of the text"
SIDES = {"A": "one side", "B": "the other", "on": "the dataset or family that they share"}
_SURE = "with the other pairs taken into account"
COLUMNS = {
    "summary": SIDES
    | {
        "metric": "CE (lower is better) or RBP_k (higher is better)",
        "pairs": "pairs of models of equal S",
        "A better": f"pairs in which A's model is better on these texts ({_SURE})",
        "B better": "pairs in which B's is",
        "undecided": "pairs that these texts do not distinguish, or without a standard error",
        "families": "whether the laws lie apart: other models of the same recipes would differ, too",
        "exponents": "whether the exponents differ",
    },
    "laws": SIDES
    | {
        "metric": "CE or RBP_k",
        "at S": "size at which the laws are compared: the middle of the sizes that both have",
        "ratio": "A's CE or -ln RBP_k over B's there, by their laws",
        "ratio_low": "lower end of its interval: documents, and scatter between models",
        "ratio_high": "upper end",
        "p_families": f"p of a ratio of 1, {_SURE} (Holm)",
        "alpha_A": "A's exponent",
        "alpha_B": "B's",
        "difference": "A's exponent less B's",
        "low": "lower end of its interval: documents, and scatter between models",
        "high": "upper end",
        "p_exponents": f"p of equal exponents, {_SURE} (Holm)",
    },
    "models": SIDES
    | {
        "model_A": "its model",
        "model_B": "the other's",
        "S_A": "its size",
        "S_B": "the other's",
        "metric": f"CE (nats), RBP_k, or {TEXT} (difference of logarithms, free of the tokenizer)",
        "value_A": "its value",
        "value_B": "the other's",
        "difference": "A - B",
        "low": "lower end of its interval (documents resampled; all pairs of the metric hold at once)",
        "high": "upper end",
        "p": f"p of no difference on these texts, {_SURE}",
        "paired": "whether both were read over the same documents",
        "documents": "documents compared (the smaller number where they differ); empty for imported metrics",
        "same_tokens": "whether both score equally many tokens of them",
    },
}
_LEGEND = 1.7  # inches
_SAME_BYTES = 0.005  # a first token that is not scored is longer in one tokenizer than in another


@dataclass(frozen=True)
class Side:
    """One family on one dataset, and the counts of each size, ascending in S; none where ranks were not imported."""

    family: Family
    counts: list[DocumentCounts]
    _drawn: dict[tuple[int, int, int], dict[str, Drawn]] = field(default_factory=dict, repr=False)

    def drawn(self, i: int, replicates: int, seed: int) -> dict[str, Drawn]:
        """The i-th model's metrics in document bootstraps; kept, because many pairs ask for the same."""
        if (i, replicates, seed) not in self._drawn:
            self._drawn[i, replicates, seed] = metric_draws(self.counts[i], replicates=replicates, seed=seed)
        return self._drawn[i, replicates, seed]

    def model(self, i: int) -> str:
        """The i-th model: its family, whatever sets this part of it apart, and its size."""
        return f"{self.family.rows['family'].iloc[0]}-{self.family.labels[i]}"

    def num_bytes(self, i: int) -> float:
        """UTF-8 bytes of the text that the i-th model was scored on."""
        ce, tokens, bits = (self.family.column(name)[i] for name in (CE, "num_tokens", "bits_per_byte"))
        return float(ce * tokens / (np.log(2) * bits)) if bits > 0 else float("nan")

    def logged(self, i: int, ks: list[int]) -> dict[str, tuple[float, float]]:
        """Metric -> value and standard error of the i-th model, as logged if it has no ranks; NaN where it was not."""
        if self.counts:
            return metric_errors(self.counts[i])
        names = [CE, *map(rbp_name, ks)]
        found = {n: (self.family.column(n)[i], self.family.column(se_name(n))[i]) for n in names}
        return {n: pair for n, pair in found.items() if np.isfinite(pair[0])}

    @cached_property
    def values(self) -> LawValues | None:
        """What laws are fitted to; None where a law cannot be."""
        return law_values(self.counts) if self.counts and len(self.family.s) >= 3 else None


@dataclass(kw_only=True)
class Compare(Analyzer):
    """Differences between families (or checkpoints) on the same texts, and between datasets for one family.

    Models of nearly equal S are compared over the same documents, which are resampled for both together. Two datasets
    hold different documents: their errors add. Where two families cut the text into different tokens, RBP_k and CE are
    means over different things; the nats for the whole text still compare where both were scored on the same bytes.

    Attributes:
        a: pattern over `family/dataset`: one side of the comparisons to make.
        b: pattern of the other side.
        ks: the k to compare at.
        shown: the k of the figures and sentences.
        within: largest ratio of two S that count as equal.
        level: nominal coverage of the intervals; tests have size 1 - level.
        replicates: document bootstraps.

    """

    name: ClassVar[str] = "compare"
    a: str = "*"
    b: str = "*"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    shown: int = 10
    within: float = 1.25
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Compare every two sides that share texts, and every two datasets of a family."""
        if self.shown not in self.ks:
            raise BadInput(f"analyzer.shown={self.shown}: expected one of analyzer.ks={self.ks}")
        report = Report(summary="summary")
        sides = self._sides(runs, report.notes)
        pairs = list(self._pairs(sides))
        if not pairs:
            there = ", ".join(_path(side) for side in sides) or "nothing"
            raise RbptrackError(
                f"nothing to compare: it takes two families on one dataset, or one family on two; the store has {there}"
                + (f" (a={self.a} b={self.b})" if (self.a, self.b) != ("*", "*") else "")
            )
        models = self._models_table([row for a, b in pairs for row in self._model_rows(a, b, report.notes)])
        if models.empty:
            raise RbptrackError(f"nothing to compare: no two models of equal S (within a factor {self.within:g})")
        laws = self._laws_table(pairs)
        summary = self._summary(models, laws)
        report.add_table("summary", summary, COLUMNS["summary"])
        report.add_table("laws", laws, COLUMNS["laws"])
        report.add_table("models", models, COLUMNS["models"])
        means = models.groupby(["A", "B", "on", "metric"], sort=False)["difference"].mean().reset_index()
        for row in means.to_dict("records"):
            pair = f"{metric_part(row['A'])} - {metric_part(row['B'])}"
            path = f"{pair}/{metric_part(row['on'])}/{row['metric'].lower()}"
            report.metrics[f"difference/{path}"] = float(row["difference"])
        self._draw(report, models)
        report.notes[:0] = self._sentences(summary, laws)
        report.notes += self._caveats(models)
        report.headline = self._headline(summary[summary["metric"] == self._label])
        return report

    def _sides(self, runs: Runs, notes: list[str]) -> list[Side]:
        def load(family: Family, run_id: str) -> DocumentCounts:
            family.require_ranks()
            return runs.document_counts(run_id, [k for k in self.ks if k <= family.vocab_size])

        sides = [Side(family, counts) for family, counts in read_families(runs, load, notes)]
        read = {side.family.path for side in sides}
        rest = [family for family in families(runs, []) if family.path not in read]
        sides += [Side(family, []) for family in rest if np.isfinite(family.column(CE)).any() or family.logged_ks]
        return sides

    @property
    def _label(self) -> str:
        """The metric of the figures and sentences, beside CE."""
        return metric_label(rbp_name(self.shown))

    def _pairs(self, sides: list[Side]) -> Iterator[tuple[Side, Side]]:
        for one, two in combinations(sides, 2):
            imported = not (one.counts and two.counts)  # what texts an import read is often not known
            if one.family.dataset == two.family.dataset:
                shared = one.family.shares_texts(two.family) or imported
            else:
                shared = one.family.name == two.family.name
            for a, b in ((one, two), (two, one)):
                if shared and _named(a, self.a) and _named(b, self.b):
                    yield a, b
                    break

    def _same_size(self, a: Side, b: Side) -> Iterator[tuple[int, int]]:
        """Sizes of A and B that count as equal: each of A with the nearest of B."""
        for i, s in enumerate(a.family.s):
            j = int(np.abs(np.log(b.family.s / s)).argmin())
            if abs(np.log(b.family.s[j] / s)) <= np.log(self.within):
                yield i, j

    def _model_rows(self, a: Side, b: Side, notes: list[str]) -> Iterator[dict[str, Any]]:
        labels = _labels(a, b)
        found = list(self._same_size(a, b))
        if not found:
            notes.append(
                f"{labels['A']} and {labels['B']} have no two models of equal S (within a factor of {self.within:g})."
            )
        for i, j in found:
            keys = labels | {"model_A": a.model(i), "model_B": b.model(j)}
            keys |= {"S_A": float(a.family.s[i]), "S_B": float(b.family.s[j])}
            for metric, one, rest in self._differences(a, b, i, j):
                label = {"metric": TEXT if metric == LOG_NATS else metric_label(metric)}
                yield keys | label | {"value_A": one.a, "value_B": one.b, "difference": one.value, "of": one} | rest

    def _differences(self, a: Side, b: Side, i: int, j: int) -> Iterator[tuple[str, Difference, dict[str, Any]]]:
        """Metric, difference, and what the rows say of how it was made, of the i-th model of a and the j-th of b."""
        same_dataset = a.family.dataset == b.family.dataset
        if not (a.counts and b.counts):
            left, right = a.logged(i, self.ks), b.logged(j, self.ks)
            for number, metric in enumerate(m for m in left if m in right):
                (x, x_se), (y, y_se) = left[metric], right[metric]
                seed = BOOTSTRAP_SEED + 1000 * (i + 1) + number
                yield (
                    metric,
                    logged_difference(x, y, x_se, y_se, replicates=self.replicates, seed=seed),
                    {"paired": False},
                )
            return
        one, two = a.counts[i], b.counts[j]
        if same_dataset:
            one, two = on_common_documents(one, two)
            found = paired_differences(one, two, replicates=self.replicates, seed=BOOTSTRAP_SEED)
            if not abs(a.num_bytes(i) / b.num_bytes(j) - 1) <= _SAME_BYTES:
                del found[LOG_NATS]
        else:  # other documents are drawn independently
            found = unpaired_differences(
                a.drawn(i, self.replicates, BOOTSTRAP_SEED), b.drawn(j, self.replicates, BOOTSTRAP_SEED + 1)
            )
        rest = {"paired": same_dataset, "documents": min(len(one.document), len(two.document))}
        rest["same_tokens"] = bool(same_dataset and one.tokens.sum() == two.tokens.sum())
        for metric, difference in found.items():
            yield metric, difference, rest

    def _models_table(self, rows: list[dict[str, Any]]) -> pd.DataFrame:
        """The rows with intervals and p that hold for all pairs of a metric together."""
        for metric in dict.fromkeys(row["metric"] for row in rows):
            mine = [row for row in rows if row["metric"] == metric]
            reach, corrected = simultaneous_differences([row["of"] for row in mine], level=self.level)
            for row, p in zip(mine, corrected, strict=True):
                half = reach * row["of"].se
                row |= {"low": row["difference"] - half, "high": row["difference"] + half, "p": float(p)}
        frame = pd.DataFrame([{k: v for k, v in row.items() if k != "of"} for row in rows])
        return frame.reindex(columns=list(COLUMNS["models"]))

    def _laws_table(self, pairs: list[tuple[Side, Side]]) -> pd.DataFrame:
        rows = [row for a, b in pairs for row in self._law_rows(a, b)]
        for metric in dict.fromkeys(row["metric"] for row in rows):
            mine = [row for row in rows if row["metric"] == metric]
            for name in ("p_families", "p_exponents"):
                for row, p in zip(mine, holm([row[name] for row in mine]), strict=True):
                    row[name] = float(p)
        return pd.DataFrame(rows, columns=list(COLUMNS["laws"]))

    def _law_rows(self, a: Side, b: Side) -> Iterator[dict[str, Any]]:
        if a.values is None or b.values is None:
            return
        for metric in (m for m in a.values.metrics if m in b.values.metrics):
            same_texts = a.family.shares_texts(b.family)
            sides = ((a.family.s, a.values), (b.family.s, b.values))
            found = laws_apart(*sides, metric, same_texts=same_texts, level=self.level)
            if found is None:
                continue
            half, level_half = found.alpha_spread.half(self.level), found.level_spread.half(self.level)
            ends = (found.level - level_half, found.level + level_half)
            row = {"metric": metric_label(metric), "at S": found.at, "ratio": float(np.exp(found.level))}
            row |= dict(zip(("ratio_low", "ratio_high"), map(float, np.exp(ends)), strict=True))
            row |= {"p_families": found.level_spread.p(found.level), "p_exponents": found.alpha_spread.p(found.alpha)}
            row |= {"alpha_A": found.a.alpha, "alpha_B": found.b.alpha, "difference": found.alpha}
            yield _labels(a, b) | row | {"low": found.alpha - half, "high": found.alpha + half}

    def _summary(self, models: pd.DataFrame, laws: pd.DataFrame) -> pd.DataFrame:
        rows = []
        size = 1 - self.level
        shown = models[models["metric"].isin(["CE", self._label])]
        for keys, group in shown.groupby(["A", "B", "on", "metric"], sort=False):
            row = dict(zip(("A", "B", "on", "metric"), keys, strict=True))
            sure = group[group["p"] < size]
            above = int((sure["difference"] > 0).sum())
            below = len(sure) - above
            better, worse = (below, above) if row["metric"] == "CE" else (above, below)
            row |= {"pairs": len(group), "A better": better, "B better": worse, "undecided": len(group) - len(sure)}
            law = _of(laws, row)
            for name in ("families", "exponents"):
                p = law[f"p_{name}"].iloc[0] if len(law) else np.nan
                row[name] = "no laws" if np.isnan(p) else "differ" if p < size else "undecided"
            rows.append(row)
        return pd.DataFrame(rows)

    def _headline(self, mine: pd.DataFrame) -> str:
        sure, pairs = int(mine["A better"].sum() + mine["B better"].sum()), int(mine["pairs"].sum())
        apart, steeper = (int((mine[name] == "differ").sum()) for name in ("families", "exponents"))
        return (
            f"{self._label} differs on these texts in {some_of(sure, pairs, 'pair')} (models of equal S on one text, "
            f"or one model on two); of {counted(len(mine), 'comparison')} between families or datasets, the laws are "
            f"shown to lie apart in {apart or 'none'} and the exponents to differ in {steeper or 'none'}"
        )

    def _sentences(self, summary: pd.DataFrame, laws: pd.DataFrame) -> Iterator[str]:
        for found in summary[summary["metric"] == self._label].to_dict("records"):
            row: dict[str, Any] = {str(name): cell for name, cell in found.items()}
            sure = row["A better"] + row["B better"]
            text = (
                f"{row['A']} and {row['B']} on {row['on']}: {self._label} of the models differs on these texts in "
                f"{sure} of {row['pairs']} pairs of equal S ({row['A']} better in {row['A better']}, {row['B']} "
                f"in {row['B better']})"
            )
            law = _of(laws, row)
            if law.empty:
                yield f"{text}; families and exponents are undecided: that needs 3 common sizes on each side."
                continue
            of = law.iloc[0]
            yield (
                f"{text}; the families {_verb(row['families'])}: -ln {self._label} of {row['A']} is "
                f"{of['ratio']:.3f} ({of['ratio_low']:.3f} to {of['ratio_high']:.3f}) times the other's "
                f"at S = {short_number(of['at S'])}; the exponents {_verb(row['exponents'])} (difference "
                f"{of['difference']:+z.3f}, {of['low']:+z.3f} to {of['high']:+z.3f})."
            )

    def _caveats(self, models: pd.DataFrame) -> Iterator[str]:
        yield (
            f"Models: error over documents only, corrected for all {len(models[models['metric'] == self._label])} "
            "pairs together; another seed or recipe may differ as much. Families and exponents: scatter between models "
            "included, corrected by Holm."
        )
        own = models[models["paired"].eq(True) & models["same_tokens"].eq(False)]
        text = set(models.loc[models["metric"] == TEXT, ["A", "B"]].itertuples(index=False, name=None))
        for a, b in dict.fromkeys(zip(own["A"], own["B"], strict=True)):
            instead = "nats of the text" if (a, b) in text else "`words`, since the stretches of text differ, too"
            yield f"{a} and {b} cut the texts into different tokens: compare {instead}, not RBP_k or CE."
        logged = models[models["documents"].isna()]
        for a, b in dict.fromkeys(zip(logged["A"], logged["B"], strict=True)):
            yield (
                f"{a} and {b}: imported without ranks; logged values, taken to be of the same texts, with logged "
                "standard errors where there are any. Without them a difference is undecided."
            )

    def _draw(self, report: Report, models: pd.DataFrame) -> None:
        caption = (
            f"Difference to the first of each panel, with {self.level:z.0%} intervals over documents that hold for all "
            "pairs at once."
        )
        for metric in (self._label, "CE"):
            for same, between in ((True, "families"), (False, "datasets")):
                rows = models[(models["metric"] == metric) & (models["paired"].eq(same))]
                if len(rows):
                    name = f"{metric.lower()}_between_{between}"
                    report.drawings[name] = Drawing(_draw_differences(rows, metric), caption)


def _of(laws: pd.DataFrame, row: dict[str, Any]) -> pd.DataFrame:
    """The row of `laws` about the same comparison; empty where it has none."""
    keys = ["A", "B", "on", "metric"]
    return laws[(laws[keys] == [row[key] for key in keys]).all(axis=1)]


def _verb(verdict: str) -> str:
    return verdict if verdict == "differ" else "are not distinguishable"


def _draw_differences(table: pd.DataFrame, metric: str) -> Figure:
    """A panel per dataset (families against the first of them), or per family (datasets against the first)."""
    with style():
        names = list(dict.fromkeys(table["on"]))
        labels: dict[str, int] = {}
        figure, axes = panel_per(names, legend=_LEGEND)
        for ax, name in zip(axes, names, strict=True):
            rows = table[table["on"] == name]
            first = rows["A"].iloc[0]
            for b, group in rows[rows["A"] == first].groupby("B", sort=False):
                label = f"{first} − {b}"
                number = labels.setdefault(label, len(labels))
                colour, marker = colour_and_marker(number)
                points = group.sort_values("S_A")
                x = points["S_A"] * 1.04**number  # so that bars do not hide each other
                cells = (points["difference"], points["low"], points["high"])
                error_bars(ax, x, *cells, capsize=0, fmt=marker, ms=4.5, lw=1, color=colour, label=label)
            ax.margins(y=0.1)
            ax.axhline(0, lw=0.9, color="#57606a")
            ax.set(xscale="log", xlabel="S, non-embedding parameters")
            ax.set_ylabel("difference in CE, nats" if metric == "CE" else f"difference in {metric}")
            ax.xaxis.set_major_formatter(short_number)
            ax.yaxis.set_major_formatter("{x:g}")
        legend_of_all(figure, legend=_LEGEND)
        return figure


def _labels(a: Side, b: Side) -> dict[str, Any]:
    """What the two sides differ in, and what they share."""
    if a.family.dataset == b.family.dataset:
        return {"A": a.family.name, "B": b.family.name, "on": a.family.dataset}
    return {"A": a.family.dataset, "B": b.family.dataset, "on": a.family.name}


def _path(side: Side) -> str:
    """What the options a and b are patterns of: `pythia/wiki`."""
    return f"{side.family.name}/{side.family.dataset}"


def _named(side: Side, pattern: str) -> bool:
    return fnmatchcase(_path(side), pattern)
