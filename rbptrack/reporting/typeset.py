"""Formulas of plain sentences, as a page shows them: RBP_10 with a subscript, S^-alpha with a raised Greek letter."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "eta": "η", "mu": "μ", "sigma": "σ", "tau": "τ", "psi": "ψ", "pi": "π",
}  # fmt: skip
_RAISED = re.compile(r"\^(\([^)]*\)|-?\w+)")
_LOWERED = re.compile(r"\b(RBP|α|β|N|C|Q|S|Z|p|y)_(\{[^}]*\}|\d+|eff|[A-Za-z])(?!\w)")
_LETTER = re.compile(rf"(?<![A-Za-z])({'|'.join(_GREEK)})(?![a-z])", re.IGNORECASE)
_SUBSCRIPT = re.compile(r"<sub>(\d+)</sub>")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_MINUS = re.compile(r"(?<![\w)])-(?=ln\b|\d|α|β)")


def typeset(text: str) -> Markup:
    """Return a sentence as HTML: Greek letters, subscripts, powers, signs; everything else escaped."""
    markup = str(escape(text))
    markup = _LETTER.sub(lambda m: _GREEK[m[1].lower()], markup)
    markup = markup.replace("&lt;=", "≤").replace("&gt;=", "≥").replace(" - ", " − ").replace("+-", "±")
    markup = _RAISED.sub(lambda m: f"<sup>{m[1].strip('()').replace('-', '−')}</sup>", markup)
    markup = _LOWERED.sub(lambda m: f"{m[1]}<sub>{m[2].strip('{}')}</sub>", markup)
    return Markup(_MINUS.sub("−", markup))  # noqa: S704 - escaped above


def unmarked(text: str) -> str:
    """Return a sentence for where HTML reads no markup, such as an attribute: subscripts are characters."""
    return Markup(_SUBSCRIPT.sub(lambda m: m[1].translate(_SUBSCRIPTS), typeset(text))).striptags()  # noqa: S704
