"""Run the tests of numbers as other processors and other versions of the libraries would run them.

    python -m tools.processors [NAME ...]      # part of `make test-all`; about four minutes of processor time each

torch and OpenBLAS hold kernels for several processors and choose by what they find. Here they are told which to take,
so that sums are added in other orders. The lowest and the newest versions of pandas, NumPy, SciPy and lmfit
that pyproject.toml permits are installed into environments of their own in build/. In each case the tests of stats,
analysis, plugins and scoring run, then the demo. All that its analyzers print must equal what they print with this
processor's own kernels and the installed versions. Exit code 1 if a test fails or a printed line differs.
"""

from __future__ import annotations

import argparse
import difflib
import os
import platform
import re
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
CHOSEN_BY = ("OPENBLAS_", "ATEN_", "MKL_", "OMP_")  # variables of this machine that would choose for us

PRINT_ALL = """
from rbptrack.discovery import ANALYZERS, find
from rbptrack.reporting import analyse, show
from rbptrack.tracking import Store
for outcome in analyse(Store().runs(), [analyzer() for analyzer in find(ANALYZERS).chosen([])], processes=1):
    print("#", outcome.name)
    show(outcome)
"""


@dataclass(frozen=True)
class Case:
    """A processor or a set of versions.

    Attributes:
        name: for the table.
        variables: what tells torch and OpenBLAS what to take.
        needs: flags of the processor, as Linux names them.
        versions: "lowest" or "newest" of the libraries; empty for those that are installed.

    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    versions: str = ""


def kernels(torch: str, openblas: str, threads: int) -> dict[str, str]:
    """The variables that choose kernels and the number of threads."""
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
    """Run the cases that the command line names, or all; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [case.name for case in CASES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"cases: {', '.join(names)}; all without one")
    parser.add_argument("--without-demo", action="store_true", help="the tests alone")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(names)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}. Cases: {', '.join(names)}")
    failed = False
    expected = [] if options.without_demo else demo(CASES[0], Path(sys.executable))
    for case in CASES:
        if options.names and case.name not in options.names:
            continue
        lacking = case.needs - flags()
        if lacking:
            print(f"{case.name}: left out, as this processor lacks {', '.join(sorted(lacking))}", flush=True)
            continue
        python = environment(case.versions) if case.versions else Path(sys.executable)
        print(f"{case.name}: {versions_of(python)} {dict(case.variables)}", flush=True)
        tests = run(case, [python, "-m", "pytest", "-p", "no:cacheprovider", *TESTS], ROOT)
        failed = failed or tests.returncode != 0
        print(tests.stdout if tests.returncode else tests.stdout.splitlines()[-1], flush=True)
        if options.without_demo or case is CASES[0]:
            continue
        printed = demo(case, python)
        different = list(difflib.unified_diff(expected, printed, CASES[0].name, case.name, n=0, lineterm=""))
        failed = failed or bool(different)
        print(*different or [f"the demo prints the same {len(printed)} lines"], sep="\n", flush=True)
    return 1 if failed else 0


def flags() -> set[str]:
    """The flags of this processor; none if it is no x86 on Linux."""
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpuinfo.exists():
        return set()
    match = re.search(r"^flags\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE)
    return set(match[1].split()) if match else set()


def requirements(versions: str) -> list[str]:
    """What pip installs: `numpy==2.0.*` for the lowest that pyproject.toml permits of `numpy>=2.0`."""
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
    """The Python of an environment in build/ with these versions; all other packages are those of this one."""
    folder = ROOT / "build" / versions
    python = folder / "bin" / "python"
    if not python.exists():
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
        own = subprocess.run(
            [python, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
        )
        Path(own.stdout.strip(), "others.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return python


def versions_of(python: Path) -> str:
    """The versions of the libraries that a Python finds."""
    code = f"from importlib.metadata import version; print(*[f'{{n}} {{version(n)}}' for n in {LIBRARIES}], sep=', ')"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def run(case: Case, words: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as the case's processor would."""
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


def demo(case: Case, python: Path) -> list[str]:
    """The lines that all analyzers print about the demo's measurements; those of the error if it fails."""
    with tempfile.TemporaryDirectory() as name:
        measured = run(case, [python, "-m", "rbptrack", "demo", "analyzers=[]"], Path(name))
        if measured.returncode:
            return measured.stdout.splitlines()
        wide = replace(case, variables={**case.variables, "COLUMNS": "400"})  # so that no table leaves columns out
        return run(wide, [python, "-W", "ignore", "-c", PRINT_ALL], Path(name)).stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
