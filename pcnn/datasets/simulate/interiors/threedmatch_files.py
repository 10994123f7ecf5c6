"""The files of 3DMatch: fragments, poses, pairs, ground truth."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pcnn.datasets.simulate.mesh import Floats
from pcnn.datasets.whole_file import whole_file


@dataclass(frozen=True, eq=False)
class Pair:
    """Two overlapping fragments i < j of a scene."""

    i: int
    j: int
    overlap: float  # share of fragment i that j holds too
    transform: Floats  # [4, 4] maps fragment j into i
    information: Floats  # [6, 6]


def _rows(matrix: Floats) -> str:
    """Return the rows of a matrix as the published files write them: tabs, nine digits."""
    return "".join("\t ".join(f"{value: .8e}" for value in row) + "\t\n" for row in matrix)


def write_fragment(
    folder: Path, scene: str, number: int, points: NDArray[np.float64], pose: Floats, frames: int
) -> None:
    """Write cloud_bin_N.pth (float64 [N, 3], saved by torch) and cloud_bin_N.info.txt.

    Args:
        folder: of the scene.
        scene: its name.
        number: of the fragment.
        points: [N, 3] metres in the frame of the fragment's first camera.
        pose: [4, 4] of that camera, camera to scene.
        frames: that make a fragment.
    """
    with whole_file(folder / f"cloud_bin_{number}.pth") as file:
        torch.save(points, file)
    first = number * frames
    head = f"{scene}\t seq-01\t {first}\t {first + frames - 1}\t\n"
    with whole_file(folder / f"cloud_bin_{number}.info.txt") as file:
        file.write((head + _rows(pose)).encode())


def read_fragment(folder: Path, number: int) -> tuple[NDArray[np.float64], Floats]:
    """Read back points [N, 3] and pose [4, 4] of a fragment that `write_fragment` wrote."""
    path = folder / f"cloud_bin_{number}.pth"
    points = np.asarray(torch.load(path, weights_only=False), np.float64)
    pose = np.loadtxt(folder / f"cloud_bin_{number}.info.txt", skiprows=1)
    return points, pose


def write_ground_truth(
    folder: Path, pairs: Iterable[Pair], overlaps: dict[tuple[int, int], float], fragments: int
) -> None:
    """Write gt.log, gt.info and gt_overlap.log of a scene.

    Args:
        folder: of the scene under metadata/benchmarks/.
        pairs: that the benchmark asks for, in order.
        overlaps: of all pairs i < j.
        fragments: in the scene.
    """
    log, information = [], []
    for pair in pairs:
        head = f"{pair.i}\t {pair.j}\t {fragments}\t\n"
        log.append(head + _rows(pair.transform))
        information.append(head + _rows(pair.information))
    shares = [f"{i},{j},{share:.4f}\n" for (i, j), share in sorted(overlaps.items())]
    for name, lines in (("gt.log", log), ("gt.info", information), ("gt_overlap.log", shares)):
        with whole_file(folder / name) as file:
            file.write("".join(lines).encode())


def pair_record(pair: Pair, scene: str, part: str) -> dict[str, Any]:
    """Return a pair as the published pickles list it; the transform maps j (pcd1) into i (pcd0)."""
    return {
        "overlap": pair.overlap,
        "pcd0": f"{part}/{scene}/cloud_bin_{pair.i}.pth",
        "pcd1": f"{part}/{scene}/cloud_bin_{pair.j}.pth",
        "rotation": pair.transform[:3, :3],
        "translation": pair.transform[:3, 3],
        "scene_name": scene,
        "frag_id0": pair.i,
        "frag_id1": pair.j,
    }


def write_pairs(path: Path, records: list[dict[str, Any]]) -> None:
    """Write a list of pairs as a pickle of dictionaries."""
    with whole_file(path) as file:
        pickle.dump(records, file, protocol=4)
