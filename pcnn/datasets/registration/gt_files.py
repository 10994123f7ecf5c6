"""gt.log, gt.info and gt_overlap.log: the ground truth of the 3DMatch benchmark.

gt.log has five lines a pair, ``i j n`` and the 4 x 4 transform that maps fragment j into i. gt.info
has seven, the same header and a 6 x 6 information matrix whose first entry is the number of true
correspondences. gt_overlap.log has one, ``i,j,overlap``, for every pair of fragments.

Source: Redwood (Choi, Zhou, Koltun 2015) and the 3DMatch geometric registration benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.files.text import finite_numbers, numbered_lines, whole_number
from pcnn.files.whole_file import whole_file
from pcnn.registration.transforms import rigid

Key = tuple[int, int]

#: Files of `write_scene`.
SCENE_FILES = ("gt.log", "gt.info", "gt_overlap.log")


def read_gt_log(path: Path) -> dict[Key, Tensor]:
    """Transforms [4, 4] float64 by pair (i, j), in the order of the file."""
    with named(path, "gt.log"):
        return {
            key: rigid(matrix, f"{path}: transform of pair {key[0]} {key[1]}")
            for key, matrix in _blocks(path, 4).items()
        }


def read_gt_info(path: Path) -> dict[Key, Tensor]:
    """Information matrices [6, 6] float64 by pair (i, j), in the order of the file."""
    return _blocks(path, 6)


def read_gt_overlap(path: Path) -> dict[Key, float]:
    """Overlap by pair (i, j)."""
    found: dict[Key, float] = {}
    for number, line in numbered_lines(path):
        words = [word.strip() for word in line.split(",")]
        if len(words) != 3:
            raise FileError(path, f"line {number}: want i,j,overlap, found {line[:80]!r}")
        i, j = (whole_number(path, number, word, "a fragment") for word in words[:2])
        (share,) = finite_numbers(path, number, words[2:], 1)
        if (i, j) in found:
            raise FileError(path, f"line {number}: pair {i} {j} occurs twice")
        found[i, j] = checked_overlap(path, f"line {number}", share)
    return found


def checked_overlap(path: Path, place: str, share: float) -> float:
    if not 0.0 <= share <= 1.0:
        raise FileError(path, f"{place}: an overlap lies in 0..1, found {share:g}")
    return share


def read_scene(folder: Path, scene: str) -> list[RegistrationPair]:
    """Pairs of a scene from the files in a folder, in the order of gt.log."""
    transforms, information = read_gt_log(folder / "gt.log"), read_gt_info(folder / "gt.info")
    if list(information) != list(transforms):
        raise FileError(folder, "gt.info and gt.log list different pairs")
    overlaps: dict[Key, float] = {}
    if (folder / "gt_overlap.log").is_file():
        overlaps = read_gt_overlap(folder / "gt_overlap.log")
    return [
        RegistrationPair(scene, i, j, transform, information[i, j], overlaps.get((i, j)), index)
        for index, ((i, j), transform) in enumerate(transforms.items())
    ]


def write_scene(
    folder: Path,
    pairs: Iterable[RegistrationPair],
    fragments: int,
    overlaps: Mapping[Key, float] | None = None,
) -> None:
    """Write gt.log, gt.info and, where overlaps are given, gt_overlap.log; each whole."""
    pairs = list(pairs)
    for name in ("log", "info"):
        with whole_file(folder / f"gt.{name}") as file:
            for pair in pairs:
                matrix = pair.transform if name == "log" else pair.information
                assert matrix is not None
                file.write(f"{pair.target}\t{pair.source}\t{fragments}\n".encode())
                for row in matrix.tolist():
                    file.write(("\t".join(f"{value:.12f}" for value in row) + "\n").encode())
    if overlaps is not None:
        with whole_file(folder / "gt_overlap.log") as file:
            for (i, j), share in overlaps.items():
                file.write(f"{i},{j},{share:.4f}\n".encode())


def _blocks(path: Path, size: int) -> dict[Key, Tensor]:
    """Matrices [size, size] by the pair in the header above each."""
    lines = numbered_lines(path)
    if len(lines) % (size + 1):
        raise FileError(path, f"{len(lines)} lines are no whole number of pairs of {size + 1}")
    found: dict[Key, Tensor] = {}
    for start in range(0, len(lines), size + 1):
        number, line = lines[start]
        words = line.split()
        if len(words) != 3:
            raise FileError(path, f"line {number}: want i j n, found {line[:80]!r}")
        i, j, n = (whole_number(path, number, word, "a fragment") for word in words)
        if max(i, j) >= n:
            raise FileError(path, f"line {number}: fragment {max(i, j)} of {n}, they count from 0")
        if (i, j) in found:
            raise FileError(path, f"line {number}: pair {i} {j} occurs twice")
        rows = [
            finite_numbers(path, at, row.split(), size)
            for at, row in lines[start + 1 : start + 1 + size]
        ]
        found[i, j] = torch.tensor(rows, dtype=torch.float64)
    return found
