"""Install what others get, the wheel or the sdist, into a fresh virtual environment, and use it there as they would.

    python -m tools.fresh_environment [--sdist] [--python PYTHON] [--constraints FILE]

Outside the checkout: builds from the tracked files, checks that the wheel holds all of `rbptrack/`, `conf/` and
`plugins/`, installs it with its dependencies and no extras, follows the tutorials (tools/tutorials.py: the demo, a sweep of
one's own models, figures, export), and runs `analyze` with the README's analyzer, `report`, `plugins` and the example
package. Every `rbptrack*` module that any of these processes loads must lie in that environment. Exit code 1, and the
reason, if anything fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools import tutorials

ROOT = Path(__file__).resolve().parent.parent
PLACES = {"rbptrack/conf/": "conf/", "rbptrack/plugins/": "plugins/", "rbptrack/": "rbptrack/"}
"""Folders of the wheel, and where they stand in the repository."""

SWEEP = ("demo", "model=nano/6k,nano/15k,nano/38k", "dataset.documents=10")
WATCH = """
import atexit, os, sys

def note():
    modules = [m for name, m in list(sys.modules.items()) if name.split(".")[0].startswith("rbptrack")]
    with open(os.environ["RBPTRACK_LOADED"], "a") as log:
        log.writelines(f"{m.__file__}\\n" for m in modules if getattr(m, "__file__", None))

atexit.register(note)
"""
"""A sitecustomize module: each process writes down, at its end, where its rbptrack* modules lie."""


class Failed(Exception):
    """Something does not work for people who install the package."""


def output(command: Sequence[str | Path], *, cwd: Path, code: int = 0, **variables: str) -> str:
    """Run a command and return what it wrote; Failed if it ends with another code."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MLFLOW_", "RBPTRACK_", "HYDRA_"))}
    done = subprocess.run(command, cwd=cwd, env=kept | variables, capture_output=True, text=True, check=False)
    if done.returncode != code:
        words = " ".join(map(str, command))
        raise Failed(f"{words}: exit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def tracked_files() -> list[str]:
    """Return the names of the files that are, or would be, committed."""
    names = output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT).splitlines()
    return [name for name in names if (ROOT / name).exists()]


def build(folder: Path, *, sdist: bool) -> Path:
    """Build the wheel or the sdist from a copy of the tracked files; return its path."""
    source = folder / "source"
    for name in tracked_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    kind, pattern = ("--sdist", "*.tar.gz") if sdist else ("--wheel", "*.whl")
    output([sys.executable, "-m", "build", "--quiet", kind, "--outdir", folder / "dist", source], cwd=folder)
    (built,) = (folder / "dist").glob(pattern)
    return built


def check_contents(names: Sequence[str]) -> None:
    """Compare the files of a wheel with the repository's; Failed for any that is missing or not tracked."""
    held = set()
    for name in names:
        prefix = next((prefix for prefix in PLACES if name.startswith(prefix)), None)
        if prefix:
            held.add(PLACES[prefix] + name.removeprefix(prefix))
    expected = {name for name in tracked_files() if name.startswith(("rbptrack/", "conf/", "plugins/"))}
    if missing := sorted(expected - held):
        raise Failed(f"the wheel lacks {len(missing)} of {len(expected)} files: {', '.join(missing[:10])}")
    if surplus := sorted(held - expected):
        raise Failed(f"the wheel holds {len(surplus)} files that git does not track: {', '.join(surplus[:10])}")


class Environment:
    """A fresh virtual environment, and an empty folder to work in.

    Attributes:
        python: its interpreter.
        programs: the folder of its commands.
        folder: where commands run.
        watched: environment variables with which a process notes the modules that it loads.

    """

    def __init__(self, place: Path, interpreter: str) -> None:
        self._place = place / "environment"
        self.folder = place / "empty"
        self.programs = self._place / "bin"
        self.python = self.programs / "python"
        self._loaded = place / "loaded.txt"
        self.folder.mkdir()
        watch = place / "watch"
        watch.mkdir()
        (watch / "sitecustomize.py").write_text(WATCH)
        self.watched = {"PYTHONPATH": str(watch), "RBPTRACK_LOADED": str(self._loaded)}
        output([interpreter, "-m", "venv", self._place], cwd=place)

    def install(self, *what: str | Path) -> None:
        """Install packages with pip."""
        output([self.python, "-m", "pip", "install", "--quiet", *what], cwd=self.folder)

    def versions(self, *packages: str) -> dict[str, str]:
        """Return the versions of installed packages."""
        code = "import sys; from importlib.metadata import version\nfor name in sys.argv[1:]: print(version(name))"
        lines = output([self.python, "-c", code, *packages], cwd=self.folder).split()
        return dict(zip(packages, lines, strict=True))

    def rbptrack(self, *words: str, expected: str, code: int = 0) -> None:
        """Run the installed command; Failed if its output lacks the expected text, or it loads a module from elsewhere."""
        self._loaded.unlink(missing_ok=True)
        began = time.monotonic()
        variables = self.watched | {
            "RBPTRACK_CACHE": str(self._place.with_name("cache")),
            "HF_HOME": str(self._place.with_name("hub")),
            "HF_HUB_OFFLINE": "1",
        }
        text = output([self.programs / "rbptrack", *words], cwd=self.folder, code=code, **variables)
        shown = " ".join(["rbptrack", *words])
        if not re.search(expected, text):
            raise Failed(f"{shown} does not say {expected!r}:\n{text}")
        print(f"  {shown}: {self.loaded(shown)} modules, {time.monotonic() - began:.0f} s", flush=True)

    def loaded(self, shown: str) -> int:
        """Count the modules of rbptrack that were loaded since the last command; Failed if one lies elsewhere, or none was."""
        modules = set(self._loaded.read_text().split("\n")) - {""} if self._loaded.exists() else set()
        if not modules:
            raise Failed(f"{shown}: no module of rbptrack was seen")
        allowed = (self._place, self.folder)  # the folder: the user's own plugins/
        if elsewhere := sorted(name for name in modules if not any(map(Path(name).is_relative_to, allowed))):
            raise Failed(f"{shown} loads {len(elsewhere)} modules from elsewhere: {', '.join(elsewhere[:5])}")
        return len(modules)


def learn(environment: Environment) -> None:
    """Follow the tutorials, and go on in the first one's folder; Failed if a command does not print what its page says."""
    for page in tutorials.PAGES:
        try:
            tutorials.run(page, environment.folder, programs=environment.programs, variables=environment.watched)
        except tutorials.Different as error:
            raise Failed(f"{page.name}: {error}") from None
        print(f"  {page.name}: {environment.loaded(page.name)} modules", flush=True)
    environment.folder /= tutorials.PAGES[0].stem


def measure(environment: Environment) -> None:
    """Measure with three of the demo's models on a few documents."""
    environment.rbptrack(*SWEEP, expected="6 measured")


def use(environment: Environment) -> None:
    """Do what somebody does who has installed the package, where something is measured; Failed if a step does not work."""
    environment.rbptrack("--version", expected=r"rbptrack \d")
    if dropped := {path.name for path in environment.folder.iterdir()} - {"mlruns"}:
        raise Failed(f"the demo leaves {', '.join(sorted(dropped))} in the working folder")
    environment.rbptrack("list", expected=r"nano-38k +stdlib")
    (analyzer,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (environment.folder / "plugins").mkdir()
    (environment.folder / "plugins/best.py").write_text(analyzer)
    environment.rbptrack("analyze", "best", expected=r"pydocs +nano-\w+")
    environment.rbptrack("plugins", expected=r"best  \(.*plugins/best\.py\)")
    environment.rbptrack("report", "out=report.html", expected="report +report.html")
    package = environment.folder.with_name("example_package")  # a copy: pip leaves a folder `build` in the sources
    shutil.copytree(ROOT / "tests/example_package", package)
    environment.install("--no-deps", package)
    environment.rbptrack(
        "plugins", expected=r"ranking  \(.*rbptrack-example", code=1
    )  # one of its entry points is broken
    environment.rbptrack("model=tiny/*", "dataset.documents=3", "analyzers=[ranking]", expected="2 measured")


def main() -> int:
    """Build, install and use; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sdist", action="store_true", help="install from the source distribution")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the new environment")
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt", help="versions of dependencies")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fresh-") as temporary:
        place, began = Path(temporary), time.monotonic()
        try:
            built = build(place, sdist=options.sdist)
            if not options.sdist:
                check_contents(zipfile.ZipFile(built).namelist())
            print(f"{built.name}: built in {time.monotonic() - began:.0f} s", flush=True)
            environment = Environment(place, options.python)
            environment.install("-c", options.constraints.absolute(), built)
            print(f"installed with its dependencies, {time.monotonic() - began:.0f} s", flush=True)
            learn(environment)
            use(environment)
        except Failed as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print(f"{built.name} works in a fresh environment, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
