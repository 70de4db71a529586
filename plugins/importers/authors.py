"""Import results from the folders that the code of the paper's authors writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rbptrack.analysis import (
    BadInput,
    Imported,
    ImportedMeasurement,
    Importer,
    listed,
    load_json,
    read_pairs,
    whole_number,
)
from rbptrack.ranks import CE, RankTable, parse_rbp_name, rbp_name

_TOP_K_FOLDER = re.compile(r"top([1-9]\d{0,9})")
_RBP_KEY = re.compile(r"(?i)rbp_\d+")
_SAME_NUMBER = 1e-6  # largest difference between two copies of a number; the model's CE is in every top<k>
_MAX_CE = 1000.0  # nats; a larger -ln p stands for infinity and is refused
_MAX_VOCAB = 2**31 - 1  # the ranks in a rank table are int32


class Authors(Importer):
    """The folders of the paper's authors: <dataset>/<org>/<model>/top<k>/metrics.json and ranks.json.

    The path is the folder that contains the folders of the datasets, or a folder above it.
    """

    sizes: str = ""
    """the authors' param_count.json, or a CSV with the columns model (`EleutherAI/pythia-70m`) and
    non_embedding_params. The CSV may have a column vocab_size, for models that differ in |V|
    """

    vocab_size: int = 0
    """|V| of the models for which the file `sizes` gives no |V|; 0 if it is unknown. Ranks are imported only if |V| is
    known
    """

    def takes(self, path: Path) -> bool:
        return path.is_dir() and any(_TOP_K_FOLDER.fullmatch(file.parent.name) for file in path.rglob("metrics.json"))

    def read(self, path: Path) -> Iterator[Imported]:
        if not 0 <= self.vocab_size <= _MAX_VOCAB:
            raise BadInput(f"vocab_size must be from 1 to {_MAX_VOCAB:,}, or 0 if it is unknown; got {self.vocab_size}")
        sizes = read_pairs(self.sizes, "model", "non_embedding_params", option="sizes")
        vocab_sizes = self._read_vocab_sizes()
        files_by_model: dict[tuple[str, str], list[Path]] = {}  # by dataset and model
        for file in sorted(path.absolute().rglob("metrics.json")):
            if not _TOP_K_FOLDER.fullmatch(file.parent.name):
                continue
            folders = file.relative_to(path.absolute()).parts[:-2]
            if len(folders) < 3:
                raise BadInput(
                    f"the path of {file} does not contain dataset, org and model: import a folder above {path}, which "
                    "contains <dataset>/<org>/<model>/top<k>/metrics.json"
                )
            dataset, org, model = folders[-3:]
            files_by_model.setdefault((dataset, f"{org}/{model}"), []).append(file)
        if not files_by_model:
            raise BadInput(f"{path} holds no <dataset>/<org>/<model>/top<k>/metrics.json")
        for (dataset, model), files in files_by_model.items():
            vocab_size = vocab_sizes.get(model, self.vocab_size)
            yield _read_measurement(path.absolute(), dataset, model, files, sizes.get(model), vocab_size)

    def _read_vocab_sizes(self) -> dict[str, int]:
        """Return |V| by model, from the column vocab_size of `sizes`. Empty if there is no such column."""
        vocab_sizes = {}
        texts = read_pairs(self.sizes, "model", "vocab_size", option="sizes", optional=True)
        for model, text in texts.items():
            number = str(whole_number(text, with_letters=False))
            if not number.isdecimal() or len(number) > 10 or not 1 <= int(number) <= _MAX_VOCAB:
                raise BadInput(
                    f"{self.sizes}, {model}: vocab_size must be a whole number from 1 to {_MAX_VOCAB:,}; "
                    f"got {number[:40]}"
                )
            vocab_sizes[model] = int(number)
        return vocab_sizes


def _read_measurement(
    root: Path, dataset: str, model: str, files: Sequence[Path], size: str | None, vocab_size: int
) -> ImportedMeasurement:
    """Read the numbers and the ranks of one model on one dataset.

    Args:
        root: the imported folder. Places in messages are relative to it.
        dataset: the name of the dataset.
        model: the model's id on the Hugging Face Hub.
        files: the model's metrics.json, one for each k.
        size: the number of non-embedding parameters, or None if it is unknown.
        vocab_size: |V|, or 0 if it is unknown. The ranks are then left out.

    Raises:
        BadInput: a file has a wrong content, or two files have different values of one number.

    """
    numbers: dict[str, int | float] = {}
    places: dict[str, str] = {}
    for file in files:
        content = load_json(file, finite=False)  # numbers that are not imported may be NaN
        k = int(file.parent.name.removeprefix("top"))
        if not isinstance(content, dict) or not any(_metric_name(key, k) for key in content):
            raise BadInput(f"{file} must hold mean_ce_loss, RBP_<k> or indicator, but holds none of them")
        for key, value in content.items():
            name = _metric_name(key, k)
            if not name and _RBP_KEY.fullmatch(key):
                raise BadInput(f"{file}, {key[:40]}: k must be a whole number from 1 to 9,999,999,999")
            if not name or value is None:
                continue
            if not isinstance(value, int | float) or isinstance(value, bool) or not -_MAX_CE < value < _MAX_CE:
                raise BadInput(f"{file}, {key}: must be a number below {_MAX_CE:g}; got {str(value)[:40]}")
            if abs(numbers.get(name, value) - value) > _SAME_NUMBER:
                raise BadInput(
                    f"{file}, {key} is {value!r}, but the same number is {numbers[name]!r} in {places[name]}"
                )
            numbers[name] = value
            places[name] = f"{file.relative_to(root)}, {key}"
    columns: dict[str, object] = {**numbers, "dataset": dataset, "model": model, "non_embedding_params": size}
    ranks = None
    notes = ""
    rank_files = [path for path in (file.with_name("ranks.json") for file in files) if path.exists()]
    if rank_files and vocab_size:
        columns["vocab_size"] = vocab_size
        ranks = _make_rank_table(load_json(rank_files[0]), vocab_size, rank_files[0])
        unread_files = [f"{path.parent.name}/ranks.json" for path in rank_files[1:]]
        if unread_files:
            verb = "was" if len(unread_files) == 1 else "were"
            notes = f"the ranks are from {rank_files[0].parent.name}/ranks.json; {listed(unread_files)} {verb} not read"
    elif rank_files:
        notes = "ranks.json was not read, because ranks need vocab_size"
    return ImportedMeasurement(columns, f"{dataset}/{model}", places, ranks=ranks, repo=model, notes=notes)


def _metric_name(key: str, k: int) -> str:
    """Return the metric name of a key of top<k>/metrics.json, or an empty text if the key is not imported."""
    if key == "mean_ce_loss":
        return CE
    if key == "indicator":
        return rbp_name(k)
    return key.lower() if parse_rbp_name(key.lower()) else ""


def _make_rank_table(rows: Any, vocab_size: int, file: Path) -> RankTable:
    """Make a rank table from rows [rank, position, ce]. The number of ties is set to 0.

    The rows do not name documents. A new document begins if a position is not above the previous one. Raises BadInput
    if a row has another shape, or if a value is outside its range.
    """
    try:
        values = np.asarray(rows, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadInput(f"{file} does not hold rows [rank, position, ce]") from error
    if values.ndim != 2 or values.shape[1] != 3 or not len(values):
        raise BadInput(f"{file} does not hold rows [rank, position, ce]")
    rank, position, ce = values.T
    valid_rank = (rank >= 1) & (rank <= vocab_size) & (rank == np.floor(rank))
    _check_rows(file, valid_rank, rank, f"a rank must be a whole number from 1 to vocab_size = {vocab_size:,}")
    valid_position = (position >= 0) & (position < 2**31) & (position == np.floor(position))
    _check_rows(file, valid_position, position, "a position must be a whole number from 0")
    _check_rows(file, (ce >= 0) & (ce < _MAX_CE), ce, f"ce must be at least 0 and less than {_MAX_CE:g}")
    count = len(values)
    return RankTable.from_arrays(
        vocab_size=vocab_size,
        document=np.concatenate([[0], np.cumsum(np.diff(position) <= 0)]),
        position=position,
        field=np.zeros(count),
        token=np.full(count, -1),
        greater=rank - 1,
        ties=np.zeros(count),
        logprob=-ce,
    )


def _check_rows(file: Path, valid: Any, values: Any, rule: str) -> None:
    """Raise BadInput for the first row that breaks a rule. valid: whether each row follows it, bool (rows,)."""
    if not valid.all():
        first = int(np.argmin(valid))
        raise BadInput(f"{file}, row {first + 1}: {rule}; got {values[first]:g}")
