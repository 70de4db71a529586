"""The law over other choices of models: those trained on equally many tokens, and several families taken together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from rbptrack.analysis.laws import FamilyLaw
from rbptrack.analysis.sizes import SizeUnit
from rbptrack.ranks import FloatArray
from rbptrack.stats.nested import Pooled, pool
from rbptrack.stats.power_law import fit_power_law


def equally_trained(
    laws: Sequence[FamilyLaw], unit: SizeUnit, notes: list[str], *, level: float
) -> Iterator[tuple[FamilyLaw, float]]:
    """Yield the laws over the models of each family that were trained on equally many tokens, and how many.

    Args:
        laws: over all models of their families.
        unit: knows the training tokens.
        notes: gets a sentence, once, for a family without 3 such models.
        level: nominal coverage of the intervals.

    """
    for family_law in laws:
        trained = unit.trained_on(family_law.family)
        law = family_law.law
        values, times = np.unique(trained[np.isfinite(trained)], return_counts=True)
        if not len(values) or times.max() < 3:
            text = f"{family_law.family}: no 3 models are known to be trained on equally many tokens."
            notes += [text] * (text not in notes)
            continue
        tokens = float(values[times.argmax()])
        kept = trained == tokens
        covariance = law.covariance[np.ix_(kept, kept)]
        equal = fit_power_law(law.s[kept], law.y[kept], covariance=covariance, level=level)
        yield FamilyLaw(family_law.family, family_law.metric, equal), tokens


def pooled_families(
    laws: Sequence[FamilyLaw], notes: list[str], *, level: float
) -> Iterator[tuple[Pooled, list[FamilyLaw]]]:
    """Yield the families of each dataset and metric taken together, 3 or more; notes name those with fewer."""
    groups = defaultdict[tuple[str, str], list[FamilyLaw]](list)
    for family_law in laws:
        groups[family_law.family.dataset + family_law.family.candidates, family_law.label].append(family_law)
    for (dataset, metric), group in groups.items():
        if len(group) < 3:
            notes.append(f"{metric} on {dataset}: pooling needs 3 families; found {len(group)}.")
        else:
            alphas = [family_law.law.alpha for family_law in group]
            errors = [family_law.law.se for family_law in group]
            yield pool(alphas, errors, shared=_shared_errors(group), level=level), group


def _shared_errors(group: Sequence[FamilyLaw]) -> FloatArray:
    """Return sampling covariance between the exponents of families that read the same texts, (families, families)."""
    shared = np.zeros((len(group), len(group)))
    for (i, first), (j, second) in combinations(enumerate(group), 2):
        if first.draws is not None and second.draws is not None and first.family.shares_texts(second.family):
            shared[i, j] = shared[j, i] = np.cov(first.draws, second.draws)[0, 1]
    return shared
