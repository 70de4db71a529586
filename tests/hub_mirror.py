"""A server on this machine that answers as the Hugging Face Hub does, with small files and with planned faults."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tests.tiny_models import TEXT, write_checkpoint

Fault = tuple[str, int]  # the kind of the fault, and the number of requests that get it
_FILE_ROUTE = re.compile(r"/(?P<datasets>datasets/)?(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_API_ROUTE = re.compile(
    r"/api/(?P<kind>models|datasets)/(?P<repo>[^/]+/[^/]+?)"
    r"(?:/(?P<question>revision|tree|paths-info)/(?P<revision>[^/]+)(?P<subfolder>/.*)?)?"
)


class Mirror(ThreadingHTTPServer):
    """A Hub that serves the folders `root/models/<id>` and `root/datasets/<id>`. It runs in a thread until the end.

    Attributes:
        root: the folder with the repositories.
        faults: the faults of requests for paths that contain a text, by that text. The kinds of faults are an HTTP
            status such as `503`, `gated` (403 with the Hub's error code) and `cut` (half of the bytes are sent, then
            the connection breaks).
        requests: the method, the path and the byte range of each request.
        silent: while this event is set, connections are accepted and no request is answered.
        tokens_seen: the access tokens that were sent.

    """

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.faults: dict[str, list[Fault]] = {}
        self.requests: list[str] = []
        self.silent = threading.Event()
        self.tokens_seen: set[str] = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def folder(self, kind: str, repo: str) -> Path:
        return self.root / kind / repo

    def commit(self, kind: str, repo: str, revision: str = "main") -> str | None:
        """Return the commit of `main`, of a tag, or of a commit. None if there is no such revision.

        The files of a tag are in the folder `<id>@<tag>` next to the repository's folder.
        """
        for sha, (tag, _) in self._commits(kind, repo).items():
            if revision in (tag, sha):
                return sha
        return None

    def folder_of_commit(self, kind: str, repo: str, sha: str) -> Path:
        return self._commits(kind, repo)[sha][1]

    def _commits(self, kind: str, repo: str) -> dict[str, tuple[str, Path]]:
        """Return the tag and the folder of each commit of a repository, by its hash. The tag of the last is `main`."""
        main = self.folder(kind, repo)
        commits = {}
        for folder in (main, *main.parent.glob(f"{main.name}@*")):
            if folder.is_dir():
                tag = folder.name.partition("@")[2] or "main"
                names = sorted(f"{path.relative_to(folder)}:{path.stat().st_size}" for path in folder.rglob("*"))
                commits[hashlib.sha1(f"{repo}@{tag}{names}".encode()).hexdigest()] = tag, folder
        return commits

    def take_fault(self, path: str, *, body: bool) -> str:
        """Return the planned fault of a request for this path, and reduce its number. It is empty if none is planned.

        A fault `cut` is kept for a request whose answer has a body.
        """
        for piece, planned in self.faults.items():
            if piece in path and planned and (body or planned[0][0] != "cut"):
                kind, times = planned[0]
                if times <= 1:
                    planned.pop(0)
                else:
                    planned[0] = (kind, times - 1)
                return kind
        return ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Mirror

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def do_GET(self) -> None:
        self._serve(body=True)

    def do_POST(self) -> None:
        posted = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._serve(body=True, posted=posted)

    def _serve(self, *, body: bool, posted: bytes = b"") -> None:
        path = unquote(urlsplit(self.path).path)
        if path == "/_faults":  # not a route of the Hub: tests plan faults and read the requests since the last call
            requests = list(self.server.requests)
            self.server.requests.clear()
            self.server.faults = {piece: [tuple(f) for f in planned] for piece, planned in json.loads(posted).items()}
            return self._send_json(requests)
        self.server.requests.append(f"{self.command} {self.path} {self.headers.get('Range', '')}")
        while self.server.silent.is_set():
            time.sleep(0.1)
        if self.headers.get("Authorization"):
            self.server.tokens_seen.add(self.headers["Authorization"])
        fault = self.server.take_fault(path, body=body) if path != "/" else ""
        if fault == "gated":
            return self._send_error(403, "GatedRepo", "Access to this repository is restricted")
        if fault.isdigit():
            return self._send_error(int(fault), "", "not now")
        if route := _API_ROUTE.fullmatch(path):
            return self._answer_question(route, posted)
        if route := _FILE_ROUTE.fullmatch(path):
            return self._send_file(route, body=body, cut=fault == "cut")
        return self._send_error(404, "", "no such page")

    def _answer_question(self, route: re.Match[str], posted: bytes) -> None:
        kind, repo = route["kind"], route["repo"]
        if not self.server.folder(kind, repo).is_dir():
            return self._send_error(404, "RepoNotFound", "Repository not found")
        sha = self.server.commit(kind, repo, route["revision"] or "main")
        if sha is None:
            return self._send_error(404, "RevisionNotFound", "Invalid rev id")
        folder = self.server.folder_of_commit(kind, repo, sha)
        if route["question"] == "tree":
            start = folder / (route["subfolder"] or "/").strip("/")
            if not start.is_dir():
                return self._send_error(404, "EntryNotFound", "no such folder")
            recursive = "recursive=true" in self.path.lower()
            paths = start.rglob("*") if recursive else start.iterdir()
            return self._send_json([_entry(path, folder) for path in sorted(paths)])
        if route["question"] == "paths-info":
            wanted = json.loads(posted)["paths"] if posted.startswith(b"{") else _paths_of_form(posted)
            return self._send_json([_entry(folder / name, folder) for name in wanted if (folder / name).exists()])
        entries = [_entry(path, folder) for path in sorted(folder.rglob("*")) if path.is_file()]
        siblings = [{"rfilename": entry["path"], "size": entry["size"], "blobId": entry["oid"]} for entry in entries]
        gated = "manual" if (folder / ".gated").exists() else False
        return self._send_json(
            {
                "id": repo,
                "sha": sha,
                "private": False,
                "gated": gated,
                "disabled": False,
                "tags": [],
                "siblings": siblings,
            }
        )

    def _send_file(self, route: re.Match[str], *, body: bool, cut: bool) -> None:
        kind, repo = "datasets" if route["datasets"] else "models", route["repo"]
        sha = self.server.commit(kind, repo, route["revision"])
        if sha is None:
            return self._send_error(404, "RevisionNotFound", "Invalid rev id")
        path = self.server.folder_of_commit(kind, repo, sha) / route["file"]
        if not path.is_file():
            return self._send_error(404, "EntryNotFound", "Entry not found")
        content = path.read_bytes()
        low, high = 0, len(content)
        byte_range = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if byte_range:
            low, high = int(byte_range[1]), min(len(content), int(byte_range[2]) + 1 if byte_range[2] else len(content))
        self.send_response(206 if byte_range else 200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", sha)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(high - low))
        if byte_range:
            self.send_header("Content-Range", f"bytes {low}-{high - 1}/{len(content)}")
        self.end_headers()
        if body:
            part = content[low:high]
            part = part[: len(part) // 2] if cut else part
            self.wfile.write(part)
        if cut:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        return None

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {})

    def _send_error(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message} if code else {}
        self._send(status, json.dumps({"error": message}).encode(), headers)

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _entry(path: Path, folder: Path) -> dict[str, Any]:
    relative = path.relative_to(folder).as_posix()
    if path.is_dir():
        return {"type": "directory", "path": relative, "size": 0, "oid": hashlib.sha1(relative.encode()).hexdigest()}
    return {
        "type": "file",
        "path": relative,
        "size": path.stat().st_size,
        "oid": hashlib.sha1(path.read_bytes()).hexdigest(),
    }


def _paths_of_form(posted: bytes) -> list[str]:
    return [unquote(part.partition("=")[2].replace("+", " ")) for part in posted.decode().split("&") if "paths" in part]


PYTHIA_SIZES = ("14m", "31m", "70m", "160m")


def write_repositories(root: Path) -> None:
    """Write small models with the IDs of real ones, and small datasets with the columns of real ones."""
    for number, size in enumerate(PYTHIA_SIZES):
        width = 16 + 4 * number
        write_checkpoint(
            "pythia", root / f"models/EleutherAI/pythia-{size}", hidden_size=width, intermediate_size=4 * width
        )
    write_checkpoint(
        "pythia", root / "models/EleutherAI/pythia-14m@step1000", seed=1, hidden_size=16, intermediate_size=64
    )
    # A download that was interrupted is kept in pieces of 10 MB, so the weights must be larger.
    large = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 50304}
    write_checkpoint("pythia", root / "models/EleutherAI/pythia-410m-deduped", **large)
    write_checkpoint("gpt2", root / "models/openai-community/gpt2")
    write_checkpoint("opt", root / "models/facebook/opt-125m")
    _replace_by_pickle(root / "models/facebook/opt-125m")
    _write_datasets(root / "datasets")


def _replace_by_pickle(folder: Path) -> None:
    """Replace the safetensors of a model by a pickle, as Meta publishes OPT."""
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def paragraphs(count: int) -> list[str]:
    """Return texts of 22 to 81 words. All are different."""
    words = TEXT.split()
    texts = []
    for number in range(count):
        start = (number * 37) % 1000  # 37 and 1000 have no common factor, so 1,000 texts begin at different words
        texts.append(" ".join(["Article", f"{number}.", *words[start : start + 20 + number % 60]]))
    return texts


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=20)


def _write_readme(folder: Path, configs: dict[str, dict[str, str]]) -> None:
    lines = ["---", "configs:"]
    for name, files in configs.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        lines += [line for split, path in files.items() for line in (f"  - split: {split}", f"    path: {path}")]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))


def _write_datasets(root: Path) -> None:
    wiki = root / "wikimedia/wikipedia"
    texts = paragraphs(60)
    for shard in range(2):
        rows = [
            {"id": str(i), "url": f"https://en.wikipedia.org/wiki/{i}", "title": f"Article {i}", "text": texts[i]}
            for i in range(shard * 30, shard * 30 + 30)
        ]
        _write_parquet(wiki / f"20231101.en/train-0000{shard}-of-00002.parquet", rows)
    _write_readme(wiki, {"20231101.en": {"train": "20231101.en/train-*"}})

    humaneval = root / "openai/openai_humaneval"
    rows = [
        {
            "task_id": f"HumanEval/{i}",
            "prompt": f'def add_{i}(a, b):\n    """Add {i} to the sum."""\n',
            "canonical_solution": f"    return a + b + {i}\n",
            "test": "def check(f): pass",
            "entry_point": f"add_{i}",
        }
        for i in range(20)
    ]
    _write_parquet(humaneval / "openai_humaneval/test-00000-of-00001.parquet", rows)
    _write_readme(humaneval, {"openai_humaneval": {"test": "openai_humaneval/test-*"}})

    gsm = root / "openai/gsm8k"
    rows = [{"question": f"What is {i} plus {i}?", "answer": f"It is {2 * i}.\n#### {2 * i}"} for i in range(25)]
    _write_parquet(gsm / "main/test-00000-of-00001.parquet", rows)
    _write_readme(gsm, {"main": {"test": "main/test-*"}})

    c4 = root / "allenai/c4"
    (c4 / "en").mkdir(parents=True)
    for shard in range(2):
        lines = [
            json.dumps({"text": t, "timestamp": "2019-04-25T12:57:54Z", "url": f"http://example.org/{shard}/{i}"})
            for i, t in enumerate(paragraphs(12))
        ]
        path = c4 / f"en/c4-validation.0000{shard}-of-00002.json.gz"
        path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    _write_readme(c4, {"en": {"validation": "en/c4-validation.*.json.gz"}})

    paloma = root / "allenai/paloma"
    (paloma / "c4_100_domains/val").mkdir(parents=True)
    lines = [
        json.dumps(
            {"text": t, "id": str(i), "added": "2023-06-01", "source": "c4", "subdomain": f"{i % 3:02d}_example.org"}
        )
        for i, t in enumerate(paragraphs(36))
    ]
    (paloma / "c4_100_domains/val/val_c4.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    _write_readme(paloma, {"c4_100_domains": {"val": "c4_100_domains/val/*.jsonl.gz"}})

    legal = root / "isaacus/open-australian-legal-corpus"
    legal.mkdir(parents=True)
    lines = [
        json.dumps({"version_id": f"act/{i}", "type": "primary_legislation", "jurisdiction": "nsw", "text": t})
        for i, t in enumerate(paragraphs(15))
    ]
    (legal / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    _write_readme(legal, {"corpus": {"corpus": "corpus.jsonl"}})

    pile = root / "monology/pile-uncopyrighted"
    pile.mkdir(parents=True)
    for name in ("test", "val"):
        lines = [
            json.dumps(
                {
                    "text": f"{name} {t} {TEXT[i : i + 500 * (i % 3)]}",
                    "meta": {"pile_set_name": ("Github", "ArXiv")[i % 2]},
                }
            )
            for i, t in enumerate(paragraphs(20))
        ]
        (pile / f"{name}.jsonl.zst").write_bytes(zstandard.compress("\n".join(lines).encode()))
