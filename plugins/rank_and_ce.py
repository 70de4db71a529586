"""Does a token's rank tell more than cross-entropy? Rank beside probability, and which predicts whole sequences.

Figures 1 and 2 and section 5.1 of arXiv 2510.20387. Three answers: how much of a rank follows from p(target) (at p
at most 1/p entries can have as much, so R <= 1/p); whether larger models rank better *at equal p*; and whether CE or
RBP_k predicts, at sizes and families left out, how often whole windows or answers succeed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure

from rbptrack.analysis import (
    CE,
    COLOURS,
    KEYS,
    Analyzer,
    BadInput,
    Drawing,
    Family,
    Report,
    Runs,
    be,
    counted,
    gradient,
    grid_of,
    interval_columns,
    length_axis,
    log_axis,
    metric_label,
    p_in_words,
    rbp_name,
    read_families,
    shared_columns,
    spread,
    style,
)
from rbptrack.stats import (
    NATS_EDGES,
    RANK_EDGES,
    Answers,
    FloatArray,
    RankAndProbability,
    countable_ks,
    document_weights,
    held_out_errors,
    percentiles,
    quantiles_by_bin,
    rates_by_bin,
    read_answers,
    sign_flip_p,
    split_of_gain,
)

Rates = tuple[FloatArray, FloatArray]
TAILS = (0.05, 0.5, 0.95)
_NOTHING = 0.005  # a share of a gain that is printed as 0%
DOCUMENTS = "documents resampled"
COLUMNS = {
    "summary": {
        **shared_columns("dataset", "family"),
        "sizes": "smallest and largest size compared",
        "k": "of RBP_k",
        "gain": "RBP_k of the largest size less that of the smallest",
        **interval_columns("within_share", "share of the gain at equal p(target): unseen by cross-entropy", DOCUMENTS),
        "told_by_p": "share of the variance of ln R that -ln p explains at the largest size",
        "told_by_rank": "share of the variance of -ln p that R explains there",
    },
    "gains": {
        **shared_columns("dataset", "family"),
        "size": "the larger size",
        "from_size": "the next smaller one",
        "k": "of RBP_k",
        "gain": "RBP_k of the larger less that of the smaller",
        **interval_columns("mix", "part of it by tokens that move to higher p(target)", DOCUMENTS),
        **interval_columns("within", "part of it by better ranks at equal p(target)", DOCUMENTS),
    },
    "at_equal_p": {
        **KEYS,
        "p": "middle of a bin of p(target)",
        "tokens": "tokens in it",
        "bound": "largest rank that this p allows: 1/p",
        "rank_low": "5% of their ranks are at most this",
        "rank_median": "half of them",
        "rank_high": "95%",
    },
    "at_equal_rank": {
        **KEYS,
        "rank": "first rank of a bin",
        "tokens": "tokens in it",
        "p_low": "5% of their p(target) are at most this",
        "p_median": "half of them",
        "p_high": "95%",
    },
    "windows": {
        **KEYS,
        "N": "tokens in a row",
        "measured": "share of windows whose tokens all have R = 1: greedy decoding gives them",
        "independent": "RBP_1^N",
        "likelihood": "mean over windows of the product of their p: sampling gives them",
        "exp(-N CE)": "the likelihood if every token cost CE nats",
    },
    "predictions": {
        "dataset": "the dataset",
        "outcome": "what is predicted: windows of N tokens, or whole answers, with every R <= k",
        "k": "of R <= k",
        "left_out": "sizes one at a time, or families",
        "points": "predictions made",
        "error_ce": "root mean square error of ln(-ln share), predicted by a line in ln CE",
        "error_rbp": "the same, by a line in ln(-ln RBP_k)",
        "p": "p of equal squared errors (signs flipped at random)",
        "better": "which predicts better, or undecided",
    },
}


@dataclass(frozen=True)
class Counts:
    """One model on one text; the runs of a size add."""

    joint: RankAndProbability
    answers: Answers
    _rates: dict[tuple[int, int], tuple[Rates, Rates]] = field(default_factory=dict, repr=False)

    def rates(self, k: int, replicates: int) -> tuple[Rates, Rates]:
        """`rates_by_bin` once and in document bootstraps; kept, because neighbouring sizes share it."""
        if (k, replicates) not in self._rates:
            tokens = self.joint.tokens
            weights = document_weights(len(tokens), replicates=replicates)
            once = rates_by_bin(tokens, np.ones((1, len(tokens))), k)
            self._rates[k, replicates] = once, rates_by_bin(tokens, weights, k)
        return self._rates[k, replicates]

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.joint + other.joint, self.answers + other.answers)


@dataclass(frozen=True)
class Outcome:
    """Shares of success of every size of a family, and what they are to be predicted from."""

    family: Family
    name: str
    k: int
    share: FloatArray
    ce: FloatArray
    rbp: FloatArray


@dataclass(kw_only=True)
class RankAndCe(Analyzer):
    """Whether ranks tell more than cross-entropy: ranks at equal probability, and what predicts whole sequences.

    Attributes:
        ks: the k; one of 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 3000.
        shown: the k of the sentences.
        lengths: the N of windows of consecutive tokens.
        predicted: the N whose success is predicted at sizes left out.
        level: nominal coverage of the intervals; tests have size 1 - level.
        replicates: document bootstraps.

    """

    name: ClassVar[str] = "rank_and_ce"
    ks: list[int] = field(default_factory=lambda: [1, 10, 100])
    shown: int = 10
    lengths: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16])
    predicted: int = 8
    level: float = 0.95
    replicates: int = 1000

    def analyze(self, runs: Runs) -> Report:
        """Count ranks and probabilities together in every measurement."""
        self._check()
        report, everything = Report(summary="summary"), list[tuple[Family, list[Counts]]]()

        def load(family: Family, run_id: str) -> Counts:
            truncated = str(family.rows.iloc[0]["sequence"]) == "truncate"
            cut = int(family.rows.iloc[0]["seq_len"]) if truncated else None
            joint, answers = list[RankAndProbability](), list[Answers]()
            for piece in runs.rank_pieces(run_id):
                joint.append(RankAndProbability.of(piece, lengths=self._lengths, ks=self._windows_ks))
                answers.append(read_answers(piece, self.ks, cut_at=cut))
            return Counts(RankAndProbability.concatenate(joint), Answers.concatenate(answers))

        everything = list(read_families(runs, load, report.notes))
        if not everything:
            raise report.nothing_found("no measurement with ranks")
        gains = [row for family, counts in everything for row in self._gain_rows(family, counts)]
        summary = [self._summary_row(family, counts) for family, counts in everything]
        predictions = self._predictions([o for family, counts in everything for o in self._outcomes(family, counts)])
        report.add_table("summary", summary, COLUMNS["summary"])
        report.add_table("predictions", predictions, COLUMNS["predictions"])
        report.add_table("gains", gains, COLUMNS["gains"])
        report.add_table("windows", (r for f, c in everything for r in _window_rows(f, c)), COLUMNS["windows"])
        report.add_table("at_equal_p", (r for f, c in everything for r in _p_rows(f, c)), COLUMNS["at_equal_p"])
        report.add_table(
            "at_equal_rank", (r for f, c in everything for r in _rank_rows(f, c)), COLUMNS["at_equal_rank"]
        )
        report.add_metrics("within_share/{family}/{dataset}/rbp_{k}", summary, "within_share")
        report.add_metrics("told_by_p/{family}/{dataset}", summary, "told_by_p")
        report.notes[:0] = [*self._gains_in_words(summary), *_predictions_in_words(predictions)]
        report.headline = _headline(summary, predictions)
        report.drawings["rank_and_probability"] = Drawing(
            _draw_spread(everything),
            "Ranks at equal p(target): median, and 5 to 95%, of the smallest and the largest size. Grey: above the "
            "bound R <= 1/p. Bins of 0.25 nats and more; of a bin of ranks the first.",
        )
        report.drawings["windows"] = Drawing(
            _draw_windows(everything),
            "Whole windows at the largest size: measured, and as predicted by RBP_1 or by CE alone.",
        )
        return report

    def _check(self) -> None:
        unknown = [k for k in self.ks if k not in countable_ks(self.ks)]
        if unknown or self.shown not in self.ks:
            known = ", ".join(str(edge - 1) for edge in RANK_EDGES[1:-1])
            raise BadInput(
                f"analyzer.ks={self.ks} analyzer.shown={self.shown}: expected k of {known}, shown among them"
            )

    @property
    def _lengths(self) -> list[int]:
        return sorted({*self.lengths, self.predicted})

    @property
    def _windows_ks(self) -> list[int]:
        return sorted({1, *self.ks})

    def _split(self, first: Counts, second: Counts, k: int) -> tuple[FloatArray, FloatArray]:
        """Mix and within, (2,), and their replicates, (replicates, 2)."""
        if len(first.joint.nats) != len(second.joint.nats):
            return np.full(2, np.nan), np.full((1, 2), np.nan)
        (once, draws), (other, others) = (one.rates(k, self.replicates) for one in (first, second))
        return split_of_gain(once, other)[0], split_of_gain(draws, others)

    def _gain_rows(self, family: Family, counts: Sequence[Counts]) -> Iterator[dict[str, Any]]:
        labels = family.labels
        for i in range(1, len(counts)):
            for k in self.ks:
                found, draws = self._split(counts[i - 1], counts[i], k)
                row = family.keys | {"size": labels[i], "from_size": labels[i - 1], "k": k}
                row |= {"gain": float(found.sum())}
                for name, value, drawn in zip(("mix", "within"), found, draws.T, strict=True):
                    low, high = percentiles(drawn, level=self.level)
                    row |= {name: float(value), f"{name}_low": low, f"{name}_high": high}
                yield row

    def _summary_row(self, family: Family, counts: Sequence[Counts]) -> dict[str, Any]:
        last = counts[-1].joint
        told = {"told_by_p": last.told_by_p, "told_by_rank": last.told_by_rank}
        if len(counts) == 1:
            return family.keys | {"sizes": family.labels[0], "k": self.shown} | told
        found, draws = self._split(counts[0], counts[-1], self.shown)
        gain = float(found.sum())
        row = family.keys | {"sizes": f"{family.labels[0]} and {family.labels[-1]}", "k": self.shown, "gain": gain}
        if abs(gain) > 2 * float(draws.sum(axis=1).std()):
            low, high = percentiles(draws[:, 1] / draws.sum(axis=1), level=self.level)
            row |= {"within_share": float(found[1]) / gain, "within_share_low": low, "within_share_high": high}
        return row | told

    def _outcomes(self, family: Family, counts: Sequence[Counts]) -> Iterator[Outcome]:
        ce = np.array([c.joint.ce for c in counts])
        place = counts[0].joint.lengths.index(self.predicted)
        for j, k in enumerate(self.ks):
            rbp = np.array([c.joint.rbp(k) for c in counts])
            of = self._windows_ks.index(k)
            won = [(c.joint.successes[:, place, of].sum(), c.joint.windows[:, place].sum()) for c in counts]
            share = np.array([a / b if b else np.nan for a, b in won])
            yield Outcome(family, f"{self.predicted} tokens in a row", k, share, ce, rbp)
            if all(len(c.answers.length) for c in counts):
                whole = np.array([c.answers.whole[:, j].mean() for c in counts])
                yield Outcome(family, "whole answers", k, whole, ce, rbp)

    def _predictions(self, outcomes: list[Outcome]) -> list[dict[str, Any]]:
        rows = []
        keys = dict.fromkeys((o.family.dataset, o.name, o.k) for o in outcomes)
        for dataset, name, k in keys:
            mine = [o for o in outcomes if (o.family.dataset, o.name, o.k) == (dataset, name, k)]
            for left_out in ("sizes", "families"):
                row = {"dataset": dataset, "outcome": name, "k": k, "left_out": left_out}
                if found := self._held_out(mine, left_out):
                    rows.append(row | found)
        return rows

    def _held_out(self, outcomes: list[Outcome], left_out: str) -> dict[str, Any] | None:
        """Errors of both predictors; None where too little is left to predict from."""
        share, ce, rbp = (np.concatenate([getattr(o, n) for o in outcomes]) for n in ("share", "ce", "rbp"))
        number = np.concatenate([np.full(len(o.share), i) for i, o in enumerate(outcomes)])
        usable = (share > 0) & (share < 1) & (rbp > 0) & (rbp < 1)
        share, ce, rbp, number = share[usable], ce[usable], rbp[usable], number[usable]
        y = np.log(-np.log(share))
        errors = []
        for x in (np.log(ce), np.log(-np.log(rbp))):
            if left_out == "families":
                errors.append(held_out_errors(x, y, number))
            else:  # within each family, so that a law of one is not asked to hold for another
                parts = [number == i for i in np.unique(number)]
                each = np.full(len(y), np.nan)
                for part in parts:
                    each[part] = held_out_errors(x[part], y[part], np.arange(part.sum()))
                errors.append(each)
        made = np.isfinite(errors[0]) & np.isfinite(errors[1])
        if made.sum() < 4 or (left_out == "families" and len(np.unique(number)) < 2):
            return None
        of_ce, of_rbp = errors[0][made] ** 2, errors[1][made] ** 2
        p = sign_flip_p(of_ce - of_rbp)
        better = "RBP_k" if of_rbp.mean() < of_ce.mean() else CE.upper()
        row: dict[str, Any] = {"points": int(made.sum()), "error_ce": float(np.sqrt(of_ce.mean()))}
        row |= {"error_rbp": float(np.sqrt(of_rbp.mean())), "p": p}
        return row | {"better": better if p < 1 - self.level else "undecided"}

    def _gains_in_words(self, summary: list[dict[str, Any]]) -> Iterator[str]:
        for row in summary:
            text = (
                f"{row['family']} on {row['dataset']}: at the largest size p(target) tells {row['told_by_p']:z.0%} of "
                f"the variance of ln R."
            )
            label = metric_label(rbp_name(row["k"]))
            if "gain" not in row:
                yield f"{text} Whether larger models rank better at equal p needs a second size."
                continue
            if "within_share" not in row:
                yield f"{text} {label} does not change beyond its error from {row['sizes']}: nothing to take apart."
                continue
            share, low, high = row["within_share"], row["within_share_low"], row["within_share_high"]
            says = (
                "larger models rank better at equal p as well, which CE does not see"
                if low > 0
                else "larger models rank worse at equal p"
                if high < 0
                else "whether larger models rank better at equal p cannot be told"
            )
            yield (
                f"{text} Of the gain in {label} ({row['gain']:+z.3f}, {row['sizes']}) ranks at equal p make up "
                f"{share:z.1%} ({low:z.1%} to {high:z.1%}): {says}."
            )


def _headline(summary: list[dict[str, Any]], predictions: list[dict[str, Any]]) -> str:
    shares = [row["within_share"] for row in summary if "within_share" in row]
    parts = []
    if shares:
        span = spread(
            shares, ".0%", [f"{row['family']} on {row['dataset']}" for row in summary if "within_share" in row]
        )
        label, other = (
            metric_label(rbp_name(summary[0]["k"])),
            "ranks at equal p of the right token, which CE cannot see,",
        )
        lows, highs = ([row[end] for row in summary if end in row] for end in ("within_share_low", "within_share_high"))
        worse, none = max(highs) < 0, max(shares) < _NOTHING or max(lows) <= 0
        parts.append(
            f"at equal p of the right token larger models rank slightly worse, which CE cannot see: {span} of the gain "
            f"in {label}"
            if worse
            else f"that better {other} add to the gain in {label} is not shown: {span} of it"
            if none
            else f"of the gain in {label} with size, better {other} make up {span}"
        )
    if predictions:
        counts = {n: sum(row["better"] == n for row in predictions) for n in ("RBP_k", "CE", "undecided")}
        parts.append(
            f"the success of whole sequences, left out of the fit, is predicted better by RBP_k in "
            f"{counts['RBP_k'] or 'none'} "
            f"and by CE in {counts['CE'] or 'none'} of {counted(len(predictions), 'case')}; "
            f"{counts['undecided'] or 'none'} {be(counts['undecided'])} undecided"
        )
    return "; ".join(parts)


def _predictions_in_words(predictions: list[dict[str, Any]]) -> Iterator[str]:
    for dataset in dict.fromkeys(row["dataset"] for row in predictions):
        mine = [row for row in predictions if row["dataset"] == dataset]
        parts = [
            f"{row['outcome']} at k = {row['k']}, {row['left_out']} left out: error {row['error_ce']:.3f} by CE, "
            f"{row['error_rbp']:.3f} by RBP_k"
            + (f" ({p_in_words(row['p'])})" if row["better"] != "undecided" else " (undecided)")
            for row in mine
        ]
        yield f"{dataset}, predicting the share of whole sequences (errors are of ln(-ln share)): {'; '.join(parts)}."


def _p_rows(family: Family, counts: Sequence[Counts]) -> Iterator[dict[str, Any]]:
    last = NATS_EDGES[-1] + 1
    upper = np.append(NATS_EDGES[1:], last)
    for keys, one in zip(family.size_keys, counts, strict=True):
        tokens = one.joint.tokens.sum(axis=0)
        found = quantiles_by_bin(tokens, RANK_EDGES.astype(np.float64), TAILS)
        for i in np.flatnonzero(tokens.sum(axis=1)):
            p = float(np.exp(-(NATS_EDGES[i] + upper[i]) / 2))
            row = keys | {"p": p, "tokens": int(tokens[i].sum()), "bound": float(np.exp(upper[i]))}
            yield row | dict(zip(("rank_low", "rank_median", "rank_high"), map(float, found[i]), strict=True))


def _rank_rows(family: Family, counts: Sequence[Counts]) -> Iterator[dict[str, Any]]:
    p = np.exp(-NATS_EDGES[::-1])
    for keys, one in zip(family.size_keys, counts, strict=True):
        tokens = one.joint.tokens.sum(axis=0).T[:, ::-1]  # by rank, p ascending
        found = quantiles_by_bin(tokens, p, TAILS)
        for i in np.flatnonzero(tokens.sum(axis=1)):
            row = keys | {"rank": int(RANK_EDGES[i]), "tokens": int(tokens[i].sum())}
            yield row | dict(zip(("p_low", "p_median", "p_high"), map(float, found[i]), strict=True))


def _window_rows(family: Family, counts: Sequence[Counts]) -> Iterator[dict[str, Any]]:
    for keys, one in zip(family.size_keys, counts, strict=True):
        joint = one.joint
        windows = joint.windows.sum(axis=0)
        for j, n in enumerate(joint.lengths):
            if windows[j]:
                row = keys | {"N": n, "measured": float(joint.successes[:, j, joint.ks.index(1)].sum() / windows[j])}
                row |= {
                    "independent": joint.rbp(1) ** n,
                    "likelihood": float(joint.likelihood[:, j].sum() / windows[j]),
                }
                yield row | {"exp(-N CE)": float(np.exp(-n * joint.ce))}


def _draw_spread(everything: list[tuple[Family, list[Counts]]]) -> Figure:
    """Ranks against p(target), as figure 1 of arXiv 2510.20387: one panel per family and dataset."""
    with style():
        names = [str(family) for family, _ in everything]
        figure, axes = grid_of(names, ["ranks"], height=3.0)
        for family, counts in everything:
            ax = axes[str(family), "ranks"]
            ends = [0] if len(counts) == 1 else [0, len(counts) - 1]
            for place, colour in zip(ends, (COLOURS[1], COLOURS[0]), strict=False):
                rows = [row for row in _p_rows(family, counts) if row["size"] == family.labels[place]]
                p, low, mid, high = ([r[n] for r in rows] for n in ("p", "rank_low", "rank_median", "rank_high"))
                ax.plot(p, mid, "-o", ms=3, lw=1.3, color=colour, label=family.labels[place])
                ax.fill_between(p, low, high, color=colour, alpha=0.15, lw=0)
            x = np.geomspace(1e-6, 1, 50)
            ax.fill_between(x, 1 / x, 1e6, color="0.85", lw=0)
            top = max(row["rank_high"] for row in _p_rows(family, counts))
            ax.set(xlabel="p(target)", ylabel="rank", title=str(family))
            log_axis(ax.xaxis, low=1e-6, high=1.2)
            log_axis(ax.yaxis, low=0.8, high=top * 4)
            ax.legend(loc="lower left", fontsize=8)
        return figure


def _draw_windows(everything: list[tuple[Family, list[Counts]]]) -> Figure:
    """Success of whole windows against their length, section 5.1 of arXiv 2510.20387."""
    drawn = {
        "measured": ("measured, R = 1", "-o"),
        "independent": ("RBP$_1^N$", "--"),
        "likelihood": ("mean likelihood", "-s"),
        "exp(-N CE)": ("exp(−N CE)", ":"),
    }
    with style():
        figure, axes = grid_of([str(family) for family, _ in everything], ["windows"], height=3.0)
        for family, counts in everything:
            ax = axes[str(family), "windows"]
            rows = [row for row in _window_rows(family, counts) if row["size"] == family.labels[-1]]
            for (name, (label, line)), colour in zip(drawn.items(), gradient(len(drawn)), strict=True):
                points = [(r["N"], r[name]) for r in rows if r[name] > 0]
                ax.plot(*zip(*points, strict=True), line, ms=3.5, lw=1.3, color=colour, label=label)
            floor = min((r["measured"] for r in rows if r["measured"] > 0), default=1e-6)
            length_axis(ax)
            log_axis(ax.yaxis, low=floor / 1e3, high=1.5)
            ax.set(title=f"{family}, {family.labels[-1]}", ylabel="probability of the window")
            ax.legend(loc="lower left", fontsize=8)
        return figure
