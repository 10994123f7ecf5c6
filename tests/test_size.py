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
TRACKED_FILES = 827
#: Most lines of code a folder: Python, CUDA, YAML, JavaScript, or Markdown in docs/.
MOST = {
    "benchmarks": 5_565,
    "conf": 1_267,
    "csrc": 3_400,
    "docs": 4_490,
    "pcnn": 767,
    "pcnn/callbacks": 1_373,
    "pcnn/checkpoints": 191,
    "pcnn/cli": 1_871,
    "pcnn/compat": 790,
    "pcnn/config": 377,
    "pcnn/dataflows": 1_241,
    "pcnn/datamodules": 829,
    "pcnn/datasets": 5_068,
    "pcnn/experiment": 2_854,
    "pcnn/files": 561,
    "pcnn/geometry": 2_376,
    "pcnn/graphs": 1_935,
    "pcnn/interop": 490,
    "pcnn/kernels": 3_865,
    "pcnn/loggers": 213,
    "pcnn/losses": 508,
    "pcnn/maps": 2_675,
    "pcnn/metrics": 955,
    "pcnn/models": 685,
    "pcnn/nn": 915,
    "pcnn/ops": 2_873,
    "pcnn/programs": 117,
    "pcnn/registration": 3_142,
    "pcnn/runtime": 763,
    "pcnn/simulate": 4_256,
    "pcnn/tasks": 1_275,
    "pcnn/visualize": 1_859,
    "tests": 24_852,
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
