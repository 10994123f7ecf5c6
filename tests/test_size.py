"""How large the tree may be: a number for every folder. `python tests/test_size.py` prints them.

A folder that grows past its number is either cut, or the number is raised here, for all to see.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 500
TRACKED_FILES = 1_530
#: Most lines of code a folder: Python, CUDA, YAML, JavaScript, or Markdown in docs/.
MOST = {
    "benchmarks": 6_300,
    "conf": 2_014,
    "csrc": 4_370,
    "docs": 4_232,
    "pcnn": 1_395,
    "pcnn/callbacks": 2_332,
    "pcnn/checkpoints": 482,
    "pcnn/cli": 4_660,
    "pcnn/compat": 1_857,
    "pcnn/dataflows": 3_129,
    "pcnn/datamodules": 1_358,
    "pcnn/datasets": 8_600,
    "pcnn/experiment": 8_378,
    "pcnn/files": 833,
    "pcnn/geometry": 4_216,
    "pcnn/interop": 1_009,
    "pcnn/kernels": 5_280,
    "pcnn/loggers": 493,
    "pcnn/losses": 955,
    "pcnn/maps": 7_009,
    "pcnn/metrics": 1_906,
    "pcnn/models": 1_754,
    "pcnn/nn": 1_471,
    "pcnn/ops": 5_009,
    "pcnn/programs": 113,
    "pcnn/registration": 5_044,
    "pcnn/runtime": 4_049,
    "pcnn/simulate": 6_960,
    "pcnn/tasks": 1_542,
    "pcnn/visualize": 2_542,
    "tests": 51_042,
}
SUFFIXES = {
    "pcnn": {".py", ".js", ".css", ".html", ".yaml"},
    "tests": {".py"},
    "benchmarks": {".py", ".yaml"},
    "csrc": {".cu", ".cuh"},
    "conf": {".yaml"},
    "docs": {".md", ".py", ".yml"},
}
VENDORED = {ROOT / "pcnn/visualize/view/three.js"}


def lengths() -> dict[Path, int]:
    """Lines of every file that is read by people."""
    found = {}
    for folder, suffixes in SUFFIXES.items():
        for path in (ROOT / folder).rglob("*"):
            linked = path.relative_to(ROOT).parts[:2] in (("pcnn", "csrc"), ("pcnn", "conf"))
            if path.suffix in suffixes and not linked and path not in VENDORED:
                found[path] = len(path.read_bytes().splitlines())
    return found


def sizes() -> dict[str, int]:
    """Lines of every room of pcnn (``pcnn`` alone: files beside the rooms) and of other folders."""
    total: Counter[str] = Counter()
    for path, lines in lengths().items():
        parts = path.relative_to(ROOT).parts
        room = "/".join(parts[:2]) if parts[0] == "pcnn" and len(parts) > 2 else parts[0]
        total[room] += lines
    return dict(sorted(total.items()))


@pytest.mark.parametrize("folder", sorted(MOST.keys() | sizes().keys()))
def test_no_folder_grows(folder: str) -> None:
    assert sizes().get(folder, 0) <= MOST.get(folder, 0)


def test_no_file_is_long() -> None:
    long = {
        str(path.relative_to(ROOT)): n
        for path, n in lengths().items()
        if n > LONGEST and path.suffix != ".md"
    }
    assert long == {}


def test_no_file_is_added_unseen() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no checkout")
    assert len(listed.stdout.splitlines()) <= TRACKED_FILES


if __name__ == "__main__":  # the numbers of today, to be written above
    for folder, lines in sizes().items():
        print(f'    "{folder}": {lines:_},')
