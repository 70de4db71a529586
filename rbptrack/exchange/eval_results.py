"""`.eval_results/*.yaml` of model repositories on the hub: read and written in one place.

The format (docs/hub/eval-results of Hugging Face): a list of entries, each with the benchmark's `dataset` (`id`,
`task_id`, `revision`), a `value`, and where known `date`, `source` and `notes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rbptrack.base.files import write_whole

FOLDER = ".eval_results"


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield model, task and score (a share) of each entry of a file; the folder above `.eval_results` names the
    model.
    """
    repository = path.parent.parent if path.parent.name == FOLDER else path.parent
    for entry in yaml.safe_load(path.read_text(encoding="utf-8")):
        dataset, value = entry["dataset"], float(entry["value"])
        task = str(dataset["id"]).rpartition("/")[2]
        part = dataset.get("task_id")
        named = f"{task}/{part}" if part not in (None, "", "default") else task
        share = value / 100 if value > 1 else value  # the hub's are percentages in most benchmarks
        yield {"model": repository.resolve().name, "revision": "", "task": named, "score": share, "n": None}


def write(
    repository: Path,
    name: str,
    shares: Mapping[str, float],
    *,
    dataset: str,
    revision: str,
    date: str,
    notes: Sequence[str],
) -> Path:
    """Write what `read` reads: an entry for each task of a benchmark.

    Args:
        repository: the folder of a model's repository.
        name: of the file, without its ending.
        shares: a value from 0 to 1 by the task's id.
        dataset: the benchmark's id on the hub.
        revision: its commit.
        date: of the evaluation, ISO 8601.
        notes: how it was made.

    """
    about = {"id": dataset, "revision": revision}
    entries = [
        {"dataset": about | {"task_id": task}, "value": share, "date": date, "notes": "; ".join(notes)}
        for task, share in shares.items()
    ]
    path = repository / FOLDER / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, yaml.safe_dump(entries, sort_keys=False, allow_unicode=True))
    return path
