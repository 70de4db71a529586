"""Modules import downwards only; analysis never loads torch; plugins use the public contract."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS: dict[str, float] = {
    "errors": 0,
    "overrides": 1,
    "ranktable": 1,
    "config": 2,
    "fingerprint": 2,
    "triton_head": 0,
    "kernels": 1,
    "scoring": 2,
    "statistics": 2,
    "analyzer": 2,
    "distributions": 2,
    "windows": 2,
    "families": 3,
    "forms": 3,
    "rankfit": 3,
    "figures": 2,
    "console": 2,
    "options": 3,
    "record": 3,
    "cache": 2,
    "hub": 2.5,
    "source": 3,
    "documents": 3.5,
    "tokens": 3.7,
    "architecture": 3.7,
    "corpus": 4,
    "placement": 3,
    "model": 4,
    "tracking.address": 4.1,
    "tracking.context": 4.1,
    "tracking.process": 4.1,
    "tracking.rows": 4.1,
    "tracking.view": 4.1,
    "tracking.store": 4.2,
    "tracking.claim": 4.3,
    "tracking.live": 4.3,
    "tracking": 4.5,
    "discovery": 4,
    "drawing": 3,
    "report": 4,
    "bundle": 5,
    "foreign": 5,
    "batching": 5,
    "engine": 5.2,
    "measurement": 5.4,
    "spool": 5,
    "testing": 5,
    "api": 6,
    "training": 7,
    "composition": 5,
    "analysis": 5,
    "bench": 5.9,
    "bench.shapes": 5.6,
    "bench.speed": 5.8,
    "bench.precision": 5.8,
    "cell": 6,
    "planning": 6.5,
    "commands": 7,
    "__main__": 8,
}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def module_of(path: Path) -> str:
    """`cell` for cell.py, `tracking.rows` for a module of the one package whose modules have floors of their own."""
    parts = path.relative_to(ROOT / "rbptrack").with_suffix("").parts
    return ".".join(parts) if ".".join(parts) in FLOORS else parts[0]


def own_modules(path: Path) -> set[str]:
    """The modules of rbptrack that a file imports."""
    found = set()
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "rbptrack":
            found |= {".".join(parts[1:3])} & set(FLOORS) or {".".join(parts[1:2])} & set(FLOORS)
    return found


FILES = sorted(p for p in (ROOT / "rbptrack").rglob("*.py") if p != ROOT / "rbptrack" / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_imports_point_downwards(path: Path) -> None:
    own = FLOORS[module_of(path)]
    for name in own_modules(path):
        assert FLOORS[name] < own, f"{path.name} imports {name}"


def test_every_module_has_a_floor() -> None:
    assert {module_of(p) for p in FILES} == set(FLOORS)


def test_only_tracking_imports_mlflow() -> None:
    users = {module_of(p) for p in FILES if any(n.split(".")[0] == "mlflow" for n in imports(p))}
    assert {name.split(".")[0] for name in users} == {"tracking"}


@pytest.mark.parametrize("path", sorted((ROOT / "plugins").glob("[a-z]*.py")), ids=lambda p: p.stem)
def test_plugins_use_public_names_only(path: Path) -> None:
    allowed = {"numpy", "pandas", "scipy", "lmfit", "matplotlib", "rbptrack"}
    public = {
        "analyzer",
        "distributions",
        "errors",
        "families",
        "figures",
        "forms",
        "rankfit",
        "ranktable",
        "statistics",
        "windows",
    }
    for name in imports(path):
        top = name.split(".")
        assert top[0] in allowed or top[0] in sys.stdlib_module_names, name
        if top[0] == "rbptrack":
            assert top[1] in public, name


def test_analysis_never_loads_torch() -> None:
    code = (
        "import sys, rbptrack.commands.analyze as a; a.discover();"
        "print(sorted({'torch', 'transformers', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
