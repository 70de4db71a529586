"""A tracking server as a team has it: PostgreSQL, `mlflow server`, basic auth, proxied artifacts; and its failures."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE, until

PASSWORD = "hunter2/with:signs"  # needs quoting in an address
QUOTED = "hunter2%2Fwith%3Asigns"


@dataclass(frozen=True)
class Server:
    """Addresses; none holds a password."""

    port: int
    database_port: int

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def with_password(self, password: str = QUOTED, *, port: int | None = None) -> str:
        return f"http://admin:{password}@127.0.0.1:{port or self.port}"

    def database(self, password: str = QUOTED, *, name: str = "direct") -> str:
        return f"postgresql://tester:{password}@127.0.0.1:{self.database_port}/{name}"


def postgres_binaries() -> Path | None:
    """The folder of initdb and pg_ctl."""
    initdb = shutil.which("initdb")
    places = [Path(initdb).resolve().parent] if initdb else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((p for p in places if (p / "pg_ctl").exists()), None)


def free_port() -> int:
    """A port at which nobody listens, to be taken later.

    Not one that the system names: those it gives to any connection that is made meanwhile. Each worker of the tests has
    ports of its own, and names none twice.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = _PORTS.start + 1000 * (worker % 10) + (os.getpid() + next(_named)) % 1000
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


_PORTS = range(20_000, 30_000)  # below those that Linux gives to connections, from 32,768 on
_named = itertools.count()


@contextmanager
def databases() -> Iterator[Server]:
    """Start PostgreSQL alone on loopback, and end it."""
    server = Server(free_port(), free_port())
    with tempfile.TemporaryDirectory(prefix="rbptrack-server-") as name, _postgres(Path(name), server.database_port):
        _sql(server, "create database direct")
        yield server


@contextmanager
def running() -> Iterator[Server]:
    """Start all of it on loopback, and end all of it."""
    server = Server(free_port(), free_port())
    with tempfile.TemporaryDirectory(prefix="rbptrack-server-") as name, _postgres(Path(name), server.database_port):
        for database in ("tracking", "direct"):
            _sql(server, f"create database {database}")
        told = {"MLFLOW_AUTH_CONFIG_PATH": str(_auth_config(Path(name))), "MLFLOW_FLASK_SERVER_SECRET_KEY": "tests"}
        words = ["--app-name", "basic-auth"]
        process = start_mlflow(Path(name), server.database(name="tracking"), server.port, *words, **told)
        try:
            yield server
        finally:
            end(process)


def start_mlflow(folder: Path, store: str, port: int, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start `mlflow server` on loopback, with its log and, unless words say otherwise, its artifacts in a folder."""
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", store, "--artifacts-destination", str(folder / "artifacts"), *words]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return start(command, f"http://127.0.0.1:{port}/health", folder / "mlflow.log", **quiet, **environment)


OTHERS_WARN = {"PYTHONWARNINGS": "default"}
"""Warnings are errors in our programs; a server, a browser or a cluster is others', and may warn."""


def start(command: Sequence[str], address: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start a server in its log's folder and wait until it answers at an address; fails with its log if it ends."""
    with log.open("ab") as said:
        process = subprocess.Popen(
            command,
            env=os.environ | OTHERS_WARN | environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
            cwd=log.parent,
        )

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(OSError):
            with suppress(urllib.error.HTTPError):  # what asks for a key answers
                urllib.request.urlopen(address, timeout=60).close()
            return True
        return False

    try:
        until(answers, log.stem)
    except BaseException:
        end(process)
        raise
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """End a server and its workers, as when its machine loses power."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)


def _auth_config(folder: Path) -> Path:
    path = folder / "auth.ini"
    path.write_text(
        f"[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///{folder}/auth.db\nadmin_username = admin\n"
        f"admin_password = {PASSWORD}\nauthorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        "auth_cache_ttl_seconds = 3600\n"  # else each request costs the server 80 ms
    )
    return path


@contextmanager
def _postgres(folder: Path, port: int) -> Iterator[None]:
    binaries = postgres_binaries()
    assert binaries
    place = folder / "postgres"
    place.mkdir(exist_ok=True)
    (place / "password").write_text(PASSWORD)
    prefix: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(place, "postgres", "postgres")
        folder.chmod(0o755)
        shutil.chown(place / "password", "postgres")
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def run(*command: object) -> None:
        words = [*prefix, *map(str, command)]
        subprocess.run(words, check=True, cwd=place, stdout=subprocess.DEVNULL, timeout=PATIENCE)

    data = place / "data"
    if not data.exists():
        users = ["-U", "tester", "-A", "scram-sha-256", "--pwfile", place / "password"]
        run(binaries / "initdb", "-D", data, *users, "-N")
    settings = f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200"
    control = (binaries / "pg_ctl", "-D", data, "-w", "-t", PATIENCE)  # else it gives up after a minute
    run(*control, "-l", place / "log", "-o", settings, "start")
    try:
        yield
    finally:
        run(*control, "-m", "immediate", "stop")


def _sql(server: Server, statement: str) -> None:
    import psycopg

    with psycopg.connect(server.database(name="postgres"), autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]


class Door:
    """A port that leads to the server, and can be closed (nobody answers) or held (accepts, and says nothing).

    Attributes:
        met: connections since it was opened.

    """

    def __init__(self, target: int) -> None:
        self._target, self.port = target, free_port()
        self._held = False
        self._listener: socket.socket | None = None
        self._open: list[socket.socket] = []
        self.open()

    def open(self, *, held: bool = False) -> None:
        self.close()
        self._held, self.met = held, 0
        self._listener = socket.create_server(("127.0.0.1", self.port), reuse_port=True)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        for each in [self._listener, *self._open]:
            if each is not None:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
        self._listener, self._open = None, []

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.met += 1
                self._open.append(client)
                if not self._held:
                    server = socket.create_connection(("127.0.0.1", self._target))
                    self._open.append(server)
                    for pair in ((client, server), (server, client)):
                        threading.Thread(target=self._pump, args=(pair,), daemon=True).start()

    @staticmethod
    def _pump(pair: Sequence[socket.socket]) -> None:
        source, target = pair
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
