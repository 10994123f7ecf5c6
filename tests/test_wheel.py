"""The wheel is whole: built, installed into an empty environment elsewhere, and used from there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]

#: Runs command lines of `pcnn` one after the other in one process.
COMMANDS = """
import json, os, sys
from pcnn.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["pcnn", *words]
    try:
        main()
    except SystemExit as stopped:
        assert not stopped.code, (words, stopped.code)
import pcnn
print("used:", pcnn.__file__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def distributions(source: Path) -> Path:
    """The folder of an sdist and of the wheel that was built from it, of a copy of the checkout."""
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / name, source / name)  # with the time and the mode of now
    # links stay links, as in a checkout: pcnn/csrc and pcnn/conf
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("pcnn", "csrc", "conf"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    run(
        sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", source / "dist", cwd=source
    )
    (sdist,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(source / "unpacked", filter="data")
    (tree,) = (source / "unpacked").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", source / "dist", cwd=tree)
    return source / "dist"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return distributions(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the wheel alone; dependencies come from the running environment by a path entry.

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


def test_distributions_hold_the_package_and_nothing_else(built: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    package = {name for name in names if name.startswith("pcnn/")}
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "pcnn").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".gitattributes"
    }
    for linked in ("csrc", "conf"):
        files = (path for path in (ROOT / linked).rglob("*") if path.is_file())
        expected |= {f"pcnn/{path.relative_to(ROOT)}" for path in files}
    assert package == expected
    others = {name.split("/")[0] for name in names if name not in package}
    assert others == {next(name.split("/")[0] for name in names if name.endswith("/METADATA"))}
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {m.name.partition("/")[2] for m in archive.getmembers() if not m.isdir()}
    others = {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert held == package | others


def test_the_wheel_alone_trains_labels_registers_and_simulates(
    environment: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "scans").mkdir()
    for name in "abc":
        np.save(tmp_path / f"scans/{name}.npy", rng.uniform(-2, 2, (300, 4)).astype(np.float32))
        np.save(tmp_path / f"scans/{name}_label.npy", np.arange(300) % 2)
    room = rng.uniform(0, 3, (4000, 3))
    room[np.arange(4000), np.arange(4000) % 3] *= 0.02 * rng.integers(0, 2, 4000)
    for name, shift in (("source", 0.0), ("target", 0.5)):
        np.save(tmp_path / f"{name}.npy", (room + shift).astype(np.float32))
    commands = [
        "train model=minkunet model.width=0.25 dataset=folder dataset.root=scans "
        "dataset.class_names=[a,b] dataset.voxel_size=0.5 dataset.num_workers=0 trainer=cpu "
        "trainer.max_steps=2 logger=[] hydra.run.dir=run",
        "predict run/checkpoints/last.ckpt scans/a.npy --out labels --device cpu",
        "register source.npy target.npy --model fpfh --device cpu",
        "simulate kitti streets --scans 1 --val-scans 0 --no-progress",
    ]
    report = run(environment / "bin" / "pcnn", "doctor", cwd=tmp_path)  # it compiles a kernel
    assert f"{environment}/lib" in report.replace("\n", "").replace(" ", "")
    assert re.search(r"cuda kernels +ok", report), report
    words = json.dumps([shlex.split(command) for command in commands])
    said = run(environment / "bin" / "python", "-I", "-c", COMMANDS, words, cwd=tmp_path)
    assert Path(said.split("used: ")[1].strip()).is_relative_to(environment)
    assert "pcnn eval ckpt_path=run/checkpoints/last.ckpt" in said
    assert np.load(tmp_path / "labels" / "a_label.npy").shape == (300,)
    assert len(list(tmp_path.glob("streets/**/*.bin"))) == 1
