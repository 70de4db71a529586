"""The meanings of the results and columns of `power_law`."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.analysis import Glossary, Term
from rbptrack.ranks import CE, rbp_name

MIN_R2 = 0.9
"""A law that explains a smaller share of the variance of ln y is marked as doubtful."""

FEW_TOKENS = 100
"""A law is marked as doubtful if fewer tokens of the best model have a rank above k.

With 100 such tokens, chance alone gives -ln RBP_k an error of 10%.
"""

GLOSSARY: Glossary = {
    "alpha": Term(
        "exponent of the law in size y = A S^-α; y is cross-entropy in nats or -ln RBP_k; the interval assumes that "
        "models scatter alike and independently around the law",
        title="α",
    ),
    "own_low": Term("lower end of alpha by the scatter of its own law alone, if the interval uses other laws, too"),
    "own_high": Term("upper end of alpha by the scatter of its own law alone"),
    "delta_own_low": Term("lower end of delta by the scatter of its own law alone", "own low (Δα)"),
    "delta_own_high": Term("upper end of delta by the scatter of its own law alone", "own high (Δα)"),
    "improvement": Term(
        "CE or RBP_k of the largest model minus that of the smallest one; the interval includes the choice of "
        "documents, and not that of models",
        "largest minus smallest",
        "+.3f",
    ),
    "from_size": Term("the smallest size", "from"),
    "to_size": Term("the largest size", "to"),
    "before": Term("CE or RBP_k of the smallest model", "smallest", ".3f"),
    "after": Term("CE or RBP_k of the largest model", "largest", ".3f"),
    "A": Term("the law's factor, y at S = 1", title="A"),
    "largest_deviation": Term(
        "the largest abs(measured / law - 1) over the sizes", "largest deviation", ".1%", aside=True
    ),
    "sizes": Term("the number of sizes m", aside=True),
    "alpha_incl": Term("alpha if S includes embeddings and output head", "α (S incl. embeddings)", aside=True),
    "alpha_excl": Term("alpha if S excludes embeddings and output head", "α (S without embeddings)", aside=True),
    "delta": Term("exponent of -ln RBP_k minus that of CE: the exponent of their ratio", "Δα vs. CE", "+.3g"),
    "mean_alpha": Term("mean of α over the laws; no statement about other laws like them", "mean α"),
    "mean_delta": Term("mean of Δα over the laws; no statement about other laws like them", "mean Δα", "+.3g"),
    "held_out": Term(
        "measured / predicted - 1 at the largest size, by the law of all smaller ones", "held-out error", "+.1%"
    ),
    "forecast": (
        "CE or RBP_k of one more model of size S, by the simplest form of law that is not rejected; the interval "
        "contains those of all forms that are not rejected"
    ),
    "low_form": Term("the form of law that has the lower end", "lower end by"),
    "high_form": Term("the form of law that has the upper end", "upper end by"),
    "beyond": Term("S / largest measured size", form=".3g"),
    "p_of_alpha": Term("p-value of alpha = 0, for this k alone and not adjusted", "p (α)", ".3g"),
    "verdict_alpha": Term(
        "whether α differs from 0, by the p that is adjusted for all tested laws and k", "verdict (α)"
    ),
    "verdict_delta": Term(
        "whether Δα differs from 0, by the p that is adjusted for all tested laws and k", "verdict (Δα)"
    ),
    "bend": Term("coefficient of (ln S)^2 in a fit of ln y; above 0 the law bends upward", form="+.4f", aside=True),
    "tokens_above_k": Term("tokens of the best model with a rank above k", "tokens above k", ",.0f"),
    "doubt": Term(
        "reasons to doubt the law: it bends (p is that of this law alone, so that one of 20 straight laws is said to "
        f"bend); the smaller sizes mispredict the largest; R² is below {MIN_R2}; or fewer than {FEW_TOKENS} tokens of "
        "the best model have a rank above k",
        "fit",
    ),
    "alpha_low": "lower end of alpha",
    "alpha_high": "upper end of alpha",
    "band_low": "lower end of the band of alpha, which holds for all k of the law together",
    "band_high": "upper end of the band of alpha",
    "delta_low": "lower end of delta",
    "delta_high": "upper end of delta",
    "held_out_low": "lower end of the held-out error",
    "held_out_high": "upper end of the held-out error",
    "bend_low": "lower end of the bend",
    "bend_high": "upper end of the bend",
    "k": "the k of RBP_k; 0 for CE",
    "y": "CE in nats, or -ln RBP_k",
    "value": "CE in nats, or RBP_k",
    "S0": "the smallest size",
    "y0": "y of the law at S0",
    "S1": "the largest size",
    "y1": "y of the law at S1",
}


def glossary_of_values(ks: Sequence[int]) -> Glossary:
    """Return the meanings of CE and of RBP_k, which are questions if there is no law."""
    rbp = {rbp_name(k): Term(f"share of tokens with rank at most {k}", f"RBP_{k}", ".4f") for k in ks}
    return {CE: Term("cross-entropy, nats per token", "CE", ".4f"), **rbp}
