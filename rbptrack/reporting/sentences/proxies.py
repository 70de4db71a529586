"""Which statistic of known answers orders models as a task's scores do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rbptrack.analysis.findings import Finding
from rbptrack.base.words import counted, listed


def chosen(findings: Sequence[Finding]) -> Iterator[str]:
    """How well models of families that did not choose the proxy are ordered."""
    for one in findings:
        about, where = one.extras, f"{one.case['task']} by answers of {one.case['dataset']}"
        if isfinite(one.estimate):
            said = f"{where}: the proxy that the other families choose ({listed(about['chosen'])}) orders "
            said += f"{one.estimate:.0%} of {counted(about['pairs'], 'pair')} of models rightly, "
            yield f"{said}cross-entropy {about['right_ce']:.0%}."
        else:
            yield f"{where}: whether a proxy orders other families cannot be told with fewer than 3 families."
        said = f"{where}: {about['survive']} of 32 proxies order {counted(about['models'], 'model')} beyond chance "
        said += "(corrected)"
        if not about["survive"] and isfinite(about["detectable"]):
            said += f"; a rank correlation of {about['detectable']:.2f} would have been seen in 80% of such sets"
        yield (
            f"{said}. The largest rank correlation is that of {about['best']}, {about['spearman']:+.2f}; "
            f"cross-entropy has {about['ce']:+.2f}."
        )


def along_training(findings: Sequence[Finding]) -> Iterator[str]:
    """Scores of the second half of a training, forecast from the first."""
    for one in findings:
        about = one.extras
        said = f"{one.case['family']}-{one.case['size']}, {one.case['task']}: from the first half of training, "
        said += f"{about['proxy']} forecasts {counted(about['forecast'], 'later score')} with a mean error of "
        yield f"{said}{one.estimate:.3f}; the last score unchanged has {about['constant']:.3f}."


def orders(findings: Sequence[Finding]) -> Iterator[str]:
    """Told by `chosen`: the table has every proxy."""
    yield from ()


SENTENCES = {
    "proxy chosen by other families": chosen,
    "proxy orders models": orders,
    "score from the first half": along_training,
}
