"""Starts tracking servers on this machine, and a TCP proxy that can cut the connection to one."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "hunter2/with:signs"  # its signs must be quoted in an address
QUOTED = "hunter2%2Fwith%3Asigns"
_PATIENCE = 300  # seconds after which a command or an unanswered address counts as hanging


@dataclass(frozen=True)
class Server:
    """The ports of `mlflow server` and of its PostgreSQL on this machine, and the folder with their files."""

    port: int
    database_port: int
    folder: Path

    @property
    def artifacts(self) -> Path:
        """The folder in which the server keeps artifacts."""
        return self.folder / "artifacts"

    @property
    def log(self) -> Path:
        return self.folder / "mlflow.log"

    def count_requests(self) -> int:
        """Return the number of requests that the server has answered."""
        return self.log.read_text().count(' HTTP/1.1" ')

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def with_password(self, password: str) -> str:
        return f"http://admin:{password}@127.0.0.1:{self.port}"

    def database(self, password: str = QUOTED, *, name: str = "direct") -> str:
        return f"postgresql://tester:{password}@127.0.0.1:{self.database_port}/{name}"


def postgres_binaries() -> Path | None:
    """Return the folder of PostgreSQL's programs initdb and pg_ctl; None if PostgreSQL is not installed."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if initdb := shutil.which("initdb"):
        places.insert(0, Path(initdb).resolve().parent)
    return next((place for place in places if (place / "pg_ctl").exists()), None)


def free_port() -> int:
    """Return a TCP port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def team_server() -> Iterator[Server]:
    """Start `mlflow server` with basic authentication and proxied artifacts on PostgreSQL; stop both at the end.

    PostgreSQL has two databases: `tracking`, which the server uses, and `direct`, which is empty.
    """
    with tempfile.TemporaryDirectory(prefix="rbptrack-server-") as name, ExitStack() as stack:
        server = Server(free_port(), free_port(), Path(name))
        stack.enter_context(_postgres(Path(name), server.database_port))
        for database in ("tracking", "direct"):
            _sql(server, f"create database {database}")
        config = Path(name, "auth.ini")
        config.write_text(
            f"[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///{name}/auth.db\nadmin_username = admin\n"
            f"admin_password = {PASSWORD}\nauth_cache_ttl_seconds = 3600\n"
            "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        )
        words = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1"]
        words += ["--port", str(server.port), "--backend-store-uri", server.database(name="tracking")]
        words += ["--artifacts-destination", f"{name}/artifacts", "--app-name", "basic-auth"]
        environment = os.environ | {
            "MLFLOW_AUTH_CONFIG_PATH": str(config),
            "MLFLOW_FLASK_SERVER_SECRET_KEY": "tests",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "PYTHONWARNINGS": "default",
        }
        with server.log.open("ab") as output:
            process = subprocess.Popen(
                words, env=environment, stdout=output, stderr=output, start_new_session=True, cwd=name
            )
        try:
            _wait_until_it_answers(process, f"{server.uri}/health", server.log)
            yield server
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(_PATIENCE)


@contextmanager
def plain_server(folder: Path, port: int) -> Iterator[None]:
    """Start `mlflow server` without authentication on a SQLite file in a folder, and kill it at the end."""
    words = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port)]
    words += ["--backend-store-uri", f"sqlite:///{folder}/served.db", "--artifacts-destination", f"{folder}/artifacts"]
    environment = os.environ | {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONWARNINGS": "default",
    }
    log = folder / "server.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _wait_until_it_answers(process, f"http://127.0.0.1:{port}/health", log)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_PATIENCE)


def _wait_until_it_answers(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Wait until a server answers at an address. Fails with the content of its log if it ends or does not answer."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(address, timeout=60).close()
            return
        except urllib.error.HTTPError:  # the server asks for a password, so it runs
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@contextmanager
def _postgres(folder: Path, port: int) -> Iterator[None]:
    """Start PostgreSQL with the user `tester` and data in a folder, and stop it at the end."""
    binaries = postgres_binaries()
    assert binaries
    place = folder / "postgres"
    place.mkdir()
    (place / "password").write_text(PASSWORD)
    prefix: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        folder.chmod(0o755)
        for path in (place, place / "password"):
            shutil.chown(path, "postgres", "postgres")
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def run(*words: object) -> None:
        command = [*prefix, *map(str, words)]
        subprocess.run(command, check=True, cwd=place, stdout=subprocess.DEVNULL, timeout=_PATIENCE)

    data = place / "data"
    password = place / "password"
    run(binaries / "initdb", "-D", data, "-U", "tester", "-A", "scram-sha-256", "--pwfile", password, "-N")
    settings = f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = (binaries / "pg_ctl", "-D", data, "-w", "-t", _PATIENCE)
    run(*control, "-l", place / "log", "-o", settings, "start")
    try:
        yield
    finally:
        run(*control, "-m", "immediate", "stop")


def _sql(server: Server, statement: str) -> None:
    import psycopg

    with psycopg.connect(server.database(name="postgres"), autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]


class TcpProxy:
    """A TCP port that forwards to a server on this machine. While the proxy is closed, nobody answers at the port.

    Args:
        target: the port of the server.

    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._lock = threading.Lock()  # protects _is_open and _sockets
        self._is_open = False
        self._sockets: list[socket.socket] = []
        self.open()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), reuse_port=True)
        with self._lock:
            self._is_open = True
            self._sockets = [listener]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            for connection in self._sockets:
                _shut_down(connection)

    def _accept(self, listener: socket.socket) -> None:
        """Forward every connection to the server until the proxy is closed."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # the proxy was closed
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # the server refused this connection, but it may accept the next
                client.close()
                continue
            with self._lock:
                if not self._is_open:
                    _shut_down(client)
                    _shut_down(server)
                    return
                self._sockets += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=_forward, args=ends, daemon=True).start()


def _shut_down(connection: socket.socket) -> None:
    """Shut down and close a socket. A thread that waits for it gets an OSError."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _forward(source: socket.socket, target: socket.socket) -> None:
    """Send everything that arrives at one socket to another, until the first is closed."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
