"""Damage files that others wrote, at random, and require that each is read, or refused in a line.

    python -m tests.campaigns fuzz RESULTS.jsonl                    # every target for ten minutes, with atheris
    python -m tests.campaigns fuzz RESULTS.jsonl --only csv --seconds 60

A find is any exception but rbptrack's own, a message that is no short text, a run that was half made, and a parser that
does not come to an end. The input is kept beside RESULTS.jsonl. `tests/test_fuzz.py` tries a few hundred inputs.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import importlib.util
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sqlite3
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from tests.campaigns.recorded import record, recorded

HANG_SECONDS = 60
WAIT_SECONDS = 600
WORDS = (
    b"NaN", b"-1", b"1e400", b"Infinity", b"null", b"true", b"[]", b"{}", b'""', b"\xff\xfe", b"\x00", b"9" * 30, b",",
    b"\n", b'"', b"'", b":", b"0", b"../", b"${x}", b"\xe2\x80\xae", b"-0.0", b"1.5", b" ", b"%", b"@", b"[", b"e",
)  # fmt: skip


_PASSWORD = "geheim"


class Found(Exception):
    """What must not happen has happened."""


def mutated(seed: bytes, draw: random.Random) -> bytes:
    """A damaged copy: bits flipped, spans cut, doubled or moved, and words in the wrong place."""
    data = bytearray(seed)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 8))):
        at, to = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        match draw.randrange(6):
            case 0 if data:
                data[at % len(data)] ^= 1 << draw.randrange(8)
            case 1:
                del data[at : min(to, at + draw.choice((1, 4, 64, 10**6)))]
            case 2:
                data[at:at] = data[at:to][: draw.choice((1, 8, 10**4))]
            case 3:
                data[at : at + draw.choice((0, 1, 3))] = draw.choice(WORDS)
            case 4 if match := list(re.finditer(rb"-?\d+(\.\d+)?", data)):
                number = draw.choice(match)
                data[number.start() : number.end()] = draw.choice(WORDS)
            case _:
                data[at:at] = draw.choice(WORDS)
    return bytes(data)


# --- what reads outside data: each takes damaged bytes and a folder of its own


def _import(path: Path, *options: str) -> None:
    from rbptrack.commands import import_

    import_.main([str(path), *options])


def _bundle(data: bytes, folder: Path) -> None:
    (folder / "x.zip").write_bytes(data)
    _import(folder / "x.zip", "without_s=true")


def _within(name: str) -> Callable[[bytes, Path], None]:
    """A whole bundle with one file replaced."""

    def read(data: bytes, folder: Path) -> None:
        with zipfile.ZipFile(io.BytesIO(_seed_bundle())) as whole, zipfile.ZipFile(folder / "x.zip", "w") as bundle:
            first = next(entry for entry in whole.namelist() if entry.endswith(name))
            for entry in whole.namelist():
                bundle.writestr(entry, data if entry == first else whole.read(entry))
        _import(folder / "x.zip", "without_s=true")

    return read


def _csv(data: bytes, folder: Path) -> None:
    (folder / "x.csv").write_bytes(data)
    _import(folder / "x.csv")


def _authors(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        top = folder / "results/wiki/EleutherAI/pythia-70m/top1"
        top.mkdir(parents=True)
        (top / "metrics.json").write_bytes(METRICS)
        (top / "ranks.json").write_bytes(RANKS)
        (top / name).write_bytes(data)
        _import(folder / "results", "vocab_size=50304", "without_s=true")

    return read


def _sizes(data: bytes, folder: Path) -> None:
    (folder / "sizes.csv").write_bytes(data)
    top = folder / "results/wiki/EleutherAI/pythia-70m/top1"
    top.mkdir(parents=True)
    (top / "metrics.json").write_bytes(METRICS)
    _import(folder / "results", f"sizes={folder}/sizes.csv")


def _documents(ending: str) -> Callable[[bytes, Path], None]:
    """A data file: text is damaged before it is compressed, where it is."""

    def read(data: bytes, folder: Path) -> None:
        import zstandard

        from rbptrack.config.schema import DatasetConfig
        from rbptrack.corpus.documents import load_documents
        from rbptrack.sources.pin import of_dataset

        packed = {".jsonl.gz": gzip.compress, ".jsonl.zst": zstandard.compress}.get(ending, bytes)(data)
        (folder / f"x{ending}").write_bytes(packed)
        config = DatasetConfig(name="mine", split="train", seq_len=8, files=[str(folder / f"x{ending}")])
        load_documents(config, of_dataset(config))

    return read


def _yaml(data: bytes, folder: Path) -> None:
    from rbptrack.config.request import measuring, sweep_of

    (folder / "conf/model").mkdir(parents=True)
    (folder / "conf/model/mine.yaml").write_bytes(data)
    sweep_of(measuring(["model=mine", "dataset=pydocs", "--config-dir", str(folder / "conf")]))


def _uri(data: bytes, folder: Path) -> None:
    """The door takes a password out of an address, or refuses the address without repeating it."""
    from rbptrack.base.addresses import taken_apart
    from rbptrack.base.errors import BadInput

    uri = data.decode(errors="replace")
    try:
        shown, _ = taken_apart(uri, "MLFLOW_TRACKING_URI")
    except BadInput as error:
        shown = str(error)
        if _PASSWORD in shown:
            raise Found(f"{uri!r} is refused as {shown!r}") from error
        raise
    if _PASSWORD in shown and re.search(rf"://[^/?#@]*:{_PASSWORD}@|[?&]password={_PASSWORD}", uri):
        raise Found(f"{uri!r} is shown as {shown!r}")


# --- whole inputs


RANKS = b"[[1, 1, 0.5], [7, 2, 3.0], [2, 3, 1.5], [1, 1, 0.25], [12, 2, 4.0]]"
METRICS = b'{"mean_ce_loss": 1.85, "RBP_1": 0.4, "RBP_10": 0.8, "indicator": 0.4}'
CSV = (
    b"model,dataset,family,size,non_embedding_params,num_tokens,vocab_size,seq_len,ce,ce_se,rbp_1,rbp_10,rbp_10_se\n"
    b"mine-1m,wiki,mine,1m,1000000,5000,50257,512,4.5,0.01,0.25,0.5,0.01\n"
    b'"mine-2m","a, b",mine,2m,2000000,5000,50257,512,4.25,,0.3125,0.5625,\n'
)
LINES = b"".join(
    json.dumps({"text": f"line {i} \u2014 \u00e9", "kind": "ab"[i % 2], "n": i}).encode() + b"\n" for i in range(6)
)
YAML = b"family: mine\nsize: 1b\nrepo: org/model\nrevision: main\ndtype: bfloat16\ntokenizer: org/tok\n"
URIS = (
    b"postgresql://me:geheim@host:5432/db", b"http://me:geheim@127.0.0.1:5000/prefix", b"sqlite:////tmp/a%20b/x.db",
    b"postgresql://host/db?user=me&password=geheim&sslmode=require", b"mysql+pymysql://me@[::1]:3306/db",
)  # fmt: skip


def _seed_bundle() -> bytes:
    """A bundle with two measurements, made once in a process."""
    global _made_bundle
    if not _made_bundle:
        from rbptrack.commands import export

        with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
            for model in ("pythia-70m", "pythia-160m"):
                top = Path(name, "results/wiki/EleutherAI", model, "top1")
                top.mkdir(parents=True)
                (top / "metrics.json").write_bytes(METRICS)
                (top / "ranks.json").write_bytes(RANKS)
            store = f"tracking.uri=sqlite:///{name}/mlruns/mlflow.db"
            _import(Path(name, "results"), "vocab_size=50304", "without_s=true", store)
            export.main(["out=x.zip", store])
            _made_bundle = Path(name, "x.zip").read_bytes()
    return _made_bundle


_made_bundle = b""


def _of_bundle(ending: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(_seed_bundle())) as whole:
        return whole.read(next(name for name in whole.namelist() if name.endswith(ending)))


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([json.loads(line) for line in LINES.splitlines()]), made)
    return made.getvalue()


Target = tuple[Callable[[bytes, Path], None], Callable[[], tuple[bytes, ...]]]
TARGETS: dict[str, Target] = {
    "bundle": (_bundle, lambda: (_seed_bundle(),)),
    "bundle.json": (_within("bundle.json"), lambda: (_of_bundle("bundle.json"),)),
    "record.json": (_within("record.json"), lambda: (_of_bundle("record.json"),)),
    "csv": (_csv, lambda: (CSV,)),
    "ranks.json": (_authors("ranks.json"), lambda: (RANKS,)),
    "metrics.json": (_authors("metrics.json"), lambda: (METRICS,)),
    "sizes.csv": (_sizes, lambda: (b"model,non_embedding_params\nEleutherAI/pythia-70m,18915328\n",)),
    "documents .jsonl": (_documents(".jsonl"), lambda: (LINES,)),
    "documents .jsonl.gz": (_documents(".jsonl.gz"), lambda: (LINES,)),
    "documents .csv": (_documents(".csv"), lambda: (CSV.replace(b"model,", b"text,"),)),
    "documents .parquet": (_documents(".parquet"), lambda: (_parquet(),)),
    "yaml": (_yaml, lambda: (YAML,)),
    "uri": (_uri, lambda: URIS),
}


# --- one attempt, and its judge


class Judge:
    """Tries inputs on one target, each in a folder of its own beside one store; a context manager."""

    def __init__(self, target: str) -> None:
        self.target, self.read, self.refused, self.accepted = target, TARGETS[target][0], 0, 0

    def __enter__(self) -> Judge:
        self.seeds = TARGETS[self.target][1]()  # before the working folder changes
        self._stack = contextlib.ExitStack()
        self.place = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._stack.enter_context(contextlib.chdir(self.place))
        kept = dict(os.environ)
        self._stack.callback(lambda: (os.environ.clear(), os.environ.update(kept)))
        os.environ["RBPTRACK_CACHE"] = str(self.place / "cache")
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def attempt(self, data: bytes) -> None:
        """Let the target read damaged bytes; raises Found for what must not happen."""
        from rbptrack.base.errors import RbptrackError

        folder = self.place / "input"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        before, refusal = self._runs(), ""
        with _limited(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                self.read(data, folder)
            except RbptrackError as error:
                refusal = str(error) or "nothing"
            except Found:
                raise
            except BaseException as error:
                raise Found(f"{type(error).__name__}: {str(error)[:200]}") from error
        self.accepted, self.refused = self.accepted + (not refusal), self.refused + bool(refusal)
        if refusal and (len(refusal) > 3000 or refusal == "nothing"):
            raise Found(f"no message for people: {refusal[:200]!r}")
        after = self._runs()
        if refusal and after != before:
            raise Found(f"refused, and yet the store changed: {sorted(after - before)[:3]}")
        if any(status != "FINISHED" for _, status in after):
            raise Found("a run was left unfinished")

    def _runs(self) -> set[tuple[str, str]]:
        path = self.place / "mlruns/mlflow.db"
        if not path.exists():
            return set()
        with contextlib.closing(sqlite3.connect(path)) as database:
            return set(database.execute("select run_uuid, status from runs where lifecycle_stage = 'active'"))


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Find what computes, or waits, without end; a busy machine only makes it wait."""

    def late(number: int, frame: object) -> None:
        raise Found(f"no end within {HANG_SECONDS} s of a processor, or {WAIT_SECONDS} s")

    before = {number: signal.signal(number, late) for number in (signal.SIGALRM, signal.SIGPROF)}
    signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
    signal.alarm(WAIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


# --- campaigns


class Campaign:
    """Many inputs for one target; what was found is written down as it comes.

    Args:
        target: of TARGETS.
        kept: folder of the inputs that made a find.
        told: the file in which numbers and finds are kept.

    """

    def __init__(self, target: str, kept: Path, told: Path) -> None:
        self._judge, self._kept, self._told = Judge(target), kept, told
        self._inputs, self._finds = 0, dict[str, str]()

    def attempt(self, data: bytes) -> None:
        """One input."""
        self._inputs += 1
        try:
            self._judge.attempt(data)
        except Found as error:
            what = re.sub(r"0x[0-9a-f]+|'[^']*'|\d+", "*", str(error))[:120]
            if what not in self._finds:
                name = f"{self._judge.target.replace(' ', '-')}-{hashlib.sha256(data).hexdigest()[:12]}"
                (self._kept / name).write_bytes(data)
                self._finds[what] = f"{error} [{name}]"
                self._tell()
        if self._inputs % 50 == 0:
            self._tell()

    def _tell(self) -> None:
        judge = self._judge
        counts = {"inputs": self._inputs, "accepted": judge.accepted, "refused": judge.refused}
        self._told.write_text(json.dumps({"target": judge.target, **counts, "finds": self._finds}))

    def run(self, seconds: float) -> None:
        """Try inputs for so long; guided by the lines that they reach, where atheris is installed."""
        try:
            import atheris
        except ImportError:
            return self._at_random(seconds)
        with atheris.instrument_imports(include=["rbptrack"]):
            for module in ("commands.export", "commands.import_", "config.compose", "corpus.documents"):
                import_module(f"rbptrack.{module}")
        with self._judge:
            corpus = self._judge.place / "corpus"
            corpus.mkdir()
            for number, seed in enumerate(self._judge.seeds):
                (corpus / str(number)).write_bytes(seed)
            words = self._judge.place / "words"
            words.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in WORDS))
            options = [
                f"-max_total_time={seconds:.0f}",
                "-timeout=0",
                "-rss_limit_mb=0",
                "-max_len=60000",
                "-verbosity=0",
                f"-artifact_prefix={self._kept}/",
            ]
            # What libFuzzer does to text is seldom still text: every second input is damaged as text would be.
            draw = random.Random(0)

            def damaged(data: bytes, most: int, seed: int) -> bytes:
                return (mutated(data, draw) if seed % 2 else bytes(atheris.Mutate(data, most)))[:most]

            atheris.Setup(["fuzz", *options, f"-dict={words}", str(corpus)], self.attempt, custom_mutator=damaged)
            atheris.Fuzz()  # does not return
        return None

    def _at_random(self, seconds: float) -> None:
        draw, began = random.Random(0), time.monotonic()
        with self._judge as judge:
            while time.monotonic() - began < seconds:
                self.attempt(mutated(draw.choice(judge.seeds), draw))
        self._tell()


def campaign(target: str, seconds: float, kept: Path) -> dict[str, object]:
    """Fuzz one target in a process of its own; returns what is recorded."""
    kept.mkdir(parents=True, exist_ok=True)
    told = kept / f"{target.replace(' ', '-')}.json"
    told.unlink(missing_ok=True)
    process = multiprocessing.get_context("spawn").Process(target=_in_a_process, args=(target, seconds, kept, told))
    process.start()
    process.join(seconds + 300)
    process.kill()
    found: dict[str, object] = (
        json.loads(told.read_text()) if told.exists() else {"target": target, "inputs": 0, "finds": {}}
    )
    if process.exitcode != 0:
        found["ended"] = f"exit code {process.exitcode}"
    return found | {"seconds": seconds, "guided": bool(importlib.util.find_spec("atheris"))}


def _in_a_process(target: str, seconds: float, kept: Path, told: Path) -> None:
    Campaign(target, kept, told).run(seconds)


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of this campaign."""
    parser.add_argument("--only", default="", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=600)


def main(asked: argparse.Namespace) -> int:
    """Fuzz the targets that are asked for, each in a process of its own, and record the finds."""
    done = {line["target"] for line in recorded(asked.results) if line["fault"] == "fuzz"}
    failed = 0
    for target in [asked.only] if asked.only else [name for name in TARGETS if name not in done]:
        kept = asked.results.resolve().with_name("fuzz-finds")
        line = record(asked.results, "fuzz", campaign(target, asked.seconds, kept))
        print(
            f"{target}: {line['inputs']} inputs, {len(line['finds'])} kinds of find",
            *line["finds"].values(),
            sep="\n  ",
        )
        failed += bool(line["finds"])
    return 1 if failed else 0
