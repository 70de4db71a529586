"""Coverage of alpha's interval and size of the test of a bend, vectorised: many thousand families in a minute.

    python -m studies.laws                # tables, as in the docstrings of rbptrack.stats.linear and bends
    python -m studies.laws 2000           # fewer families a row (4,000)

Every row draws families of m sizes: sampling errors of D documents with t3 difficulty and slope, and scatter between
models of `tau` standard errors, of which the smallest, the largest or both end sizes may have more than the others.
`estimate_error` is repeated here over a first axis of families; `agrees` checks it against the library's.
"""

from __future__ import annotations

import sys
from itertools import product

import numpy as np
from scipy import stats

from rbptrack.stats import linear
from rbptrack.stats.bends import curved
from studies.simulation import Array

SCATTERS = ("plain", "t3", "ends 3.6x", "smallest 4x", "largest 4x")
DOCUMENTS, TAUS, SIZES = 200, (0.0, 1.0, 3.0, 10.0), (4, 5, 6, 7, 8, 10, 16)


def noise(rng: np.random.Generator, families: int, x: Array) -> tuple[Array, Array, float]:
    """Errors of ln y, (families, m), their bootstrap covariance, (families, m, m), and the own standard error."""
    standard, m = (x - x.mean()) / x.std(), len(x)
    shape = (families, DOCUMENTS, 1)
    shared = rng.standard_t(3, shape) + 0.25 * rng.standard_t(3, shape) * standard
    each = 0.15 * (shared / np.sqrt(3) + 0.35 * rng.standard_normal((families, DOCUMENTS, m)))
    error = each.mean(axis=1)
    off = each - error[:, None]
    return error, np.einsum("fdi,fdj->fij", off, off) / DOCUMENTS**2, 0.35 * 0.15 / np.sqrt(DOCUMENTS)


def scatter(rng: np.random.Generator, families: int, m: int, kind: str) -> Array:
    """Scatter between models, (families, m), of standard deviation 1 but where the kind says more."""
    if kind == "t3":
        return np.asarray(rng.standard_t(3, (families, m)) / np.sqrt(3))
    times = np.ones(m)
    places = {"ends 3.6x": ([0, -1], 3.6), "smallest 4x": ([0], 4.0), "largest 4x": ([-1], 4.0)}
    if kind in places:
        times[places[kind][0]] = places[kind][1]
    return np.asarray(times * rng.standard_normal((families, m)))


def halves(design: Array, at: Array, values: Array, sampling: Array, *, by_deciding: bool = True) -> Array:
    """Half widths of 95% intervals of at @ coefficients, (families,), as `linear.estimate_error` gives them."""
    contrasts, weights = linear.free_of(design), at @ np.linalg.pinv(design)
    free = len(contrasts)
    form = linear.deciding(weights, contrasts) if by_deciding else np.eye(free) * (weights @ weights) / free
    z = values @ contrasts.T
    seen = contrasts @ sampling @ contrasts.T  # (families, free, free)
    tau2 = np.maximum(0, ((z**2).sum(axis=1) - np.trace(seen, axis1=1, axis2=2)) / free)
    whole = form @ (seen + tau2[:, None, None] * np.eye(free))
    freedom = np.trace(whole, axis1=1, axis2=2) ** 2 / np.einsum("fij,fji->f", whole, whole)
    known = np.einsum("i,fij,j->f", weights, sampling, weights)
    residual = np.einsum("fi,ij,fj->f", z, form, z)
    z2, t2 = stats.norm.ppf(0.975) ** 2, stats.t.ppf(0.975, freedom) ** 2
    beyond = known - np.einsum("ij,fij->f", form, seen)
    return np.asarray(np.sqrt(np.maximum(z2 * known, z2 * beyond + t2 * residual)))


def agrees() -> bool:
    """Whether the vectorised error is the library's."""
    rng, x = np.random.default_rng(0), np.linspace(0, 7, 6)
    error, sampling, se = noise(rng, 1, x)
    values, at = error + se * scatter(rng, 1, 6, "plain"), np.array([0.0, 1.0])
    found = linear.line_error(at, x, values[0], sampling[0]).half(0.95)
    return bool(np.isclose(halves(linear.centred(x), at, values, sampling)[0], found))


def main(families: int = 4000) -> None:
    """Print the rows."""
    if not agrees():
        raise SystemExit("the vectorised error is not the library's")
    rng = np.random.default_rng(20261122)
    print("| m | scatter | tau, se | alpha covered before | now | width, now / before | a true law said to bend (5%) |")
    print("|---|---|---|---|---|---|---|")
    for m, kind, tau in product(SIZES, SCATTERS, TAUS):
        if tau == 0 and kind != "plain":
            continue
        x = np.linspace(0, np.log(1000), m)
        error, sampling, se = noise(rng, families, x)
        values = error + tau * se * scatter(rng, families, m, kind)
        line, at = linear.centred(x), np.array([0.0, 1.0])
        slope = np.abs(values @ np.linalg.pinv(line)[1])
        before, now = (halves(line, at, values, sampling, by_deciding=d) for d in (False, True))
        bends = ""
        if m > 4:
            design, last = curved(x), np.array([0.0, 0.0, 1.0])
            off = np.abs(values @ np.linalg.pinv(design)[2])
            bends = f"{100 * np.mean(off > halves(design, last, values, sampling)):.1f}"
        covered = [f"{100 * np.mean(slope <= half):.1f}" for half in (before, now)]
        row = [m, kind, f"{tau:g}", *covered, f"{now.mean() / before.mean():.2f}", bends]
        print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
