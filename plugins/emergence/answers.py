"""Whole answers of each size, beside what RBP_k of their tokens predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rbptrack.ranks import FloatArray
from rbptrack.stats.answers import Answers
from rbptrack.stats.intervals import share_interval, worth_of_share
from rbptrack.stats.power_law import fit_power_law


def answers_by_size(
    s: FloatArray, answers: Sequence[Answers], number: int, *, least: int, level: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield whole answers of each size, beside RBP_k^length with the RBP_k of their tokens, measured and by its law in
    S.

    A size with fewer than `least` is left out; `number` says which of the k.

    Source: arXiv 2510.20387, eq. 6, with a whole answer as the window; Wilson's interval (documents or sources).

    Yields:
        The size's place, and its cells by column.

    """
    with np.errstate(divide="ignore"):
        y = np.array([-np.log(a.hits[:, number].sum() / max(a.length.sum(), 1)) for a in answers])
    usable = len(y) >= 3 and bool((np.isfinite(y) & (y > 0)).all())
    law = fit_power_law(s, y, level=level) if usable else None
    for i, (answer, measured) in enumerate(zip(answers, y, strict=True)):
        if not len(answer.length) or len(answer.length) < least:
            continue
        worth = worth_of_share(*answer.by_source(number).T, level=level) if len(answer.groups) else len(answer.length)
        share = share_interval(float(answer.whole[:, number].mean()), worth, level=level)
        cells: dict[str, Any] = {
            "answers": len(answer.length),
            "mean_length": float(answer.length.mean()),
            "share": share,
        }
        cells |= {"rbp_of_answer": float(np.exp(-measured))}
        cells |= {"share_independent": float(np.exp(-answer.length * measured).mean())}
        yield i, cells | ({"share_by_law": float(np.exp(-answer.length * law.predict(s[i])).mean())} if law else {})
