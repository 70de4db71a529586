"""`python -m tests.power OUT ARGUMENTS`: rbptrack, watched: is what it acknowledges what a power cut would leave?

A file is safe that has been synced since its last write, and whose name was in its folder when that was last synced,
and so on up to the working folder. The model is exact for what is written here, and needs neither root nor a disk.
"""

from __future__ import annotations

import json
import os
import runpy
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

Safe = tuple[int, int] | frozenset[tuple[str, int]]


class Power:
    """What has been synced, what was acknowledged before it was, and how often each was looked at.

    Args:
        top: the working folder.

    """

    def __init__(self, top: Path) -> None:
        self._top, self._safe = top, dict[int, Safe]()
        self._ending, self._finished = list[str](), set[str]()
        self.faults, self.seen = list[str](), Counter[str]()

    def synced(self, opened: int) -> None:
        """Note the state in which a file or folder was synced."""
        state = os.fstat(opened)
        self._safe[state.st_ino] = _state(Path(f"/proc/self/fd/{opened}").readlink())
        self.seen["sync"] += 1

    def lost(self, path: Path) -> Iterator[str]:
        """What a power cut would take of a file: its content, its name, or a folder's name."""
        if self._safe.get(path.stat().st_ino) != _state(path):
            yield f"{path.relative_to(self._top)} is not synced since its last change"
        while path != self._top:
            names = self._safe.get(path.parent.stat().st_ino, frozenset())
            if (path.name, path.stat().st_ino) not in names:
                yield f"the name {path.relative_to(self._top)} is not synced"
            path = path.parent

    def check(self, what: str, files: list[Path]) -> None:
        """Note an acknowledgement, and which of the files that it rests on are not safe."""
        self.seen[what] += 1
        self.faults += [f"{what}: no file"] if not files else []
        self.faults += [f"{what}: {each}" for path in files for each in self.lost(path)]

    def statement(self, statement: str, parameters: Any) -> None:
        """Note that the transaction ends a run."""
        if statement.startswith("UPDATE runs") and "FINISHED" in parameters:
            self._ending.append(next(p for p in parameters if isinstance(p, str) and len(p) == 32))

    def committing(self) -> None:
        """Look at the artifacts of each run that is FINISHED with this transaction, and at the database's name."""
        for run_id in self._ending:
            self.check("finished", _files(self._top, f"mlruns/artifacts/*/{run_id}/artifacts"))
            self._finished.add(run_id)
        self._ending.clear()
        if self._finished:
            place = self._top / "mlruns/mlflow.db"
            self.faults += [f"store: {each}" for each in self.lost(place) if "name" in each]

    def removing(self, path: Path) -> None:
        """Look at what stands for a part or a record that is about to be removed."""
        if path.name.startswith("part-") and path.suffix == ".parquet":
            self.check("part removed", _files(self._top, "mlruns/spool/*/*"))
        if path.name == "record.json" and "spool" in path.parts:
            self.seen["record removed"] += 1
            if (path.parent / "run_id").read_text() not in self._finished:
                self.faults.append(f"{path} is removed, and its run is not FINISHED")

    def counted(self) -> None:
        """Look at the parts of which one is counted."""
        self.check("part counted", [p for p in _files(self._top, "mlruns/partial/*") if p.name.startswith("part-")])


def _state(path: Path) -> Safe:
    state = path.stat()
    if stat.S_ISDIR(state.st_mode):
        return frozenset((entry.name, entry.inode()) for entry in os.scandir(path))
    return state.st_size, state.st_mtime_ns


def _files(top: Path, folders: str) -> list[Path]:
    return [path for folder in top.glob(folders) for path in folder.rglob("*") if path.is_file()]


def watch(power: Power) -> None:
    """Look at every sync, removal and commit of this process."""
    from rbptrack.tracking.live import Live

    fsync, add = os.fsync, Live.add

    def synced(opened: Any) -> None:
        number = opened if isinstance(opened, int) else opened.fileno()
        fsync(number)
        power.synced(number)

    def removing(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "os.remove":
            path, folder = arguments
            power.removing(Path(f"/proc/self/fd/{folder}").readlink() / path if folder >= 0 else Path(path).absolute())

    def counted(live: Live, part: Any) -> None:
        power.counted()
        add(live, part)

    os.fsync = synced
    Live.add = counted  # type: ignore[method-assign]
    sys.addaudithook(removing)
    event.listen(
        Engine, "before_cursor_execute", lambda c, u, statement, values, *o: power.statement(statement, values)
    )
    event.listen(Engine, "commit", lambda connection: power.committing())


if __name__ == "__main__":
    out, power = Path(sys.argv[1]), Power(Path.cwd())
    sys.argv[1:] = sys.argv[2:]
    watch(power)
    try:
        runpy.run_module("rbptrack", run_name="__main__", alter_sys=True)
    finally:
        out.write_text(json.dumps({"faults": power.faults, "seen": power.seen}))
