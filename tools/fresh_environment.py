"""Install the wheel into a fresh virtual environment, as others do, and use it there.

    python -m tools.fresh_environment [--python PYTHON]      # `make fresh`; a few minutes

Builds sdist and wheel from the tracked files, checks that the wheel holds all of `rbptrack/`, `conf/` and `plugins/`,
installs it with its dependencies at the versions of constraints.txt and no extras, measures three models on a few
documents, runs the README's commands and its analyzer, takes measurements out and in again, and follows the tutorials.
The example of quantised models comes last: it alone needs an extra, torchao, which is installed before it.
Nothing of rbptrack may be imported from anywhere but that environment. Exit code 1, and the reason, if anything fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tools.tutorials import pages

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("rbptrack/", "conf/", "plugins/")
PATIENCE = 1800.0  # seconds that a command is given
DEMO = ("demo", "model=nano/6k,nano/15k,nano/38k", "dataset.documents=10")

WATCH = """
import atexit, sys

def note():
    modules = [m for name, m in list(sys.modules.items()) if name.split(".")[0] == "rbptrack"]
    with open({log!r}, "a") as log:
        log.writelines(f"{{m.__file__}}\\n" for m in modules if getattr(m, "__file__", None))

atexit.register(note)
"""
"""A module that every process of the environment imports, which notes at its end where its modules of rbptrack lie."""


class Failed(Exception):
    """Something does not work for people who install the package."""


def output(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """What a command writes, standard error included.

    Raises:
        Failed: it ends with another code than 0, or not at all.

    """
    own = ("PYTHON", "MLFLOW_", "RBPTRACK_", "HYDRA_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    environment = {**kept, **(variables or {})}
    shown = " ".join(map(str, command))
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{shown}: not done after {PATIENCE:,.0f} s") from error
    if done.returncode:
        raise Failed(f"{shown}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def tracked_files() -> list[str]:
    """Names of the files that are, or would be, committed."""
    names = output(["git", "ls-files", "-co", "--exclude-standard"], ROOT).splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def build(folder: Path) -> Path:
    """Build an sdist of the tracked files, and the wheel from that sdist; gives the wheel."""
    source = folder / "source"
    for name in tracked_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    output([sys.executable, "-m", "build", "--quiet", "--outdir", folder / "dist", source], folder)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        check_contents("sdist", [name.partition("/")[2] for name in archive.getnames()])
    (wheel,) = (folder / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    check_contents("wheel", [re.sub("^rbptrack/(conf|plugins)/", r"\1/", name) for name in names])
    return wheel


def check_contents(what: str, names: Iterable[str]) -> None:
    """Compare the files of a distribution, named as in the repository, with those that git tracks.

    Raises:
        Failed: a file is missing, or one is not tracked.

    """
    held = {name for name in names if name.startswith(SHIPPED) and (ROOT / name).suffix}
    expected = {name for name in tracked_files() if name.startswith(SHIPPED)}
    missing = sorted(expected - set(names))
    if missing:
        raise Failed(f"the {what} lacks {len(missing)} of {len(expected)} files: {', '.join(missing[:10])}")
    surplus = sorted(held - expected)
    if surplus:
        raise Failed(f"the {what} holds {len(surplus)} files that git does not track: {', '.join(surplus[:10])}")


class Environment:
    """A fresh virtual environment, and a folder to work in.

    Attributes:
        folder: where commands run.
        programs: the folder of its commands.
        variables: of its processes: caches of its own, and no network.

    """

    def __init__(self, place: Path, interpreter: str) -> None:
        self._venv = place / "environment"
        self._loaded = place / "loaded.txt"
        self.folder = place / "work"
        self.folder.mkdir()
        self.programs = self._venv / "bin"
        self.variables = {
            "RBPTRACK_CACHE": str(place / "cache"),
            "HF_HOME": str(place / "hub"),
            "HF_HUB_OFFLINE": "1",
        }
        output([interpreter, "-m", "venv", self._venv], place)
        (packages,) = self._venv.glob("lib/python*/site-packages")
        (packages / "watch_modules.py").write_text(WATCH.format(log=str(self._loaded)))
        (packages / "watch_modules.pth").write_text("import watch_modules\n")

    def install(self, wheel: Path, extra: str = "") -> None:
        """Install the wheel with its dependencies, or add those of an extra to it."""
        pip = (self.programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        package = f"{wheel}[{extra}]" if extra else wheel
        output([*pip, "-c", ROOT / "constraints.txt", package], self.folder)

    def rbptrack(self, *words: str, prints: str) -> None:
        """Run the installed command.

        Raises:
            Failed: it fails, its output lacks the expected text, or it imports a module of rbptrack from elsewhere.

        """
        began = time.monotonic()
        text = output([self.programs / "rbptrack", *words], self.folder, self.variables)
        shown = " ".join(["rbptrack", *words])
        if not re.search(prints, text):
            raise Failed(f"{shown} does not print {prints!r}:\n{text}")
        self.check_modules(shown)
        print(f"  {shown}  {time.monotonic() - began:.0f} s", flush=True)

    def check_modules(self, shown: str) -> None:
        """Look where the modules lie that were imported since the last look.

        Raises:
            Failed: one lies outside the environment, or none was imported.

        """
        modules = set(self._loaded.read_text().splitlines()) if self._loaded.exists() else set()
        self._loaded.unlink(missing_ok=True)
        if not modules:
            raise Failed(f"{shown}: no module of rbptrack was seen")
        elsewhere = sorted(name for name in modules if not Path(name).is_relative_to(self._venv))
        if elsewhere:
            raise Failed(f"{shown} imports {len(elsewhere)} modules from elsewhere: {', '.join(elsewhere[:5])}")


def use(environment: Environment) -> None:
    """Do what somebody does who has installed the package; Failed where a step does not work."""
    folder = environment.folder
    environment.rbptrack("--version", prints=r"\d+\.\d+")
    environment.rbptrack(*DEMO, prints=r"\[6/6\]")
    dropped = {path.name for path in folder.iterdir()} - {"mlflow.db", "mlruns"}
    if dropped:
        raise Failed(f"the demo leaves {', '.join(sorted(dropped))} in the working folder")
    environment.rbptrack("list", prints=r"nano-38k +stdlib")
    environment.rbptrack("show", "nano-6k/stdlib", prints="fingerprint")
    environment.rbptrack("compare", "nano-6k/pydocs", "nano-15k/pydocs", prints="nano-15k")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (analyzer,) = [block for block in blocks if "Analyzer" in block]
    (folder / "plugins").mkdir()
    (folder / "plugins/best.py").write_text(analyzer)
    environment.rbptrack("plugins", prints="best")
    environment.rbptrack("analyze", "best", prints="nano-38k")
    environment.rbptrack("analyze", "k_law", prints="pydocs")
    environment.rbptrack("report", "--out", "report.html", prints=r"report\.html")
    environment.rbptrack("export", "all.zip", prints="6 measurements")
    other = ("--tracking-uri", f"sqlite:///{folder.parent}/other.db")
    environment.rbptrack("import", "all.zip", *other, prints="6")
    environment.rbptrack("list", *other, prints=r"nano-38k +stdlib")
    environment.rbptrack("verify", *other, prints="no measurement is damaged")


def learn(environment: Environment, wheel: Path) -> None:
    """Follow the tutorials and examples with the installed program; Failed where one prints something else."""
    quantised = [page for page in pages() if page.parent.name == "quantised"]
    follow(environment, [page for page in pages() if page not in quantised])
    environment.install(wheel, "torchao")
    follow(environment, quantised)


def follow(environment: Environment, chosen: Sequence[Path]) -> None:
    """Follow some pages; Failed where one prints something else."""
    python = environment.programs / "python"
    place = environment.folder / "tutorials"
    command: tuple[str | Path, ...] = (python, "-m", "tools.tutorials", "--folder", place, *chosen)
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise Failed("a page of the documentation does not say what happens")
    environment.check_modules("the tutorials")


def main() -> int:
    """Build, install and use; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the new environment")
    parser.add_argument("--without-tutorials", action="store_true", help="which take most of the time")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fresh-") as temporary:
        place = Path(temporary).resolve()
        try:
            wheel = build(place)
            print(f"{wheel.name}: built in {time.monotonic() - began:.0f} s", flush=True)
            environment = Environment(place, options.python)
            environment.install(wheel)
            print(f"installed with its dependencies, {time.monotonic() - began:.0f} s", flush=True)
            use(environment)
            if not options.without_tutorials:
                learn(environment, wheel)
        except Failed as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print(f"{wheel.name} works in a fresh environment, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
