"""Tests of `failure_lines` and `note_lines`: what many cells share is printed once."""

from __future__ import annotations

from rbptrack.base.errors import BadInput
from rbptrack.sources.hub import MissingRepository, NotCached
from rbptrack.sweep.messages import failure_lines, note_lines


def test_failure_lines_join_failures_that_differ_only_in_the_name_of_the_model() -> None:
    failures = [(f"m-{size} / d", BadInput(f"at most 8, the maximum of m-{size}")) for size in ("1m", "2m", "4m")]
    (line,) = failure_lines(failures)
    assert "3 cells" in line


def test_failure_lines_keep_failures_of_different_repositories_apart() -> None:
    """A user asks for access to each repository separately."""
    failures = [(f"m-{size} / d", BadInput(f"model org/m-{size} is gated")) for size in ("1m", "2m")]
    assert len(failure_lines(failures)) == 2


def test_failure_lines_name_each_download_once_with_the_files_that_are_needed() -> None:
    dataset = MissingRepository("dataset", "org/wiki", "main", ("README.md", "en/*"))
    failures = []
    for number in (1, 2):
        model = MissingRepository("model", f"org/m-{number}", "step5")
        failures.append((f"m-{number} / wiki", NotCached([dataset, model])))
    (text,) = failure_lines(failures)
    assert text.count("hf download org/wiki") == 1
    assert "--include README.md --include 'en/*'" in text
    assert "hf download org/m-1 --revision step5" in text
    assert "hf download org/m-2 --revision step5" in text


def test_note_lines_print_a_note_once_with_the_names_of_all_its_models() -> None:
    titles = ["m-1 / a", "m-1 / b", "m-2 / a", "m-2 / b"]
    (line,) = note_lines([(title, "k=9 is above") for title in titles])
    assert line == "m-1, m-2: k=9 is above"


def test_note_lines_name_the_dataset_of_a_note_if_the_notes_are_about_several() -> None:
    notes = [("a-1m / wiki", "9 distinct"), ("a-2m / wiki", "9 distinct"), ("a-1m / code", "k=9 is above")]
    assert note_lines([*notes, ("a-1m / wiki", "k=9 is above")]) == [
        "a-1m, a-2m on wiki: 9 distinct",
        "a-1m: k=9 is above",
    ]
