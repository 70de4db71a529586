"""Newton's method from many starts at once: what the fits of distributions and of laws share.

Derivatives are differences, evaluated in one call for all starts: a fit costs what its arithmetic does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rbptrack.ranks import FloatArray, IntArray

_NEAR, _FAR = 1e-5, 1e-4  # steps of first and of second differences
_LONGEST = 3.0  # step
_HALVINGS = 50
_STEPS = 60  # where a parameter runs off to infinity for ever smaller gains, these are enough


def minimise(
    loss: Callable[[FloatArray, IntArray], FloatArray],
    starts: FloatArray,
    *,
    low: FloatArray | float = -np.inf,
    high: FloatArray | float = np.inf,
    tolerance: float = 1e-7,
) -> tuple[FloatArray, FloatArray]:
    """Return the least value of a smooth function, sought from each start on its own; parameters are of the order of 1.

    Source: Newton's method with the damping of Levenberg (1944), curvature taken as positive, and projected on bounds.

    Args:
        loss: points, (starts, several, parameters), and which starts they belong to, (starts,), give values, (starts,
            several); finite everywhere.
        starts: (starts, parameters).
        low: least values, (starts, parameters).
        high: greatest.
        tolerance: slope, per parameter, at which a search ends.

    Returns:
        Where each search ended, (starts, parameters), and the values there, (starts,).

    """
    low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), starts.shape) for end in (low, high))
    theta = np.clip(np.asarray(starts, dtype=np.float64), low, high)
    rows, count = theta.shape
    i, j = np.triu_indices(count)
    identity = np.eye(count)
    stencil = np.concatenate(
        [np.zeros((1, count)), _NEAR * identity, -_NEAR * identity, _FAR * identity, _FAR * (identity[i] + identity[j])]
    )
    value = np.full(rows, np.inf)
    damping = np.zeros(rows)
    active = np.arange(rows)
    matrix = np.zeros((rows, count, count))
    for _ in range(_STEPS):
        near, up, down, far, both = np.split(
            loss(theta[active][:, None] + stencil, active), np.cumsum([1, count, count, count]), axis=1
        )
        value[active] = near[:, 0]
        slope = (up - down) / (2 * _NEAR)
        curve = matrix[: len(active)]
        curve[:, i, j] = curve[:, j, i] = (both - far[:, i] - far[:, j] + near) / _FAR**2
        at = theta[active]
        held = ((at <= low[active]) & (slope > 0)) | ((at >= high[active]) & (slope < 0))
        slope = np.where(held, 0.0, slope)
        curve = np.where(held[:, :, None] | held[:, None, :], identity, curve)
        going = np.abs(slope).max(axis=1) > tolerance
        active = active[going]
        at = at[going]
        slope = slope[going]
        curve = curve[going]
        if not len(active):
            break
        bends, axes = np.linalg.eigh(curve)
        bends = np.maximum(np.abs(bends), 1e-12)
        along = np.einsum("rij,ri->rj", axes, slope)
        waiting = np.ones(len(active), dtype=bool)
        for _ in range(30):  # until each has found a lower value
            step = -np.einsum("rij,rj->ri", axes, along / (bends + damping[active, None]))
            step *= np.minimum(1, _LONGEST / np.maximum(np.sqrt((step**2).sum(axis=1)), 1e-300))[:, None]
            trial = np.clip(at + step, low[active], high[active])
            lower = waiting & (loss(trial[:, None], active)[:, 0] < value[active])
            theta[active[lower]] = trial[lower]
            damping[active[lower]] /= 8
            waiting &= ~lower
            if not waiting.any():
                break
            more = active[waiting]
            damping[more] = np.maximum(8 * damping[more], 1e-3 * bends[waiting].max(axis=1))
        active = active[~waiting]  # the others stand where differences no longer tell up from down
    return theta, value


def crossing(is_beyond: Callable[[FloatArray], npt.NDArray[np.bool_]], low: FloatArray, high: FloatArray) -> FloatArray:
    """Find where each of many rising functions crosses, between `low` and `high`; `is_beyond` says which lie above.

    Source: bisection, to the last digit of where they cross.
    """
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        beyond = is_beyond(middle)
        low = np.where(beyond, low, middle)
        high = np.where(beyond, middle, high)
    return np.asarray((low + high) / 2)
