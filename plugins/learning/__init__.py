"""Which tokens are learnt over the checkpoints of one model, and which are forgotten.

RBP_k changes by what enters the first k less what leaves them, exactly. A smooth law hides both (arXiv 2606.29858), and
a token that is learnt may be forgotten (arXiv 2308.15419).

A token is learnt when its rank enters the first k and stays within 2k over the last `span` checkpoints; otherwise it
is censored. The half-life of a stay (Kaplan-Meier, in doublings of training tokens) is that of stays which begin later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from rbptrack.analysis import Analyzer, BadInput, Drawing, RbptrackError, Report, Runs, rbp_name
from rbptrack.analysis.findings import Reason, Remark, around
from rbptrack.analysis.same_tokens import SAME_TOKENS
from rbptrack.ranks import IntArray, log_grid
from rbptrack.stats.token_kinds import KINDS, kind_of

from .figures import draw_spectrum
from .findings import Churn, Learnt
from .rows import FlowRow, LearntRow, SpectrumRow
from .trajectories import BoolArray, Trajectories

_SAME = ["dataset", "family", "size", "dtype", *SAME_TOKENS[1:]]
_RECIPE = ["size", "dtype", "non_embedding_params", *SAME_TOKENS]
_SOURCES = 5  # of most tokens


@dataclass(kw_only=True)
class Learning(Analyzer):
    """Which tokens are learnt, and forgotten, over the checkpoints of one model.

    Attributes:
        ks: the k to follow.
        least: checkpoints of a model; models with fewer are left out.
        span: checkpoints, the last ones, over which a token must be held to count as learnt.
        per_decade: how many k per decade the spectrum has.
        level: nominal coverage of the intervals.

    """

    name: ClassVar[str] = "learning"
    ks: list[int] = field(default_factory=lambda: [1, 10])
    least: int = 5
    span: int = 2
    per_decade: int = 4
    level: float = 0.95

    def analyze(self, runs: Runs) -> Report:
        """Follow the tokens of every model that has checkpoints on the same texts."""
        if not 2 <= self.span < self.least:
            raise BadInput(f"analyzer.span must be at least 2 and below analyzer.least; got {self.span}, {self.least}")
        report = Report(summary="flows")
        flows = list[FlowRow]()
        learnt = list[LearntRow]()
        spectrum = list[SpectrumRow]()
        for rows in self._models(runs.frame, report):
            keys = {name: str(rows[name].iloc[0]) for name in ("dataset", "family", "size")}
            try:
                followed = self._read(runs, rows)
                seeds = self._seeds(runs, rows, report)
            except RbptrackError as error:
                report.notes.append(Remark(f"{'-'.join(keys.values())} is left out: {error}.", Reason.UNREADABLE))
                continue
            vocab_size = int(rows["vocab_size"].iloc[0])
            spectrum += self._spectrum(followed, keys, vocab_size)
            classes = list(self._classes(runs, str(rows["run_id"].iloc[0]), followed))
            for k in filter(vocab_size.__gt__, self.ks):
                flows += self._flows(followed, keys | {"k": k}, seeds)
                since = followed.learnt(k, span=self.span)
                learnt += self._learnt(followed, keys | {"k": k}, since, classes)
                every, last = learnt[-len(classes)], flows[-1]  # of all tokens, to the last checkpoint
                about: dict[str, Any] = {"k": k, "case": last.case(size=last.size, metric=rbp_name(k))}
                churn = Churn(entering=last.entering.value, seeds=last.seeds, **about, **around(last.leaving))
                times: dict[str, Any] = {"half": every.half.value, "kept": followed.half_life(k), "span": self.span}
                report.findings += [churn, Learnt(**about, **times, **around(every.learnt))]
        if not flows:
            raise report.nothing_found(f"no model has {self.least} checkpoints on the same tokens (training_tokens)")
        report.add_rows("flows", flows, caption="Entering minus leaving is the change of RBP_k, exactly.")
        report.add_rows("learnt", learnt)
        report.add_rows("spectrum", spectrum)
        caption = "How fast RBP_k grows with the logarithm of training tokens D, at every k; a line per checkpoint."
        report.drawings["spectrum"] = Drawing(draw_spectrum(spectrum), caption)
        report.notes.append("A rank that crosses a threshold jumps by construction: that shows no sudden learning.")
        return report

    def _models(self, frame: pd.DataFrame, report: Report) -> Iterator[pd.DataFrame]:
        """Yield the checkpoints of each model on the same tokens, ascending."""
        trained = frame["training_tokens"].astype("float64").to_numpy(na_value=np.nan)
        usable = frame[frame["vocab_size"].notna() & frame["documents_hash"].notna() & (trained > 0)]
        for _, rows in usable.groupby(_SAME, dropna=False, sort=True):
            there = rows["training_tokens"].nunique()
            if there >= self.least:
                yield rows.sort_values(["training_tokens", "run_id"])
            elif there > 1:
                model = f"{rows['family'].iloc[0]}-{rows['size'].iloc[0]} on {rows['dataset'].iloc[0]}"
                report.notes.append(f"{model}: {there} checkpoints, and {self.least} are needed (analyzer.least).")

    def _read(self, runs: Runs, rows: pd.DataFrame) -> Trajectories:
        """Return the checkpoints of the model that has most of them."""
        model = rows["model"].astype(str).str.partition("@")[0]
        first = rows[model == model.mode()[0]].drop_duplicates("training_tokens")
        tables = [self._ranks(runs, str(run_id)) for run_id in first["run_id"]]
        document, token, _ = tables[0]
        if any(not np.array_equal(document, table[0]) or not np.array_equal(token, table[1]) for table in tables):
            raise RbptrackError("its checkpoints did not score the same tokens")
        sources = runs.groups(str(first["run_id"].iloc[0]))
        place = np.unique(document, return_inverse=True)[1]
        if len(sources):
            place = np.unique(np.asarray(sources), return_inverse=True)[1][place]
        trained = first["training_tokens"].to_numpy(dtype=np.float64)
        return Trajectories(trained=trained, rank=np.stack([t[2] for t in tables]), document=place, token=token)

    def _seeds(self, runs: Runs, rows: pd.DataFrame, report: Report) -> list[IntArray]:
        """Return the ranks of two runs of one recipe: at the last checkpoint, else of two final models of this size."""
        recipe = runs.frame.groupby(_RECIPE, dropna=False).ngroup()
        alike = runs.frame[recipe == recipe[rows.index[-1]]]
        ends = alike[alike["training_tokens"].fillna(-1).isin([rows["training_tokens"].max(), -1])]
        for _, twins in ends.sort_values("training_tokens").groupby(["training_tokens", "family"], dropna=False):
            two = twins.drop_duplicates("commit").head(2)
            if len(two) == 2:
                report.notes.append(f"Churn between two seeds: {' and '.join(two['model'])}.")
                return [self._ranks(runs, str(run_id))[2] for run_id in two["run_id"]]
        return []

    def _ranks(self, runs: Runs, run_id: str) -> tuple[IntArray, IntArray, IntArray]:
        pieces = [
            (p.column("document"), p.column("token"), p.rank.astype(np.int32))
            for p in runs.rank_pieces(run_id, version=1)
        ]
        runs.was_read()
        document, token, rank = map(np.concatenate, zip(*pieces, strict=True))
        return document, token, rank

    def _classes(self, runs: Runs, run_id: str, followed: Trajectories) -> Iterator[tuple[str, BoolArray]]:
        """Yield all tokens; those of each kind, where texts were kept; those of the largest sources."""
        yield "all", np.ones(len(followed.token), dtype=np.bool_)
        if texts := runs.vocabulary(run_id):
            ids, place = np.unique(followed.token, return_inverse=True)
            kinds = np.array([kind_of(texts.get(int(i), "")) for i in ids])[place]
            yield from ((name, kinds == i) for i, name in enumerate(KINDS) if (kinds == i).any())
        names = sorted(set(runs.groups(run_id)))
        if len(names) > 1:
            largest = np.argsort(-np.bincount(followed.document), kind="stable")[:_SOURCES]
            yield from ((names[i], followed.document == i) for i in largest)

    def _flows(self, followed: Trajectories, keys: dict[str, Any], seeds: list[IntArray]) -> Iterator[FlowRow]:
        floor = float(np.not_equal(*(rank <= keys["k"] for rank in seeds)).mean()) / 2 if seeds else float("nan")
        doublings = np.diff(np.log2(followed.trained))
        for i, (entering, leaving) in enumerate(followed.flows(keys["k"])):
            yield FlowRow(
                **keys,
                start=float(followed.trained[i]),
                end=float(followed.trained[i + 1]),
                entering=entering.interval(self.level, lowest=0.0, highest=1.0),
                leaving=leaving.interval(self.level, lowest=0.0, highest=1.0),
                net=entering.value - leaving.value,
                entering_per_doubling=entering.value / doublings[i],
                leaving_per_doubling=leaving.value / doublings[i],
                seeds=floor,
            )

    def _learnt(
        self, followed: Trajectories, keys: dict[str, Any], since: IntArray, classes: list[tuple[str, BoolArray]]
    ) -> Iterator[LearntRow]:
        for name, among in classes:
            shares = followed.learnt_by(since, span=self.span, among=among)
            yield LearntRow(
                **keys,
                tokens_of=name,
                tokens=int(among.sum()),
                learnt=shares[-1].interval(self.level, lowest=0.0, highest=1.0),
                half=followed.half(shares, self.level),
            )

    def _spectrum(self, followed: Trajectories, keys: dict[str, Any], vocab_size: int) -> Iterator[SpectrumRow]:
        ks = [int(k) for k in log_grid(vocab_size, per_decade=self.per_decade)[:-1]]
        rbp = np.array([[(rank <= k).mean() for k in ks] for rank in followed.rank])  # (checkpoints, ks)
        slopes = np.diff(rbp, axis=0) / np.diff(np.log(followed.trained))[:, None]
        for i, row in enumerate(slopes):
            for k, slope in zip(ks, row, strict=True):
                yield SpectrumRow(**keys, k=k, end=float(followed.trained[i + 1]), slope=float(slope))
