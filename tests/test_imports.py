"""Rules that a program can check: imports, names, banned constructs."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path
    for pattern in ("pcnn/**/*.py", "tests/**/*.py", "*.py")
    for path in ROOT.glob(pattern)
    if "__pycache__" not in path.parts
)
GRAB_BAGS = {"utils", "helpers", "common", "misc"}
PUBLIC = (
    *("pcnn", "pcnn.nn", "pcnn.models", "pcnn.losses", "pcnn.metrics", "pcnn.runtime"),
    *("pcnn.registration", "pcnn.simulate"),
)


def test_the_import_contract_is_kept() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert " 0 broken" in done.stdout
    assert "0 kept" not in done.stdout


def test_no_grab_bag_modules() -> None:
    assert len(SOURCES) > 50
    assert [path for path in SOURCES if path.stem in GRAB_BAGS] == []


def test_a_typical_file_is_short() -> None:
    lengths = sorted(len(path.read_text().splitlines()) for path in SOURCES)
    assert lengths[len(lengths) // 2] <= 150
    assert lengths[len(lengths) * 9 // 10] <= 300


def imported(path: Path) -> set[str]:
    """Modules of ``pcnn`` that a module imports when it runs, inside functions too."""
    tree = ast.parse(path.read_text())
    typing = [
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    ]
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in typing:
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Chains of modules that lead back to where they began."""
    state: dict[str, int] = {}
    found: list[list[str]] = []

    def visit(name: str, chain: list[str]) -> None:
        state[name] = 1
        for other in sorted(imports[name] & imports.keys() - {name}):
            if state.get(other) == 1:
                found.append([*chain[chain.index(other) :], other])
            elif other not in state:
                visit(other, [*chain, other])
        state[name] = 2

    for name in sorted(imports):
        if name not in state:
            visit(name, [name])
    return found


def test_no_modules_import_each_other() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c", "b"]]
    imports = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): imported(path)
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] == "pcnn" and path.stem != "__init__"
    }
    assert circles(imports) == []


def banned(tree: ast.Module) -> Iterator[str]:
    """Banned constructs, each with its line."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.ImportFrom) and any(name.name == "*" for name in node.names):
            yield f"{line}: star import"
        if isinstance(node, ast.Global):
            yield f"{line}: global"
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield f"{line}: bare except"
            broad = isinstance(node.type, ast.Name) and node.type.id in (
                "Exception",
                "BaseException",
            )
            if broad and all(isinstance(step, ast.Pass) for step in node.body):
                yield f"{line}: swallowed error"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
            if name.startswith("PCNN" + "_") and name.isupper():
                yield f"{line}: environment variable of our own"


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("from os import *", "star import"),
        ("def f():\n    global x\n    x = 1", "global"),
        ("try:\n    f()\nexcept:\n    g()", "bare except"),
        ("try:\n    f()\nexcept Exception:\n    pass", "swallowed error"),
        ("import os\nos.environ['PCNN" + "_FAST']", "environment variable"),
    ],
)
def test_the_check_finds_what_it_looks_for(source: str, finding: str) -> None:
    assert finding in " ".join(banned(ast.parse(source)))


def test_no_banned_constructs() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{finding}"
        for path in SOURCES
        for finding in banned(ast.parse(path.read_text()))
    ]
    assert found == []


def exported(room: str) -> dict[str, object]:
    """The names that a user imports from a room."""
    module = importlib.import_module(room)
    return {name: getattr(module, name) for name in getattr(module, "__all__", [])}


@pytest.mark.parametrize("room", PUBLIC)
def test_public_names_are_documented(room: str) -> None:
    """What users call says what it does; everything else speaks by its name."""
    silent = [
        name
        for name, value in exported(room).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not value.__doc__
    ]
    assert silent == []


def test_the_core_stays_light() -> None:
    """Heavy packages are imported where they are used, not when the core is."""
    heavy = ["lightning", "hydra", "wandb", "trimesh", "open3d", "matplotlib", "torchmetrics"]
    code = (
        "import sys, pcnn.nn, pcnn.models; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
