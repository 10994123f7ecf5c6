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
TRACKED_FILES = 891
#: Most lines of code a folder: Python, CUDA, YAML, JavaScript, or Markdown in docs/.
MOST = {
    "benchmarks": 5_529,
    "conf": 1_352,
    "csrc": 3_426,
    "docs": 4_363,
    "pcnn": 1_085,
    "pcnn/callbacks": 1_431,
    "pcnn/checkpoints": 217,
    "pcnn/cli": 1_998,
    "pcnn/compat": 795,
    "pcnn/config": 453,
    "pcnn/dataflows": 1_419,
    "pcnn/datamodules": 931,
    "pcnn/datasets": 5_961,
    "pcnn/experiment": 3_910,
    "pcnn/files": 683,
    "pcnn/geometry": 2_806,
    "pcnn/graphs": 2_213,
    "pcnn/interop": 601,
    "pcnn/kernels": 3_952,
    "pcnn/loggers": 227,
    "pcnn/losses": 587,
    "pcnn/maps": 3_411,
    "pcnn/metrics": 1_034,
    "pcnn/models": 1_018,
    "pcnn/nn": 1_015,
    "pcnn/ops": 3_266,
    "pcnn/programs": 169,
    "pcnn/registration": 3_307,
    "pcnn/runtime": 971,
    "pcnn/simulate": 3_811,
    "pcnn/tasks": 1_142,
    "pcnn/visualize": 2_074,
    "tests": 28_014,
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
