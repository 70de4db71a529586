"""Tables of docs/explanation/validity.md, and the rates that other pages and docstrings quote, from the CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from studies.experiment import NOMINAL, ROOT, kind_of

PAGE = "docs/explanation/validity.md"
END = "<!-- end -->"

_VARIANTS = {
    "ends": "end sizes scatter {} times as much",
    "grows": "the largest model scatters {} times as much as the smallest",
    "ar": "scatter of neighbouring sizes correlated by {}",
}
_TOLERATED = 3.0  # points off the nominal value, of which some 2 are chance

_SAID = {
    "covers": "covers",
    "false": "false alarm",
    "found": "found",
    "promised": "found",
    "share": "share of draws",
    "median": "median",
    "error": "error",
}


def write(rows: pd.DataFrame) -> None:
    """Write the tables and the quoted rates into all files that have some."""
    for name, text in texts(rows).items():
        (ROOT / name).write_text(text, encoding="utf-8")


def texts(rows: pd.DataFrame) -> dict[str, str]:
    """The texts of all files with tables or rates, by name, with those of the CSV."""
    by_name: dict[str, str] = {}
    for name in dict.fromkeys([PAGE, *(quote.file for quote in QUOTES)]):
        by_name[name] = (ROOT / name).read_text(encoding="utf-8")
    for title, table in TABLE_SUFFIXES.items():
        begin = f"<!-- made by studies/validity.py: {title} -->"
        before, found, rest = by_name[PAGE].partition(begin)
        _, ended, after = rest.partition(END)
        if not found or not ended:
            raise SystemExit(f"{PAGE} has no lines {begin} and {END}")
        by_name[PAGE] = f"{before}{begin}\n\n{table(rows)}\n\n{END}{after}"
    for quote in QUOTES:
        by_name[quote.file] = quote.filled(by_name[quote.file], rows)
    return by_name


def rates(rows: pd.DataFrame) -> str:
    """The table of intervals and false alarms: for each claim the median and the worst of its cells."""
    lines = [
        "| claim | nominal | median | worst | where | cells | draws a cell |",
        "|---|---:|---:|---:|---|---:|---:|",
    ]
    of_kind = rows[rows["claim"].map(kind_of).isin(["covers", "false"]) & (rows["experiment"] != "deciding")]
    for claim, of_claim in _by_claim(of_kind):
        is_test = claim.startswith(_SAID["false"])
        worst = of_claim.sort_values("value", ascending=not is_test, kind="stable").iloc[0]
        shown = _bold_if(_fails(worst), worst["value"])
        lines.append(
            f"| {claim} | {_nominal(claim)} | {of_claim['value'].median():.1f} | {shown} | {_where(worst)} "
            f"| {len(of_claim)} | {_draws(of_claim)} |"
        )
    return "\n".join(lines)


def power(rows: pd.DataFrame) -> str:
    """The table of what tests find: for each claim the median, the least and the most of its cells."""
    lines = [
        "| test | nominal | median | least | where | most | where | draws a cell |",
        "|---|---:|---:|---:|---|---:|---|---:|",
    ]
    for claim, of_claim in _by_claim(rows[rows["claim"].map(kind_of).isin(["found", "promised"])]):
        ordered = of_claim.sort_values("value", kind="stable")
        least, most = ordered.iloc[0], ordered.iloc[-1]
        nominal = NOMINAL.get(kind_of(of_claim["claim"].iloc[0]), "")
        lines.append(
            f"| {claim} | {nominal} | {of_claim['value'].median():.0f} | {_bold_if(_fails(least), least['value'], 0)} "
            f"| {_where(least)} | {most['value']:.0f} | {_where(most)} | {_draws(of_claim)} |"
        )
    return "\n".join(lines)


def others(rows: pd.DataFrame) -> str:
    """The table of numbers that have no nominal value."""
    lines = ["| number | median | least | where | most | where |", "|---|---:|---:|---|---:|---|"]
    of_kind = rows[rows["claim"].map(kind_of).isin(["share", "median", "error"]) & (rows["experiment"] != "deciding")]
    for claim, of_claim in _by_claim(of_kind):
        ordered = of_claim.sort_values("value", kind="stable")
        least, most = ordered.iloc[0], ordered.iloc[-1]
        form = ".3f" if kind_of(least["claim"]) == "error" else ".0f"
        unit = "%" if kind_of(least["claim"]) == "share" else ""
        lines.append(
            f"| {claim} | {of_claim['value'].median():{form}}{unit} | {least['value']:{form}}{unit} | {_where(least)} "
            f"| {most['value']:{form}}{unit} | {_where(most)} |"
        )
    return "\n".join(lines)


def deciding(rows: pd.DataFrame) -> str:
    """The table of how many documents decide a number: ranges over tails and scatter."""
    lines = [
        "| documents, longest of 100 | α is covered (95) | 90th percentile of the width over its median "
        "| Δα is falsely found, of all draws | tests that are made | false among these |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    rows = rows[rows["experiment"] == "deciding"]
    for documents in (20, 50, 135):
        for lengths, said in {
            "even": "as the others",
            "uneven": "tenfold",
            "wild": "hundredfold",
            "extreme": "thousandfold",
        }.items():
            cells = rows[rows["where"].str.contains(rf"D={documents} \w+ {lengths}")]
            by_kind = {kind: cells[cells["claim"].map(kind_of) == kind]["value"] for kind in _KINDS_OF_DECIDING}
            spread = by_kind["spread"].max()
            made = by_kind["made"]
            false = by_kind["false"]
            lines.append(
                f"| {documents}, {said} | {_range(by_kind['covers'])} | at most {_bold_if(spread > 2.5, spread)} "
                f"| {_range(by_kind['share'])} | {made.min():.0f} to {made.max():.0f}% "
                f"| {false.min():.1f} to {_bold_if(false.max() > NOMINAL['false'] + _TOLERATED, false.max())} |"
            )
    return "\n".join(lines)


_KINDS_OF_DECIDING = ("covers", "spread", "share", "made", "false")

TABLE_SUFFIXES: Mapping[str, Callable[[pd.DataFrame], str]] = {
    "intervals and false alarms": rates,
    "what tests find": power,
    "other numbers": others,
    "how many documents decide": deciding,
}


def _by_claim(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The cells of each claim, as the tables name it, if at least half of their draws were judged."""
    variant = rows["where"].where(rows["experiment"] == "exponents", "").map(_variant)
    claims = []
    for (_, claim, varied), of_claim in rows.groupby(["experiment", "claim", variant], sort=False):
        usable = of_claim[of_claim["judged"] >= of_claim["draws"] / 2]
        if len(usable):
            kind, _, said = str(claim).partition(": ")
            name = f"{_SAID[kind]}: {said}"
            claims.append((f"{name}; {varied}" if varied else name, usable))
    return claims


def _variant(where: str) -> str:
    """What is said of a cell in which models do not all scatter alike and independently."""
    for name, said in _VARIANTS.items():
        found = re.search(rf"\b{name}=(\S+)", where)
        if found:
            return said.format(found[1])
    return ""


def _where(row: pd.Series) -> str:
    """The settings of a cell without the one that the claim names."""
    where = str(row["where"])
    return re.sub(rf" ?\b({'|'.join(_VARIANTS)})=\S+", "", where) if row["experiment"] == "exponents" else where


def _nominal(claim: str) -> int:
    return NOMINAL["false" if claim.startswith(_SAID["false"]) else "covers"]


def _fails(row: pd.Series) -> bool:
    """Whether a cell is more than 3 points worse than its nominal value."""
    kind = kind_of(row["claim"])
    if kind not in NOMINAL:
        return False
    off = float(row["value"]) - NOMINAL[kind]
    return off > _TOLERATED if kind == "false" else off < -_TOLERATED


def _bold_if(fails: bool, value: float, digits: int = 1) -> str:
    shown = f"{value:.{digits}f}"
    return f"**{shown}**" if fails else shown


def _draws(rows: pd.DataFrame) -> str:
    fewest, most = rows["judged"].min(), rows["judged"].max()
    return f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"


def _range(values: pd.Series) -> str:
    return f"{values.min():.1f} to {values.max():.1f}"


@dataclass(frozen=True)
class Rate:
    """A number of the CSV that a text quotes.

    Attributes:
        claim: the claim.
        where: a pattern that the settings of a cell must match.
        how: `range` over the cells, `least` or `most`.
        experiment: the experiment, if several make the claim.
        digits: after the decimal point.

    """

    claim: str
    where: str = ""
    how: str = "range"
    experiment: str = ""
    digits: int = 0

    def text(self, rows: pd.DataFrame) -> str:
        """The number as it is quoted, such as `62 to 96`."""
        chosen = rows[(rows["claim"] == self.claim) & rows["where"].str.contains(self.where)]
        chosen = chosen[chosen["judged"] >= chosen["draws"] / 2]
        if self.experiment:
            chosen = chosen[chosen["experiment"] == self.experiment]
        if not len(chosen):
            raise SystemExit(f"studies/validity.csv has no cells of {self.claim!r} where {self.where!r}")
        least, most = (f"{value:.{self.digits}f}" for value in (chosen["value"].min(), chosen["value"].max()))
        if self.how == "range" and least != most:
            return f"{least} to {most}"
        return least if self.how == "least" else most


@dataclass(frozen=True)
class Quote:
    """A passage that quotes rates.

    Attributes:
        file: its file.
        passage: a part of it, with {} for each rate; line breaks and indentation may differ in the file.
        rates: the rates, in their order.

    """

    file: str
    passage: str
    rates: tuple[Rate, ...] = field(default=())

    def filled(self, text: str, rows: pd.DataFrame) -> str:
        """Return the text of the file with the rates of the CSV."""
        number = r"(\d[\d.,]*(?: to \d[\d.,]*)?)"
        words = [re.escape(part).replace(r"\{\}", number) for part in self.passage.split()]
        found = list(re.finditer(r"\s+".join(words), text))
        if len(found) != 1:
            raise SystemExit(f"{self.file} has {len(found)} passages like {self.passage!r}; one is expected")
        for group, rate in reversed(list(enumerate(self.rates, start=1))):
            text = text[: found[0].start(group)] + rate.text(rows) + text[found[0].end(group) :]
        return text


_VARIED = r"^(?!.*(?:ends|grows|ar)=)"  # models scatter alike

QUOTES = [
    Quote(
        PAGE,
        "Intervals of α contain the true value in {}% of the draws for CE, in {}% for RBP_1 and in {}% for RBP_100,",
        tuple(
            Rate(f"covers: {metric}'s α", _VARIED, experiment="exponents", digits=1)
            for metric in ("CE", "RBP_1", "RBP_100")
        ),
    ),
    Quote(
        PAGE,
        "at most {}% are false alarms with 20 documents, and at most {}% with 100,",
        tuple(
            Rate("false: Δα differs, though equal", rf"{_VARIED}.*D={documents}\b", "most", "exponents", digits=1)
            for documents in (20, 100)
        ),
    ),
    Quote(
        PAGE,
        "misses damage to 3% of about 100 documents in up to {}% of the draws.",
        (
            Rate(
                "false: compare says within, though 3% of the documents are damaged, on average by the tolerance",
                "D=100",
                "most",
                digits=1,
            ),
        ),
    ),
    Quote(PAGE, "intervals of CE then cover {}%.", (Rate("covers: CE, sources not given"),)),
    Quote(
        PAGE,
        "exponents of two families is found in {}% of the draws.",
        (Rate("found: CE's α of two families differs by 20%"),),
    ),
    Quote(
        PAGE,
        "gain over Zipf's law still cover {}%.",
        (Rate("covers: the lognormal's gain over Zipf's law", "D=200 skewed"),),
    ),
    Quote(
        "docs/howto/models-and-datasets.md",
        "95% intervals of CE cover {}% in simulation",
        (Rate("covers: CE, sources not given"),),
    ),
    Quote(
        "plugins/lognormal.py",
        "intervals of gamma cover {}% with 20 and 50 documents and {}% with 200, and intervals of the gain over Zipf's "
        "law cover {}% with 200.",
        (
            Rate("covers: γ of the ranks", r"D=(?:20|50)\b"),
            Rate("covers: γ of the ranks", "D=200"),
            Rate("covers: the lognormal's gain over Zipf's law", "D=200"),
        ),
    ),
    Quote(
        "plugins/ce_parts.py",
        "removes a part of this bias ({}% in simulation).",
        (Rate("median: share of H(P)'s bias that Miller and Madow's correction removes, %"),),
    ),
    Quote(
        "plugins/forms.py",
        "better than A S^-alpha in {}% of simulated laws that have no floor.",
        (Rate("share: a floor predicts left-out sizes better, though there is none"),),
    ),
    Quote("plugins/forms.py", "was found in {}% of the families.", (Rate("found: a bend", experiment="forms"),)),
    Quote(
        "plugins/training.py",
        "within {} of the truth at condition 1, within {} at condition 6, and within {} at condition 22,",
        tuple(
            Rate(
                "error: a of the best size, which grows as C^a (a = 0.45)",
                rf"condition={condition} tau=0.01",
                "most",
                digits=2,
            )
            for condition in (1, 6, 22)
        ),
    ),
    Quote(
        "rbptrack/stats/documents.py",
        "95% intervals of an exponent contained the true value in {}% of cases.",
        (Rate("share: RBP_1's α is covered by an interval that takes tokens for independent"),),
    ),
]
