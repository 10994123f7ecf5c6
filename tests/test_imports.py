"""Rules about imports and names that neither ruff nor the import contract knows."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [path for folder in ("pcnn", "tests") for path in (ROOT / folder).rglob("*.py")]
PUBLIC = ("pcnn", "pcnn.nn", "pcnn.models", "pcnn.losses", "pcnn.metrics", "pcnn.runtime")


def test_no_grab_bag_modules() -> None:
    assert len(SOURCES) > 50
    grab_bags = {"utils", "helpers", "common", "misc"}
    assert [path for path in SOURCES if path.stem in grab_bags] == []


def test_a_typical_file_is_short() -> None:
    lengths = sorted(len(path.read_text().splitlines()) for path in SOURCES)
    assert lengths[len(lengths) // 2] <= 150
    assert lengths[len(lengths) * 9 // 10] <= 300


def test_no_modules_import_each_other() -> None:
    """Not even inside functions; names of types alone may lead back."""
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()
    graph = grimp.build_graph("pcnn", exclude_type_checking_imports=True)
    modules = {name for name in graph.modules if not graph.find_children(name)}
    assert len(modules) > 50
    imports = {name: graph.find_modules_directly_imported_by(name) & modules for name in modules}
    TopologicalSorter(imports).prepare()


@pytest.mark.parametrize("room", PUBLIC)
def test_public_names_are_documented(room: str) -> None:
    """What users call says what it does; everything else speaks by its name."""
    module = importlib.import_module(room)
    values = {name: getattr(module, name) for name in module.__all__}
    assert [
        name
        for name, value in values.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not value.__doc__
    ] == []


def test_the_core_stays_light() -> None:
    """Heavy packages are imported where they are used, not when the core is."""
    heavy = ["lightning", "hydra", "wandb", "trimesh", "open3d", "matplotlib", "torchmetrics"]
    code = f"import sys, pcnn.nn, pcnn.models; print(set({heavy}) & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
