"""Small training sets in the formats that are published."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.registration.gt_files import scene_pairs
from pcnn.registration.transforms import inverse, transform_points
from tests.datasets.registration.scenes import fragments, world, write_fragments
from tests.registration.poses import shifted, turned


def listed_pairs(pose: np.ndarray) -> tuple[object, object]:
    """One pair of scene s, fragment 7 onto 3, as Predator lists it and as GeoTransformer does."""
    predator = {
        "src": ["test/s/cloud_bin_7.pth"],
        "tgt": ["test/s/cloud_bin_3.pth"],
        "rot": [pose[:3, :3]],
        "trans": [pose[:3, 3:]],
        "overlap": [np.float64(0.4)],
    }
    geotransformer = {
        "overlap": np.float64(0.4),
        "pcd0": "test/s/cloud_bin_3.pth",
        "pcd1": "test/s/cloud_bin_7.pth",
        "rotation": pose[:3, :3],
        "translation": pose[:3, 3],
        "scene_name": "s",
        "frag_id0": 3,
        "frag_id1": 7,
    }
    return predator, [geotransformer]


def write_predator(root: Path, scenes: tuple[str, ...] = ("a", "b"), number: int = 4) -> None:
    """Predator's archive: fragments, train_info.pkl of all scenes but the last, val_info.pkl."""
    pairs = scene_pairs(*fragments(number), "scene", overlaps=(0.02, 1.0))
    for scene in scenes:
        write_fragments(root / "indoor" / "train" / scene, number)
    for name, chosen in (("train", scenes[:-1]), ("val", scenes[-1:])):
        listed = [(scene, pair) for scene in chosen for pair in pairs]
        content = {
            "src": [f"train/{scene}/cloud_bin_{pair.source}.pth" for scene, pair in listed],
            "tgt": [f"train/{scene}/cloud_bin_{pair.target}.pth" for scene, pair in listed],
            "rot": [pair.transform[:3, :3].numpy() for _, pair in listed],
            "trans": [pair.transform[:3, 3:].numpy() for _, pair in listed],
            "overlap": [pair.overlap for _, pair in listed],
        }
        (root / "configs" / "indoor").mkdir(parents=True, exist_ok=True)
        (root / "configs" / "indoor" / f"{name}_info.pkl").write_bytes(pickle.dumps(content))


def write_drive(
    root: Path, sequence: int, frames: int = 5, points: int = 3000
) -> dict[str, Tensor]:
    """A sequence of scans of one place, 3 m apart, with calibration and poses."""
    calibration = shifted(0.1, -0.2, 0.3) @ turned((1, 0.2, 0), 88)
    places = [turned((0, 0, 1), 3.0 * f) @ shifted(3.0 * f, 0, 0) for f in range(frames)]
    camera = torch.stack([calibration @ place @ inverse(calibration) for place in places])
    folder = root / "sequences" / f"{sequence:02d}"
    (folder / "velodyne").mkdir(parents=True)
    (root / "poses").mkdir(exist_ok=True)
    np.savetxt(root / "poses" / f"{sequence:02d}.txt", camera[:, :3].reshape(-1, 12).numpy())
    rows = " ".join(f"{v:.12e}" for v in calibration[:3].reshape(-1).tolist())
    (folder / "calib.txt").write_text(f"P0: {rows}\nTr: {rows}\n")
    scene = world(points=points) * 4
    for frame, place in enumerate(places):
        seen = transform_points(inverse(place), scene).float()
        scan = torch.cat([seen, torch.zeros(len(seen), 1)], 1)
        scan.numpy().tofile(folder / "velodyne" / f"{frame:06d}.bin")
    return {"camera": camera, "calibration": calibration, "places": torch.stack(places)}
