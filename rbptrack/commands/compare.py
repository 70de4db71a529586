"""`python -m rbptrack compare`: two measurements of the same tokens, of a store or a bundle; no model, no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from rbptrack.analysis.comparison import Comparison, compare
from rbptrack.analysis.run_names import find
from rbptrack.analysis.runs import Runs
from rbptrack.analysis.same_tokens import SAME_TOKENS
from rbptrack.base.errors import BadInput, shortened
from rbptrack.base.files import check_replaceable, write_whole
from rbptrack.base.user_paths import check_writable_folder, user_path
from rbptrack.commands.declared.closer import COMPARE, CompareConfig
from rbptrack.config.schema import FilterConfig
from rbptrack.console.output import program, say, say_wrapped
from rbptrack.console.tables import Format, plain, print_json
from rbptrack.exchange.opened import beside, unpacked
from rbptrack.ranks import HEADLINE_KS
from rbptrack.reporting.page import Section, render
from rbptrack.reporting.terminal import show
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.store import Store

_ABOUT = "Two measurements of the same tokens, paired token by token"
_BUNDLE = ".zip"


def _compare(config: CompareConfig) -> int:
    if len(config.runs) != 2:
        raise BadInput(f"compare takes two measurements; got {len(config.runs)}. {COMPARE.usage}")
    if not 0.5 <= config.level < 1:
        raise BadInput(f"level must be at least 0.5 and below 1; got {config.level:g}")
    out = _checked(config.out)
    with tempfile.TemporaryDirectory() as folder:
        runs, a, b = _chosen(config, Path(folder))
        ks = config.k or HEADLINE_KS
        comparison = compare(runs, a, b, ks=ks, level=config.level)
        section = _section(comparison, ks)
        if out:
            scope = f"{comparison.a} and {comparison.b} on {comparison.dataset}"
            command = f"{program()} compare {' '.join(config.runs)}"
            page = render(scope, runs, [section], facts=[("command", command)], files=None)
            write_whole(out, page)
    if config.format is Format.json:
        print_json(_document(comparison))
    else:
        say_wrapped(f"{section.report.headline}.")
        show(section)
        if out:
            say(f"page     {out}")
    return 1 if config.fail and comparison.shown else 0


def _checked(text: str) -> Path | None:
    """Return the page's file; BadInput where none can be written there."""
    if not text:
        return None
    out = user_path(text)
    if out.suffix != ".html":
        raise BadInput(f"out={text}: a comparison is written as .html")
    check_writable_folder(out.absolute().parent)
    check_replaceable(out.resolve())
    return out


def _section(comparison: Comparison, ks: Sequence[int]) -> Section:
    report = comparison.report()
    options = f"k={','.join(map(str, ks))} level={comparison.level:g}"
    findings = [plain(asdict(change)) for change in comparison.changes]
    return Section("comparison", f"{_ABOUT}: A is {comparison.a}, B {comparison.b}", options, report, {}, findings)


def _document(comparison: Comparison) -> dict[str, object]:
    """Return the comparison for programs."""
    sums = comparison.sums
    return {
        "a": comparison.a,
        "b": comparison.b,
        "dataset": comparison.dataset,
        "tokens": comparison.tokens,
        "ranks_that_differ": None if sums is None else int(sums.moved.sum()),
        "same_top": asdict(comparison.same_top),
        "different": bool(comparison.shown),
        "changes": comparison.frame.to_dict("records"),
        "notes": comparison.sentences(),
    }


def _chosen(config: CompareConfig, folder: Path) -> tuple[Runs, str, str]:
    """Return the two measurements, and the run IDs of A and B."""
    reader: Reader | None = None
    frames: dict[str, pd.DataFrame] = {}
    folders: dict[str, Path] = {}
    for word in config.runs:
        file, _ = _bundle(word)
        if file is None:
            reader = reader or Store(config.tracking).reader
            frames[word] = reader.runs(FilterConfig()).frame
        else:
            place = folder / str(len(frames))
            place.mkdir()
            frames[word] = unpacked(file, place)
            folders |= {str(run_id): place for run_id in frames[word]["run_id"]}
    a, b = config.runs
    rows = [_named(word, frames[word]) for word in (a, b)]
    first = _matching(a, frames[a], rows[1]) if rows[0] is None else rows[0]
    second = _matching(b, frames[b], first) if rows[1] is None else rows[1]
    chosen = pd.DataFrame([_labelled(a, first), _labelled(b, second)]).drop_duplicates("run_id")
    return beside(chosen, folders, reader), str(first["run_id"]), str(second["run_id"])


def _labelled(word: str, row: pd.Series) -> pd.Series:
    """Return the row, its model with the name of the bundle that holds it."""
    file, _ = _bundle(word)
    return row if file is None else pd.Series({**row, "model": f"{row['model']} ({file.name})"})


def _bundle(word: str) -> tuple[Path | None, str]:
    """Return the bundle and the measurement in it that a word names: `base.zip`, `base.zip:nano-6k/stdlib`."""
    stem, suffix, name = word.partition(_BUNDLE)
    if not suffix or (name and not name.startswith(":")):
        return None, word
    path = user_path(stem + suffix)
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    return path, name.removeprefix(":")


def _named(word: str, frame: pd.DataFrame) -> pd.Series | None:
    """Return the measurement that a word names; None for a bundle of several that are not named."""
    file, name = _bundle(word)
    if file is None or name:
        return find(frame, name)
    return frame.iloc[0] if len(frame) == 1 else None


def _matching(word: str, frame: pd.DataFrame, other: pd.Series | None) -> pd.Series:
    """Return the measurement of a bundle that has the model and the tokens of the other one."""
    if other is not None:
        alike = [row for _, row in frame.iterrows() if _alike(row, other)]
        if len(alike) == 1:
            return alike[0]
    there = [f"{word}:{model}/{dataset}" for model, dataset in zip(frame["model"], frame["dataset"], strict=True)]
    raise BadInput(f"{word} holds {len(frame)} measurements: name one. Available: {shortened(there)}")


def _alike(row: pd.Series, other: pd.Series) -> bool:
    names = [name for name in ("model", *SAME_TOKENS) if pd.notna(row[name]) and pd.notna(other[name])]
    return all(row[name] == other[name] for name in names)


main = COMPARE.running(_compare)
