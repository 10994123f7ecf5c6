"""The wheel is whole: built, installed into an empty environment elsewhere, and used from there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from pcnn.extras import install

ROOT = Path(__file__).resolve().parents[1]

COMPILATION = """
from pcnn.kernels import compiler, sources
machine_code = compiler.cubin("probe.cu", "sm_90a", {})
assert machine_code[:4] == b"\\x7fELF", machine_code[:4]
print(sources.FOLDER)
"""
CONVOLUTION = """
import torch, pcnn
points = torch.rand(200, 3) * 4 - 2
x = pcnn.voxelize(points, torch.rand(200, 3), voxel_size=0.5)
y = pcnn.nn.Conv3d(3, 8, 3)(x)
y.features.square().sum().backward()
assert y.features.shape == (x.geometry.rows, 8)
print(pcnn.__file__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an sdist, and of the wheel that was built from it.

    Built from a copy, so that no leftover of an earlier build gets in.
    """
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    # links stay links, as in a checkout: pcnn/csrc is one
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("pcnn", "csrc"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    (source / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "test_wheel.py", source / "tests")  # by default it is taken
    # without isolation: the environment's own setuptools, nothing is downloaded
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", source, cwd=source)
    return source


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty but for the wheel; dependencies come from the running environment by a path entry.

    A path in a .pth file is searched, but .pth files inside it are not read: an editable install
    of the checkout stays invisible.
    """
    folder = tmp_path_factory.mktemp("elsewhere") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=folder.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "dependencies.pth").write_text("\n".join(sorted(paths)) + "\n")
    # the CUDA bindings look for libraries in site-packages themselves, not along such paths
    for libraries in (Path(path) / "nvidia" for path in paths):
        if libraries.is_dir() and not (site / "nvidia").exists():
            (site / "nvidia").symlink_to(libraries)
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    package = {name for name in names if name.startswith("pcnn/")}
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "pcnn").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    } | {f"pcnn/csrc/{path.name}" for path in (ROOT / "csrc").iterdir()}
    assert package == expected
    others = {name.split("/")[0] for name in names if name not in package}
    assert others == {next(name.split("/")[0] for name in names if name.endswith("/METADATA"))}
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_sdist_holds_the_package_and_no_tests(built: Path, wheel: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if not m.isdir()}
    with zipfile.ZipFile(wheel) as packed:
        package = {name for name in packed.namelist() if name.startswith("pcnn/")}
    assert {name for name in names if name.startswith("pcnn/")} == package
    others = {name for name in names if not name.startswith(("pcnn/", "pcnn3d.egg-info/"))}
    assert others == {
        *("LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"),
    }


def test_messages_add_extras_to_what_is_installed(environment: Path, tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--python", environment / "bin" / "python")
    command = shlex.split(install("las"))
    said = run(*pip, *command[1:], "--no-index", cwd=tmp_path)
    (found,) = re.findall(rf"already satisfied: {re.escape(command[-1])} in (\S+)", said)
    assert Path(found).is_relative_to(environment)
    assert "satisfied: laspy" in said


def test_a_convolution_runs_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    printed = run(environment / "bin" / "python", "-I", "-c", CONVOLUTION, cwd=tmp_path)
    assert Path(printed.strip()).is_relative_to(environment)


def test_a_kernel_compiles_from_the_sources_in_the_wheel(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    printed = run(environment / "bin" / "python", "-I", "-c", COMPILATION, cwd=tmp_path)
    assert Path(printed.strip()).is_relative_to(environment)
    assert list(tmp_path.rglob("*.cubin"))


def test_the_command_runs_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    report = run(environment / "bin" / "pcnn", "doctor", cwd=tmp_path)
    assert str(environment) in report.replace("\n", "").replace(" ", "")
    assert re.search(r"cuda kernels +ok", report), report
    run(environment / "bin" / "pcnn", "bench", "--help", cwd=tmp_path)
