"""gt.log, gt.info and gt_overlap.log: the ground truth of the 3DMatch benchmark.

gt.log has five lines a pair, ``i j n`` and the 4 x 4 transform that maps fragment j into i;
gt.info seven, the same header and a 6 x 6 information matrix whose first entry is the number of
true correspondences; gt_overlap.log one, ``i,j,overlap``, for every pair of fragments.

Source: Redwood (Choi, Zhou, Koltun 2015) and the 3DMatch geometric registration benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.datasets.whole_file import whole_file
from pcnn.registration.transforms import rigid

Key = tuple[int, int]

#: What `write_scene` writes.
SCENE_FILES = ("gt.log", "gt.info", "gt_overlap.log")


def read_gt_log(path: Path) -> dict[Key, Tensor]:
    """Transforms [4, 4] float64 by pair (i, j), in the order of the file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that breaks the format; the message names the line.
    """
    blocks = _blocks(path, 4)
    return {
        key: rigid(matrix, f"{path}: transform of pair {key[0]} {key[1]}")
        for key, matrix in blocks.items()
    }


def read_gt_info(path: Path) -> dict[Key, Tensor]:
    """Information matrices [6, 6] float64 by pair (i, j), in the order of the file.

    An all-zero matrix is kept: a published file has one, and its pair cannot be judged.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that breaks the format; the message names the line.
    """
    return _blocks(path, 6)


def read_gt_overlap(path: Path) -> dict[Key, float]:
    """Overlap by pair (i, j).

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line that is not ``i,j,overlap``.
    """
    found: dict[Key, float] = {}
    for number, line in _lines(path):
        words = line.split(",")
        try:
            i, j, share = int(words[0]), int(words[1]), float(words[2])
        except (ValueError, IndexError) as error:
            raise ValueError(f"{path}:{number}: want i,j,overlap, found {line!r}") from error
        found[i, j] = share
    return found


def read_scene(folder: Path, scene: str, with_info: bool = True) -> list[RegistrationPair]:
    """Pairs of a scene from the files in a folder, in the order of gt.log.

    Args:
        folder: holds gt.log, gt.info unless told otherwise, and maybe gt_overlap.log.
        scene: name the pairs carry.
        with_info: whether gt.info must be there.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file breaks its format, or gt.info has other pairs than gt.log.
    """
    transforms = read_gt_log(folder / "gt.log")
    information: dict[Key, Tensor] = {}
    if with_info or (folder / "gt.info").is_file():
        information = read_gt_info(folder / "gt.info")
        if list(information) != list(transforms):
            raise ValueError(f"{folder}: gt.info and gt.log list different pairs")
    overlaps: dict[Key, float] = {}
    if (folder / "gt_overlap.log").is_file():
        overlaps = read_gt_overlap(folder / "gt_overlap.log")
    return [
        RegistrationPair(
            scene, i, j, transform, information.get((i, j)), overlaps.get((i, j)), index
        )
        for index, ((i, j), transform) in enumerate(transforms.items())
    ]


def write_scene(
    folder: Path,
    pairs: Iterable[RegistrationPair],
    fragments: int,
    overlaps: Mapping[Key, float] | None = None,
) -> None:
    """Write gt.log, gt.info and, where overlaps are given, gt_overlap.log; each whole.

    Args:
        folder: to write to.
        pairs: of one scene, each with an information matrix.
        fragments: number of fragments of the scene, the third number of a header.
        overlaps: of every pair of fragments.

    Raises:
        ValueError: a pair without information matrix.
    """
    pairs = list(pairs)
    missing = [pair for pair in pairs if pair.information is None]
    if missing:
        raise ValueError(
            f"pair {missing[0].target} {missing[0].source} has no information matrix for gt.info"
        )
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
    lines = _lines(path)
    if len(lines) % (size + 1):
        raise ValueError(
            f"{path}: {len(lines)} lines are not a whole number of pairs of {size + 1} lines; "
            "truncated?"
        )
    found: dict[Key, Tensor] = {}
    for start in range(0, len(lines), size + 1):
        number, line = lines[start]
        header = _numbers(path, number, line, 3)
        key = int(header[0]), int(header[1])
        if key in found:
            raise ValueError(f"{path}:{number}: pair {key[0]} {key[1]} occurs twice")
        rows = [_numbers(path, *row, size) for row in lines[start + 1 : start + 1 + size]]
        found[key] = torch.tensor(rows, dtype=torch.float64)
    return found


def _lines(path: Path) -> list[tuple[int, str]]:
    """Lines that are not blank, with their numbers in the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    lines = path.read_text(encoding="ascii").splitlines()
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _numbers(path: Path, number: int, line: str, count: int) -> list[float]:
    try:
        values = [float(word) for word in line.split()]
    except ValueError as error:
        raise ValueError(f"{path}:{number}: want {count} numbers, found {line!r}") from error
    if len(values) != count:
        raise ValueError(f"{path}:{number}: want {count} numbers, found {len(values)}")
    return values
