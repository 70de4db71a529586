"""Run the tests of numbers as other processors and other versions of the libraries would run them.

    python -m tools.processors [NAME ...]      # part of `make test-all`; about six minutes of processor time each

torch, MKL and OpenBLAS contain kernels for several processors, which add numbers in different orders. By default they
choose a kernel for the processor that they find. This tool tells them which kernel to use. It also installs the lowest
and the newest versions of pandas, NumPy, SciPy and lmfit that pyproject.toml permits, each set into an environment in
build/.

The first case is this processor as it is, with the installed versions. It measures the demo once. In every case the
tool does three things:

1. It runs the tests of stats, analysis, plugins and scoring, and the GPU's kernels with the shapes of published models
   in triton's interpreter.
2. It analyses the first case's demo. All analyzers must print the same lines.
3. It measures the demo again, and analyses that. All analyzers must print the same words, but a number may differ by 1%
   or by one unit of its last digit. The reason: the kernels round logits differently, so the rank of a few tokens in
   100,000 changes by one. This changes the entropy of ranks by up to 2 ln(2)/(number of tokens) for each such token,
   and with it the third digit of the smaller parts of cross-entropy.

At the end the tool prints a table of the cases in Markdown. The exit code is 1 if a test or a demo fails or a line
differs.
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from tools import commands
from tools.commands import lines_agree, numbers_in

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("tests/stats", "tests/analysis", "tests/plugins", "tests/scoring", "tests/system/test_kernel_shapes.py")
LIBRARIES = ("pandas", "numpy", "scipy", "lmfit")
KERNEL_VARIABLES = ("OPENBLAS_", "ATEN_", "MKL_", "OMP_")  # prefixes of variables that no case inherits
MAX_SHARE = Decimal("0.01")  # the share by which the numbers of two measurements may differ


@dataclass(frozen=True)
class Case:
    """A processor, or a set of versions of the libraries.

    Attributes:
        name: the name of the case on the command line and in the output.
        variables: the environment variables that tell torch, MKL and OpenBLAS which kernels to use.
        needs: the flags that the processor must have, as Linux names them.
        versions: `lowest` or `newest` versions of the libraries; empty for the installed versions.

    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    versions: str = ""


@dataclass(frozen=True)
class CaseResult:
    """The result of a case.

    Attributes:
        case: the name of the case.
        versions: the versions of the libraries.
        tests: the last line that pytest prints, without the time.
        analysed: how the lines about the first case's demo compare with those of the first case.
        measured: how the lines about the case's own demo compare with those of the first case.
        passed: whether no test failed and no line differs.

    """

    case: str
    versions: str = ""
    tests: str = ""
    analysed: str = ""
    measured: str = ""
    passed: bool = True


def kernels(torch: str, mkl: str, openblas: str, threads: int) -> dict[str, str]:
    """Return the environment variables that choose kernels and the number of threads."""
    kernel_variables = {"ATEN_CPU_CAPABILITY": torch, "MKL_CBWR": mkl, "OPENBLAS_CORETYPE": openblas}
    return kernel_variables | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}


ONE_THREAD = {"OMP_NUM_THREADS": "1"}
AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
CASES = (
    Case("native", ONE_THREAD),
    Case("prescott", kernels("default", "COMPATIBLE", "Prescott", 1), frozenset({"pni"})),
    Case("haswell", kernels("avx2", "AVX2", "Haswell", 2), frozenset({"avx2", "fma"})),
    Case("skylakex", kernels("avx512", "AVX512", "SkylakeX", 2), AVX512),
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
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        native_folder = Path(temporary)
        expected: list[str] = []
        if not options.without_demo:
            if measure_demo(CASES[0], Path(sys.executable), native_folder):
                expected = analysis_lines(native_folder, CASES[0], Path(sys.executable))
            if not expected:
                return 1
        for case in CASES:
            if not options.names or case.name in options.names:
                results.append(run_case(case, native_folder, expected))
                print(f"{results[-1]}\n", flush=True)
    print(*table(results), sep="\n")
    return 0 if all(result.passed for result in results) else 1


def run_case(case: Case, native_folder: Path, expected: Sequence[str]) -> CaseResult:
    """Run a case, print each failure, and return the result.

    Args:
        case: the case.
        native_folder: the folder with the demo of the first case.
        expected: the lines that the first case printed about it; empty to run only the tests.

    """
    missing_flags = case.needs - processor_flags()
    if missing_flags:
        return CaseResult(case.name, f"left out, because this processor lacks {', '.join(sorted(missing_flags))}")
    if case.versions == "lowest" and sys.version_info >= (3, 13):
        return CaseResult(case.name, "left out, because these versions have no wheels for Python 3.13")
    python = make_environment(case.versions) if case.versions else Path(sys.executable)
    versions = library_versions(python)
    if case.versions and versions == library_versions(Path(sys.executable)):
        return CaseResult(case.name, "left out, because these are the installed versions")
    print(f"{case.name}: {versions} {dict(case.variables)}", flush=True)
    result = run_tests(case, python, versions)
    if not expected:
        return result
    if case is CASES[0]:
        return replace(result, analysed=f"{len(expected)} lines", measured=f"{len(expected)} lines")
    return compare_demos(result, case, python, native_folder, expected)


def run_tests(case: Case, python: Path, versions: str) -> CaseResult:
    """Run the tests of `TESTS`, and print their output if one fails."""
    tests = run_case_command(case, [python, "-m", "pytest", "-p", "no:cacheprovider", "-m", "", *TESTS], ROOT)
    if tests.returncode:
        print(tests.stdout, flush=True)
        return CaseResult(case.name, versions, "failed", passed=False)
    return CaseResult(case.name, versions, tests.stdout.splitlines()[-1].partition(" in ")[0])


def compare_demos(
    result: CaseResult, case: Case, python: Path, native_folder: Path, expected: Sequence[str]
) -> CaseResult:
    """Analyse the first case's demo and a demo of this case, and compare the printed lines with those expected.

    Args:
        result: the result of the case's tests.
        case: the case.
        python: the Python of the case.
        native_folder: the folder with the demo of the first case.
        expected: the lines that the first case printed about its demo.

    Returns:
        The result with the outcome of both comparisons.

    """
    analysed = analysis_lines(native_folder, case, python)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        measured = analysis_lines(folder, case, python) if measure_demo(case, python, folder) else []
    analysis_diff = differences(expected, analysed)
    measurement_diff = differences(expected, measured, share=MAX_SHARE)
    print(*analysis_diff, *measurement_diff, sep="\n", flush=True)
    pairs = zip(numbers_in("\n".join(expected)), numbers_in("\n".join(measured)), strict=False)
    changed_numbers = sum(number != expected_number for expected_number, number in pairs)
    measured_text = f"equal but for {changed_numbers} numbers" if changed_numbers else "equal"
    return replace(
        result,
        analysed="different" if analysis_diff else "equal",
        measured="different" if measurement_diff else measured_text,
        passed=result.passed and not analysis_diff and not measurement_diff,
    )


def table(results: Iterable[CaseResult]) -> list[str]:
    """Return the results as the lines of a table in Markdown."""
    rows = [(result.case, result.tests, result.analysed, result.measured, result.versions) for result in results]
    head = ("case", "tests", "the first case's demo", "the demo measured again", ", ".join(LIBRARIES))
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def differences(expected: Sequence[str], printed: Sequence[str], *, share: Decimal = Decimal(0)) -> list[str]:
    """Return the lines that differ, as a unified diff.

    If `share` is given, a number may differ by that share or by one unit of its last digit, and its width in the line
    may differ. A whole number, unless it is a percentage, may differ by that share only.
    """
    if share and len(expected) == len(printed):
        pairs = zip(expected, printed, strict=True)
        printed = [first if lines_agree(first, second, units=1, share=share) else second for first, second in pairs]
    return list(difflib.unified_diff(expected, printed, "expected", "printed", n=0, lineterm=""))


def processor_flags() -> set[str]:
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


def make_environment(versions: str) -> Path:
    """Make an environment in build/ with these versions. Returns its Python.

    All other packages come from the environment of this process. An environment that is complete is used again, unless
    pyproject.toml has changed.
    """
    folder = ROOT / "build" / versions
    python = folder / "bin" / "python"
    marker = folder / "made-for.sha256"  # written last: the hash of the pyproject.toml that it was made for
    project_hash = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not marker.exists() or marker.read_text() != project_hash:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, *requirements(versions)], check=True)
        packages = subprocess.run(
            [python, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
        )
        Path(packages.stdout.strip(), "others.pth").write_text("\n".join(site.getsitepackages()) + "\n")
        marker.write_text(project_hash)
    return python


def library_versions(python: Path) -> str:
    """Return the versions of the libraries that a Python imports, as one line."""
    code = f"from importlib.metadata import version; print(*[f'{{n}} {{version(n)}}' for n in {LIBRARIES}], sep=', ')"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def run_case_command(case: Case, words: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the variables of a case. Standard error is part of the output."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(KERNEL_VARIABLES)}
    return commands.run_command(words, folder, {**inherited, **case.variables, "PYTHONPATH": str(ROOT)})


def measure_demo(case: Case, python: Path, folder: Path) -> bool:
    """Measure the demo into a folder. Returns whether that succeeded; if not, prints why."""
    demo = run_case_command(case, [python, "-m", "rbptrack", "demo", "analyzers=[]"], folder)
    if demo.returncode:
        print(f"{case.name}: the demo failed with exit code {demo.returncode}:", demo.stdout, sep="\n", flush=True)
    return demo.returncode == 0


def analysis_lines(folder: Path, case: Case, python: Path) -> list[str]:
    """Return the lines that all analyzers print about a folder's store. If they fail, print why and return no line."""
    wide = replace(case, variables={**case.variables, "COLUMNS": "400"})  # wide enough for all columns
    analysis = run_case_command(
        wide, [python, "-W", "ignore", "-c", "from tools.processors import print_all; print_all()"], folder
    )
    if analysis.returncode:
        print(f"{case.name}: the analysis failed with exit code {analysis.returncode}:\n{analysis.stdout}", flush=True)
        return []
    return analysis.stdout.splitlines()


def print_all() -> None:
    """Print what all analyzers find in the store of the current folder."""
    from rbptrack.discovery import ANALYZERS, find_plugins
    from rbptrack.reporting import print_report, run_analyzers
    from rbptrack.tracking import Store

    analyzers = [analyzer() for analyzer in find_plugins(ANALYZERS).load_matching([])]
    for analysis in run_analyzers(Store().runs(), analyzers, processes=1):
        print("#", analysis.name)
        print_report(analysis)


if __name__ == "__main__":
    sys.exit(main())
