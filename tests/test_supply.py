"""Locks and licences are in step with pyproject.toml and constraints.txt."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("dev", "registration", "cu13", "las", "tensorboard", "docs")
ENTRY = re.compile(r"^([a-z0-9._-]+)==(\S+)(?: ; (.*?))? \\\n((?: +--hash=\S+(?: \\)?\n)+)", re.M)


def asked() -> list[Requirement]:
    """The packages that pyproject.toml asks for and the locks cover."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in EXTRAS:
        lines += project["optional-dependencies"][extra]
    return [r for r in map(Requirement, lines) if r.name != project["name"]]


def locked(build: str) -> dict[str, list[tuple[str, str]]]:
    """Versions and markers of the packages of a lock."""
    text = (ROOT / "requirements" / f"{build}.lock").read_text()
    found: dict[str, list[tuple[str, str]]] = {}
    for name, version, marker, hashes in ENTRY.findall(text):
        assert re.fullmatch(r"(\s+--hash=sha256:[0-9a-f]{64}( \\)?\n)+", hashes), name
        found.setdefault(name, []).append((version, marker))
    assert sum(map(len, found.values())) == len(re.findall(r"^[^\s#]", text, re.M))
    return found


@pytest.mark.parametrize("build", ["cpu", "cuda"])
def test_the_locks_hold_what_is_asked_for(build: str) -> None:
    packages = locked(build)
    for requirement in asked():
        name = canonicalize_name(requirement.name)
        if (build, name) == ("cpu", "torch"):
            assert name not in packages  # on PyTorch's index alone
            continue
        assert name in packages, f"{requirement}: make lock"
        for version, _ in packages[name]:
            assert requirement.specifier.contains(version), f"{requirement}: make lock"


@pytest.mark.parametrize("build", ["cpu", "cuda"])
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_the_locks_keep_to_the_constraints(build: str, python: str) -> None:
    packages = locked(build)
    place = {"python_version": python, "python_full_version": f"{python}.5"}
    place |= {"sys_platform": "linux", "platform_machine": "x86_64"}
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").open())
    for constraint in (Requirement(line) for line in lines if line):
        if constraint.marker is not None and not constraint.marker.evaluate(place):
            continue
        for version, marker in packages.get(canonicalize_name(constraint.name), []):
            if not marker or Marker(marker).evaluate(place):
                assert constraint.specifier.contains(version), f"{constraint}: make lock"


def test_cpu_machines_get_no_cuda_libraries() -> None:
    large = {name for name in locked("cpu") if name.startswith("nvidia-")}
    assert large == {"nvidia-cuda-nvrtc"}  # the compiler, which the tests use without a GPU
    assert "torch" in locked("cuda")


def test_the_recipe_of_conda_asks_for_the_same() -> None:
    """Names of conda-forge differ for three packages, the versions for none."""
    there = {"torch": "pytorch", "matplotlib": "matplotlib-base", "open3d-cpu": "open3d"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        there.get(r.name, r.name): set(str(r.specifier).split(","))
        for r in map(Requirement, project["dependencies"])
    }
    recipe = yaml.safe_load((ROOT / "release" / "recipe.yaml").read_text())
    lines = [line.partition(" ") for line in recipe["requirements"]["run"]]
    assert {name: set(spec.split(",")) for name, _, spec in lines if name != "python"} == wanted
    assert recipe["context"]["version"] == project["version"]
    assert recipe["package"]["name"] == project["name"]


def test_the_image_holds_the_libraries_that_open3d_needs() -> None:
    (needs,) = re.findall(r"^OPEN3D_NEEDS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    packages = {need.partition(":")[2] for need in needs.split()}
    installed = (ROOT / "Dockerfile").read_text().split()
    assert packages <= set(installed)
