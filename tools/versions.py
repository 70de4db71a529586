"""Try the lowest and the newest versions of what pyproject admits, on the oldest and the newest Python that is here.

    python -m tools.versions [--torch 2.13.0] [--suite] [--only lowest newest] [--write]

Each case is a fresh environment with the wheel (tools/fresh_environment.py): a demo of three models, every command, and
the numbers compared with those of this environment: CE and RBP_k, and every table of the frozen store's
measurements (tools/snapshot.py), imported from a bundle because an older MLflow cannot open a newer one's database.
The lowest versions are tried on the oldest Python only: they have no wheels for newer ones. --suite runs the tests there
too, --files some of them. `--torch` keeps torch at one version, where others would need gigabytes; on a Python for which
that one cannot be had, --analysis tries what needs no torch. --write keeps the results in docs/versions.json and writes
the table in docs/reliability.md from it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from packaging.requirements import Requirement

from tools.fresh_environment import ROOT, SWEEP, Environment, Failed, build, check_contents, measure, output, use
from tools.snapshot import copied, differences, frozen

RESULTS = ROOT / "docs/versions.json"
PAGE = ROOT / "docs/reliability.md"
BEGIN, END = "<!-- versions: written by tools/versions.py -->\n", "<!-- end of versions -->\n"
SHOWN = ("torch", "transformers", "datasets", "mlflow", "hydra-core", "numpy", "pandas", "scipy", "pyarrow")
NEEDS_TORCH = ("torch", "accelerate")
SHOWN_DIFFERENCES = 10
RUN_IDS = ["*/measurements"]  # rows in the order of new run IDs; its numbers are in the analyses
NEWEST_MINOR = 15  # of the Pythons that are looked for
Numbers = dict[tuple[str, str, str], float]
"""Of a model, a dataset and a metric."""

TOLERANCE = 1e-6  # relative: other versions of an optimiser end elsewhere


@dataclass
class Case:
    """One environment that was tried.

    Attributes:
        dependencies: `lowest`, `newest` or `constraints`.
        python: its version.
        scope: `all`, or `analysis` where torch was left out.
        versions: of the packages that matter most.
        result: `works`, or what failed.
        measured: largest relative difference of CE and RBP_k from this environment's.
        tables: how many values in the tables of the frozen store differ by more than 1e-6.
        tests: the summary of the tests, where they ran.

    """

    dependencies: str
    python: str
    scope: str = "all"
    versions: dict[str, str] = field(default_factory=dict)
    result: str = "works"
    measured: float | None = None
    tables: int | None = None
    tests: str = ""


def requirements() -> list[Requirement]:
    """Return what pyproject.toml requires at run time."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(line) for line in project["dependencies"]]


def constraints(dependencies: str, torch: str) -> list[str]:
    """Return the lines of pip's constraints for a case."""
    if dependencies == "constraints":
        return (ROOT / "constraints.txt").read_text().splitlines()
    lines = []
    if dependencies == "lowest":
        for requirement in requirements():
            (lowest,) = (part.version for part in requirement.specifier if part.operator == ">=")
            lines.append(f"{requirement.name}=={lowest}")
    if torch:
        lines = [line for line in lines if not line.startswith("torch==")] + [f"torch=={torch}"]
    return lines


def newest_python(torch: str) -> str:
    """Return the newest Python on this machine that torch is published for."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(NEWEST_MINOR, 11, -1):
        for name in [shutil.which(f"python3.{minor}"), *map(str, pyenv.glob(f"3.{minor}.*/bin/python"))]:
            command = [name, "-m", "pip", "index", "versions", "torch"]
            if name and subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return name
    return sys.executable


def try_case(
    case: Case, wheel: Path, *, python: str, torch: str, suite: Sequence[str] | None, reference: Reference
) -> None:
    """Fill in what a case comes to; `suite` holds the test files to run, None for no tests."""
    with tempfile.TemporaryDirectory(prefix="versions-") as temporary:
        place = Path(temporary)
        pins = place / "constraints.txt"
        pins.write_text("\n".join(constraints(case.dependencies, torch)))
        try:
            environment = Environment(place, python)
            case.python = output([environment.python, "--version"], cwd=place).split()[1]
            if case.scope == "all":
                environment.install("-c", pins, wheel)
            else:
                needed = [str(requirement) for requirement in requirements() if requirement.name not in NEEDS_TORCH]
                environment.install("-c", pins, *needed)
                environment.install("--no-deps", wheel)
            case.versions = environment.versions(*(n for n in SHOWN if case.scope == "all" or n not in NEEDS_TORCH))
            tables(environment, reference.bundle, place / "tables")
            compared = list(differences(reference.tables, place / "tables", tolerance=TOLERANCE, ignored=RUN_IDS))
            case.tables = len(compared)
            print("\n".join(f"  {line}" for line in compared[:SHOWN_DIFFERENCES]), flush=True)
            if case.scope == "all":
                measure(environment)
                use(environment)
                case.measured = difference(reference.measured, measured(environment))
                if case.measured > TOLERANCE:
                    raise Failed(f"CE or RBP_k differs by {case.measured:.1g}")
            if suite is not None and case.scope == "all":
                environment.install("-c", pins, "-e", f"{ROOT}[dev]")
                case.tests = tests(environment, suite)
        except Failed as error:
            lines = str(error).strip().splitlines()
            reason = next(
                (line.strip() for line in reversed(lines) if re.search("error", line, re.IGNORECASE)), lines[-1]
            )
            case.result = f"failed: {reason[:300]}"
            print(error, file=sys.stderr)


@dataclass
class Reference:
    """What this environment, the one that the tests run in, measures and computes."""

    measured: Numbers
    bundle: Path
    tables: Path


def reference(place: Path) -> Reference:
    """Measure and analyse in this environment, and bundle the frozen store's measurements."""
    place.mkdir()
    here = Here(place)
    output([here.python, "-m", "rbptrack", *SWEEP, "analyzers=[]"], cwd=place)
    bundle = place / "frozen.zip"
    store = copied(frozen(), place / "frozen")
    output([here.python, "-m", "rbptrack", "export", f"out={bundle}", "tokens=true"], cwd=store)
    tables(here, bundle, place / "tables")
    return Reference(measured(here), bundle, place / "tables")


@dataclass
class Here:
    """The environment that runs this file, and a folder to work in."""

    folder: Path
    python: Path = Path(sys.executable)


def measured(environment: Environment | Here) -> Numbers:
    """Return CE and RBP_k of the demo's models in the folder's store, by model, dataset and metric."""
    rows = json.loads(
        output([environment.python, "-m", "rbptrack", "list", "nano", "format=json"], cwd=environment.folder)
    )
    return {
        (row["model"], row["dataset"], name): value
        for row in rows
        for name, value in row.items()
        if name == "ce" or (name.startswith("rbp_") and not name.endswith("_se"))
    }


def difference(expected: Numbers, actual: Numbers) -> float:
    """Return the largest relative difference; Failed if one has a number that the other lacks."""
    if expected.keys() != actual.keys():
        raise Failed(f"measurements differ: {sorted(expected.keys() ^ actual.keys())[:5]}")
    return max(abs(actual[key] / value - 1) for key, value in expected.items())


def tables(environment: Environment | Here, bundle: Path, out: Path) -> None:
    """Import a bundle into a store of the environment's own, and write every table of its analyses."""
    store = out.with_name("store")
    store.mkdir()
    output([environment.python, "-m", "rbptrack", "import", bundle], cwd=store)
    output([environment.python, ROOT / "tools/snapshot.py", out, store], cwd=environment.folder)


def tests(environment: Environment, files: Sequence[str]) -> str:
    """Run test files, by default all, with an environment's versions; return their summary. Failed if one fails."""
    command = [environment.python, "-m", "pytest", "-p", "no:cacheprovider", *files]
    return output(command, cwd=ROOT).strip().splitlines()[-1]


def cell(value: float | None, form: str) -> str:
    """Return a number as the table shows it."""
    return "" if value is None else form.format(value)


def table(cases: list[Case]) -> str:
    """Return the cases as Markdown."""
    head = ["Dependencies", "Python", *SHOWN, "Works", "Measured", "Tables"]
    if tested := any(case.tests for case in cases):
        head.append("Tests")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for case in cases:
        works = {"works": "yes" if case.scope == "all" else "analysis, without torch"}.get(case.result, case.result)
        versions = [case.versions.get(name, "").partition("+")[0] for name in SHOWN]
        numbers = [cell(case.measured, "{:.1g}"), cell(case.tables, "{}"), *([case.tests] if tested else [])]
        lines.append("| " + " | ".join([case.dependencies, case.python, *versions, works, *numbers]) + " |")
    return "\n".join(lines) + "\n"


def write(cases: list[Case]) -> None:
    """Keep the results, and put the table into the page."""
    RESULTS.write_text(json.dumps([asdict(case) for case in cases], indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + table(cases) + "\n" + END + rest.partition(END)[2])


def main() -> int:
    """Try the cases; return 1 if one does not work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["lowest", "constraints", "newest"], help="which dependencies")
    parser.add_argument(
        "--python", nargs="+", help="interpreters; by default this one, and the newest that torch serves"
    )
    parser.add_argument("--analysis", nargs="+", default=[], metavar="PYTHON", help="to try without torch")
    parser.add_argument("--torch", default="", metavar="VERSION", help="the one version of torch to install")
    parser.add_argument("--suite", action="store_true", help="run the tests in each environment, too")
    parser.add_argument("--files", nargs="+", default=[], metavar="TEST", help="run only these test files")
    parser.add_argument("--write", action="store_true", help="keep the results and the table in docs/")
    options = parser.parse_args()
    pythons = [str(Path(shutil.which(name) or name).absolute()) for name in options.python or ()]
    pythons = pythons or list(dict.fromkeys([sys.executable, newest_python(options.torch)]))
    suite = options.files if options.suite or options.files else None
    wanted = [(python, "all") for python in pythons] + [(python, "analysis") for python in options.analysis]
    cases: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="versions-") as temporary:
        wheel = build(Path(temporary), sdist=False)
        check_contents(zipfile.ZipFile(wheel).namelist())
        expected = reference(Path(temporary, "reference"))
        for python, scope in wanted:
            for dependencies in options.only:
                if dependencies == "lowest" and python != pythons[0]:
                    continue
                case = Case(dependencies, python, scope)
                print(f"{dependencies} on {python}:", flush=True)
                try_case(case, wheel, python=python, torch=options.torch, suite=suite, reference=expected)
                print(f"  {case.result}; measured {case.measured}; tables {case.tables}; {case.tests}", flush=True)
                cases.append(case)
                if options.write:
                    write(cases)
    return int(any(case.result != "works" for case in cases))


if __name__ == "__main__":
    sys.exit(main())
