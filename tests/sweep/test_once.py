"""What many cells share is said once."""

from __future__ import annotations

from rbptrack.base.errors import BadInput
from rbptrack.sources.hub import Missing, NotCached
from rbptrack.sweep.once import failure_lines, note_lines


def test_a_cause_that_differs_only_in_the_names_of_the_cell_is_one() -> None:
    failures = [(f"m-{size} / d", BadInput(f"at most 8, the maximum of m-{size}")) for size in ("1m", "2m", "4m")]
    (line,) = failure_lines(failures)
    assert "3 cells" in line
    gated = [(f"m-{size} / d", BadInput(f"model org/m-{size} is gated")) for size in ("1m", "2m")]
    assert len(failure_lines(gated)) == 2, "access to each repository is asked for by itself"


def test_each_download_is_named_once_with_the_files_that_are_needed() -> None:
    wiki = Missing("dataset", "org/wiki", "main", ("README.md", "en/*"))
    models = [Missing("model", f"org/m-{size}", "step5") for size in (1, 2)]
    failures = [(f"m-{model.repo[-1]} / wiki", NotCached([wiki, model])) for model in models]
    (text,) = failure_lines(failures)
    assert text.count("hf download org/wiki") == 1
    assert "--include README.md --include 'en/*'" in text
    assert all(f"hf download {model.repo} --revision step5" in text for model in models)


def test_a_note_stands_once_after_all_its_models() -> None:
    notes = [(f"m-{size} / {dataset}", "k=9 is above") for size in (1, 2) for dataset in ("a", "b")]
    (line,) = note_lines([*notes])
    assert line == "m-1, m-2: k=9 is above"
