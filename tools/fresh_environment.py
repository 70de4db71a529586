"""Install the wheel into a fresh virtual environment, and use the program there as a user does.

    python -m tools.fresh_environment [--python PYTHON]      # `make fresh`; a few minutes

The tool builds sdist and wheel from the tracked files. It checks that both contain all files of `rbptrack/`, `conf/`
and `plugins/`. It installs the wheel without extras, with its dependencies at the versions of constraints.txt. Then it
measures three models on a few documents, runs the commands and the analyzer of the README, exports measurements and
imports them again, and follows the tutorials. The example of quantised models comes last, because it needs an extra,
torchao, which the tool installs before it.

Every module of rbptrack must be imported from the new environment. If anything fails, the tool prints the reason and
ends with exit code 1.
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

from tools import commands
from tools.tutorials import pages

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("rbptrack/", "conf/", "plugins/")
DEMO = ("demo", "model=nano/6k,nano/15k,nano/38k", "dataset.documents=10")

WATCH_MODULE = """
import atexit, sys

def note():
    modules = [m for name, m in list(sys.modules.items()) if name.split(".")[0] == "rbptrack"]
    with open({log!r}, "a") as log:
        log.writelines(f"{{m.__file__}}\\n" for m in modules if getattr(m, "__file__", None))

atexit.register(note)
"""
"""The source of a module that every Python process of the environment imports.

When a process ends, the module writes to a log which modules of rbptrack the process imported.
"""


class Failed(Exception):
    """Raised if the installed package does not work as documented."""


def run_command(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a command in a folder, and return what it writes on standard output and standard error.

    The command inherits the environment variables of this process, except those that would change what Python, MLflow,
    rbptrack or Hydra do. `variables` are added. Raises Failed if the exit code is not 0, or if the command takes longer
    than an hour.
    """
    left_out = ("PYTHON", "MLFLOW_", "RBPTRACK_", "HYDRA_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    process = commands.run_command(command, folder, {**inherited, **(variables or {})})
    if process.returncode:
        raise Failed(f"{' '.join(map(str, command))}: exit code {process.returncode}\n{process.stdout}")
    return process.stdout


def tracked_files() -> list[str]:
    """List the files that git tracks, and new files that it does not ignore."""
    names = run_command(["git", "ls-files", "-co", "--exclude-standard"], ROOT).splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def build_distributions(folder: Path) -> Path:
    """Build an sdist of the tracked files and a wheel from that sdist in `folder`/dist. Returns the path of the wheel.

    Raises Failed if the build fails, or if a distribution does not have exactly the tracked files.
    """
    source = folder / "source"
    for name in tracked_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    run_command([sys.executable, "-m", "build", "--quiet", "--outdir", folder / "dist", source], folder)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        check_contents("sdist", [name.partition("/")[2] for name in archive.getnames()])
    (wheel,) = (folder / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    check_contents("wheel", [re.sub("^rbptrack/(conf|plugins)/", r"\1/", name) for name in names])
    return wheel


def check_contents(distribution: str, names: Iterable[str]) -> None:
    """Raise Failed unless a distribution has all tracked files of the `SHIPPED` folders and no others.

    Args:
        distribution: `sdist` or `wheel`, for messages.
        names: its files, named as in the repository.

    """
    shipped = {name for name in names if name.startswith(SHIPPED) and (ROOT / name).suffix}
    expected = {name for name in tracked_files() if name.startswith(SHIPPED)}
    missing = sorted(expected - set(names))
    if missing:
        raise Failed(f"the {distribution} lacks {len(missing)} of {len(expected)} files: {', '.join(missing[:10])}")
    surplus = sorted(shipped - expected)
    if surplus:
        raise Failed(f"the {distribution} has {len(surplus)} files that git does not track: {', '.join(surplus[:10])}")


class Environment:
    """A fresh virtual environment and a working folder.

    Attributes:
        folder: the folder in which commands run.
        programs: the folder with the commands of the environment.
        variables: the variables of its processes. They set separate caches and turn off the Hub.

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
        run_command([interpreter, "-m", "venv", self._venv], place)
        (packages,) = self._venv.glob("lib/python*/site-packages")
        (packages / "watch_modules.py").write_text(WATCH_MODULE.format(log=str(self._loaded)))
        (packages / "watch_modules.pth").write_text("import watch_modules\n")

    def install(self, wheel: Path, extra: str = "") -> None:
        """Install the wheel with its dependencies, and with those of an extra if one is named."""
        pip = (self.programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        package = f"{wheel}[{extra}]" if extra else wheel
        run_command([*pip, "-c", ROOT / "constraints.txt", package], self.folder)

    def rbptrack(self, *words: str, prints: str) -> None:
        """Run the installed program and check what it prints.

        Args:
            words: the arguments of the program.
            prints: a regular expression that the output must contain.

        Raises:
            Failed: the program fails, its output does not match `prints`, or it imports a module of rbptrack from
                outside the environment.

        """
        began = time.monotonic()
        text = run_command([self.programs / "rbptrack", *words], self.folder, self.variables)
        command_line = " ".join(["rbptrack", *words])
        if not re.search(prints, text):
            raise Failed(f"{command_line} does not print {prints!r}:\n{text}")
        self.check_modules(command_line)
        print(f"  {command_line}  {time.monotonic() - began:.0f} s", flush=True)

    def check_modules(self, commands: str) -> None:
        """Check that all modules of rbptrack that were imported since the last check lie in the environment.

        Raises Failed if a module does not, or if no module was imported. `commands` names the commands that ran.
        """
        modules = set(self._loaded.read_text().splitlines()) if self._loaded.exists() else set()
        self._loaded.unlink(missing_ok=True)
        if not modules:
            raise Failed(f"{commands} imports no module of rbptrack")
        elsewhere = sorted(name for name in modules if not Path(name).is_relative_to(self._venv))
        if elsewhere:
            outside = ", ".join(elsewhere[:5])
            raise Failed(f"{commands} imports {len(elsewhere)} modules from outside the environment: {outside}")


def run_readme_commands(environment: Environment) -> None:
    """Run the commands of the README in the environment. Raises Failed if one does not work."""
    folder = environment.folder
    environment.rbptrack("--version", prints=r"\d+\.\d+")
    environment.rbptrack(*DEMO, prints=r"\[6/6\]")
    unexpected = {path.name for path in folder.iterdir()} - {"mlflow.db", "mlruns"}
    if unexpected:
        raise Failed(f"the demo leaves {', '.join(sorted(unexpected))} in the working folder")
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
    other_store = ("--tracking-uri", f"sqlite:///{folder.parent}/other.db")
    environment.rbptrack("import", "all.zip", *other_store, prints="6")
    environment.rbptrack("list", *other_store, prints=r"nano-38k +stdlib")
    environment.rbptrack("verify", *other_store, prints="no measurement is damaged")


def run_pages(environment: Environment, chosen: Sequence[Path]) -> None:
    """Run the commands of pages with the installed program. Raises Failed if an output differs from its page."""
    python = environment.programs / "python"
    folder = environment.folder / "tutorials"
    command: tuple[str | Path, ...] = (python, "-m", "tools.tutorials", "--folder", folder, *chosen)
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise Failed("a command printed something else than its page shows")
    environment.check_modules("the tutorials")


def main() -> int:
    """Build the wheel, install it and use it. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="Python interpreter of the new environment")
    parser.add_argument(
        "--without-tutorials", action="store_true", help="skip the tutorials, which take most of the time"
    )
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fresh-") as temporary:
        place = Path(temporary).resolve()
        try:
            wheel = build_distributions(place)
            print(f"{wheel.name}: built in {time.monotonic() - began:.0f} s", flush=True)
            environment = Environment(place, options.python)
            environment.install(wheel)
            print(f"installed with its dependencies, {time.monotonic() - began:.0f} s", flush=True)
            run_readme_commands(environment)
            if not options.without_tutorials:
                quantised = [page for page in pages() if page.parent.name == "quantised"]
                run_pages(environment, [page for page in pages() if page not in quantised])
                environment.install(wheel, "torchao")
                run_pages(environment, quantised)
        except Failed as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print(f"{wheel.name} works in a fresh environment, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
