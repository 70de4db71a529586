"""Run the tests of numbers as other processors and other versions of the libraries would run them.

    python -m tools.processors [NAME ...]      # part of `make test-all`; about four minutes of processor time each

torch and OpenBLAS contain kernels for several processors, which add numbers in different orders. By default they choose
a kernel for the processor that they find. This tool tells them which kernel to use. It also installs the lowest and the
newest versions of pandas, NumPy, SciPy and lmfit that pyproject.toml permits, each set into an environment in build/.

In each case the tool runs the tests of stats, analysis, plugins and scoring, and then the demo. The analyzers must
print the same lines as with this processor's kernels and the installed versions. The exit code is 1 if a test or a demo
fails or a line differs.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import platform
import re
import shutil
import site
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("tests/stats", "tests/analysis", "tests/plugins", "tests/scoring")
LIBRARIES = ("pandas", "numpy", "scipy", "lmfit")
CHOSEN_BY = ("OPENBLAS_", "ATEN_", "MKL_", "OMP_")  # prefixes of variables that choose kernels; they are not inherited

PRINT_ALL = """
from rbptrack.discovery import ANALYZERS, find
from rbptrack.reporting import analyse, show
from rbptrack.tracking import Store
for analysis in analyse(Store().runs(), [analyzer() for analyzer in find(ANALYZERS).chosen([])], processes=1):
    print("#", analysis.name)
    show(analysis)
"""


@dataclass(frozen=True)
class Case:
    """A processor, or a set of versions of the libraries.

    Attributes:
        name: the name of the case on the command line and in the output.
        variables: the environment variables that tell torch and OpenBLAS which kernels to use.
        needs: the flags that the processor must have, as Linux names them.
        versions: `lowest` or `newest` versions of the libraries; empty for the installed versions.

    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    versions: str = ""


def kernels(torch: str, openblas: str, threads: int) -> dict[str, str]:
    """Return the environment variables that choose the kernels of torch and OpenBLAS and the number of threads."""
    number = str(threads)
    chosen = {"OMP_NUM_THREADS": number, "OPENBLAS_NUM_THREADS": number}
    return chosen | {"ATEN_CPU_CAPABILITY": torch, "OPENBLAS_CORETYPE": openblas}


ONE_THREAD = {"OMP_NUM_THREADS": "1"}
CASES = (
    Case("native", ONE_THREAD),
    Case("prescott", kernels("default", "Prescott", 1), frozenset({"pni"})),
    Case("haswell", kernels("avx2", "Haswell", 2), frozenset({"avx2", "fma"})),
    Case("skylakex", kernels("avx512", "SkylakeX", 2), frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})),
    Case("lowest", ONE_THREAD, versions="lowest"),
    Case("newest", ONE_THREAD, versions="newest"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases that the command line names, or all cases. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [case.name for case in CASES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"cases to run, all by default: {', '.join(names)}")
    parser.add_argument("--without-demo", action="store_true", help="run only the tests")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(names)
    if unknown:
        parser.error(f"There is no case {', '.join(sorted(unknown))}. The cases are {', '.join(names)}.")
    failed = False
    expected = None if options.without_demo else demo(CASES[0], Path(sys.executable))
    if expected is None and not options.without_demo:
        return 1
    for case in CASES:
        if options.names and case.name not in options.names:
            continue
        lacking = case.needs - flags()
        if lacking:
            print(f"{case.name}: left out, because this processor lacks {', '.join(sorted(lacking))}", flush=True)
            continue
        python = environment(case.versions) if case.versions else Path(sys.executable)
        print(f"{case.name}: {versions_of(python)} {dict(case.variables)}", flush=True)
        tests = run(case, [python, "-m", "pytest", "-p", "no:cacheprovider", *TESTS], ROOT)
        failed = failed or tests.returncode != 0
        print(tests.stdout if tests.returncode else tests.stdout.splitlines()[-1], flush=True)
        if expected is None or case is CASES[0]:
            continue
        printed = demo(case, python)
        if printed is None:
            failed = True
            continue
        different = list(difflib.unified_diff(expected, printed, CASES[0].name, case.name, n=0, lineterm=""))
        failed = failed or bool(different)
        print(*different or [f"the demo prints the same {len(printed)} lines"], sep="\n", flush=True)
    return 1 if failed else 0


def flags() -> set[str]:
    """Return the flags of this processor. The set is empty if the machine is not x86-64 or does not run Linux."""
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpuinfo.exists():
        return set()
    match = re.search(r"^flags\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE)
    return set(match[1].split()) if match else set()


def requirements(versions: str) -> list[str]:
    """Return the requirements that pip installs for the `lowest` or the `newest` versions.

    For example, `numpy>=2.0` in pyproject.toml gives `numpy==2.0.*` as the lowest version.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    permitted = [text for text in project["dependencies"] if re.split(r"[^\w-]", text)[0] in LIBRARIES]
    if versions == "newest":
        return permitted
    lowest = []
    for text in permitted:
        name, least = text.split(",")[0].split(">=")
        lowest.append(f"{name}=={least}" if least.count(".") > 1 else f"{name}=={least}.*")
    return lowest


def environment(versions: str) -> Path:
    """Make an environment in build/ with these versions. Returns its Python.

    All other packages come from the environment of this process. An environment that is complete is used again, unless
    pyproject.toml has changed.
    """
    folder = ROOT / "build" / versions
    python = folder / "bin" / "python"
    complete = folder / "made-for.sha256"  # written last: the hash of the pyproject.toml that it was made for
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not complete.exists() or complete.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, *requirements(versions)], check=True)
        packages = subprocess.run(
            [python, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
        )
        Path(packages.stdout.strip(), "others.pth").write_text("\n".join(site.getsitepackages()) + "\n")
        complete.write_text(wanted)
    return python


def versions_of(python: Path) -> str:
    """Return the versions of the libraries that a Python imports, as one line."""
    code = f"from importlib.metadata import version; print(*[f'{{n}} {{version(n)}}' for n in {LIBRARIES}], sep=', ')"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def run(case: Case, words: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the variables of a case. Standard error is part of the output."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(CHOSEN_BY)}
    return subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=inherited | dict(case.variables) | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def demo(case: Case, python: Path) -> list[str] | None:
    """Run the demo, and return the lines that all analyzers print. If a command fails, print why and return None."""
    wide = replace(case, variables={**case.variables, "COLUMNS": "400"})  # wide enough for all columns
    with tempfile.TemporaryDirectory() as name:
        done = run(case, [python, "-m", "rbptrack", "demo", "analyzers=[]"], Path(name))
        if done.returncode == 0:
            done = run(wide, [python, "-W", "ignore", "-c", PRINT_ALL], Path(name))
    if done.returncode:
        print(f"{case.name}: the demo failed with exit code {done.returncode}:", done.stdout, sep="\n", flush=True)
        return None
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
