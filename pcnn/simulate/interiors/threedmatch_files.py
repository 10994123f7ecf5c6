"""The files of 3DMatch: fragments with their poses, and lists of pairs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.files.whole_file import whole_file
from pcnn.simulate.mesh import Floats


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


def pair_record(pair: RegistrationPair, part: str) -> dict[str, Any]:
    """Return a pair as the published pickles list it: the target is pcd0, the source pcd1.

    Args:
        pair: with its overlap.
        part: the folder under data/ that holds its scene.
    """
    transform = pair.transform.numpy()
    return {
        "overlap": pair.overlap,
        "pcd0": f"{part}/{pair.scene}/cloud_bin_{pair.target}.pth",
        "pcd1": f"{part}/{pair.scene}/cloud_bin_{pair.source}.pth",
        "rotation": transform[:3, :3].copy(),
        "translation": transform[:3, 3].copy(),
        "scene_name": pair.scene,
        "frag_id0": pair.target,
        "frag_id1": pair.source,
    }


def write_pairs(path: Path, records: list[dict[str, Any]]) -> None:
    """Write a list of pairs as a pickle of dictionaries."""
    with whole_file(path) as file:
        pickle.dump(records, file, protocol=4)
