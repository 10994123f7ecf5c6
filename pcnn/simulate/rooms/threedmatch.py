"""A set of simulated RGB-D fragments in the files of 3DMatch.

A fragment is fifty frames of a hand-held depth camera, fused.
"""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pcnn.datasets.readers.fragments import numbered_fragments, read_fragment
from pcnn.datasets.registration.gt_files import read_pose, scene_pairs, write_scene
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.files.whole_file import whole_file
from pcnn.ranges import Fragments, Natural, Seed
from pcnn.simulate.mesh import Floats
from pcnn.simulate.rooms.depth_camera import VOXEL, DepthCamera, fuse, measure
from pcnn.simulate.rooms.furnish import build_room
from pcnn.simulate.rooms.room import TYPES, Room
from pcnn.simulate.rooms.walk import Motion, walk_through
from pcnn.simulate.simulator import (
    SPLITS,
    SetPlan,
    Simulator,
    Split,
    Task,
    draw,
    in_processes,
)

FRAMES = 50  # that make one fragment
_LEAST, _MANY = 0.1, 0.3  # overlap of listed pairs, and of those of 3DMatch


def drifted(rng: np.random.Generator, poses: Floats, motion: Motion) -> Floats:
    """Pose estimates whose errors grow like a random walk; the first is exact."""
    error = np.eye(4)
    estimates = [poses[0]]
    for pose in poses[1:]:
        x, y, z = motion.drift_turn * rng.standard_normal(3)
        step = np.eye(4)
        skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        step[:3, :3] += skew + skew @ skew / 2  # Rodrigues' formula for a small angle
        step[:3, 3] = motion.drift_shift * rng.standard_normal(3)
        error = error @ step
        estimates.append(pose @ error)
    return np.stack(estimates)


def take_fragment(
    rng: np.random.Generator, room: Room, camera: DepthCamera, poses: Floats, motion: Motion
) -> NDArray[np.float64]:
    """Record frames along poses and fuse them as the operator would, not knowing the truth."""
    images = [measure(rng, camera, room, pose) for pose in poses]
    back = np.linalg.inv(poses[0])
    return fuse(camera, images, [back @ pose for pose in drifted(rng, poses, motion)])


@dataclass(frozen=True)
class Scene:
    """One room that one camera is carried through."""

    seed: int
    split: Split
    index: int  # in its split
    fragments: int

    @property
    def room_type(self) -> str:
        """The type of its room: all take turns, beginning elsewhere in each split."""
        return list(TYPES)[(7 * self.index + 5 * SPLITS.index(self.split) + 8) % len(TYPES)]

    @property
    def name(self) -> str:
        return f"simulated-{self.split}-{self.index:03d}-{self.room_type}"

    @property
    def part(self) -> str:
        """The folder under data/: scenes for validation lie beside those for training."""
        return "test" if self.split == "test" else "train"

    def stream(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, SPLITS.index(self.split), self.index, *key])


def plan_fragments(
    *,
    seed: Seed = 0,
    train_scenes: Natural = 8,
    val_scenes: Natural = 2,
    test_scenes: Natural = 2,
    fragments: Fragments = 16,
) -> SetPlan[Scene]:
    """Plan fragments of simulated rooms in the formats of 3DMatch.

    A hand-held depth camera is carried through furnished rooms; 50 frames each are fused. The
    layout is that of the usual preprocessed set: `data/{train,test}/SCENE/cloud_bin_N.pth` with
    `cloud_bin_N.info.txt`, `metadata/{train,val,3DMatch,3DLoMatch}.pkl`, and for test scenes
    `metadata/benchmarks/{3DMatch,3DLoMatch}/SCENE/{gt.log,gt.info}`. Pairs for
    training and validation overlap by a tenth at least; 3DMatch holds the pairs above 0.3,
    3DLoMatch those from 0.1 to 0.3. Poses are the true ones; the fused frames were placed with
    slightly wrong ones.
    """
    counts = (train_scenes, val_scenes, test_scenes)
    if sum(counts) == 0:
        raise ValueError("train_scenes, val_scenes, test_scenes: at least one must be asked for")
    scenes = [
        Scene(seed, split, index, fragments)
        for split, count in zip(SPLITS, counts, strict=True)
        for index in range(count)
    ]
    tasks = [Task(scene.name, scene, fragments) for scene in scenes]
    return SetPlan(tasks, do_scene, partial(_finish, scenes), unit="fragment")


def do_scene(folder: Path, scene: Scene) -> dict[str, Any]:
    """Take and write the fragments of a scene; return their points and the scene's settings."""
    rng = scene.stream()
    room = build_room(rng, scene.room_type, scene.split)
    camera, motion = DepthCamera(**draw(rng, DepthCamera)), Motion(**draw(rng, Motion))
    path = walk_through(rng, room, motion, scene.fragments * FRAMES)
    points = []
    for number in range(scene.fragments):
        poses = path[number * FRAMES : (number + 1) * FRAMES]
        cloud = take_fragment(scene.stream(number), room, camera, poses, motion)
        _write_fragment(folder / "data" / scene.part / scene.name, number, cloud, poses[0])
        points.append(len(cloud))
    drawn = {"room": asdict(room.settings), "camera": asdict(camera), "motion": asdict(motion)}
    return {"points": points, "settings": drawn}


def _write_fragment(folder: Path, number: int, points: Floats, pose: Floats) -> None:
    """Write cloud_bin_N.pth (float64 [N, 3]) and cloud_bin_N.info.txt, its pose in the scene."""
    with whole_file(folder / f"cloud_bin_{number}.pth") as file:
        torch.save(points, file)
    first = number * FRAMES
    lines = [f"{folder.name}\t seq-01\t {first}\t {first + FRAMES - 1}\t\n"]
    # the published files have tabs and nine digits
    lines += ["\t ".join(f"{value: .8e}" for value in row) + "\t\n" for row in pose]
    with whole_file(folder / f"cloud_bin_{number}.info.txt") as file:
        file.write("".join(lines).encode())


def related(folder: Path) -> list[RegistrationPair]:
    """The pairs of a scene that are listed."""
    files = numbered_fragments(folder)
    # a camera that saw nothing within three metres leaves an empty cloud, which overlaps none
    clouds = {number: read_fragment(path) for number, path in files.items()}
    held = {number: cloud for number, cloud in clouds.items() if len(cloud)}
    poses = {n: read_pose(files[n]) for n in held}
    return scene_pairs(held, poses, folder.name, VOXEL, (_LEAST, 1.0))


def _finish(
    scenes: list[Scene], folder: Path, results: dict[str, dict[str, Any]], workers: int
) -> dict[str, Any]:
    """Write pair lists and ground truth; describe every scene."""
    folders = [folder / "data" / scene.part / scene.name for scene in scenes]
    found = dict(in_processes(related, folders, workers))
    lists: dict[str, list[Any]] = {name: [] for name in ("train", "val", "3DMatch", "3DLoMatch")}
    record = {}
    for number, scene in enumerate(scenes):
        pairs = found[number]
        chosen: dict[str, list[RegistrationPair]] = {scene.split: pairs}
        if scene.split == "test":
            order = sorted(pairs, key=lambda pair: pair.overlap or 0.0, reverse=True)
            most = sum((pair.overlap or 0.0) > _MANY for pair in pairs)
            chosen = {"3DMatch": order[:most], "3DLoMatch": order[most:]}
            for name, part in chosen.items():
                target = folder / "metadata" / "benchmarks" / name / scene.name
                write_scene(target, part, scene.fragments)
        for name, part in chosen.items():
            lists[name] += [_listed(pair, scene.part) for pair in part]
        record[scene.name] = {
            "split": scene.split,
            "room_type": scene.room_type,
            "pairs": {name: len(part) for name, part in chosen.items()},
            **results[scene.name],
        }
    for name, records in lists.items():
        with whole_file(folder / "metadata" / f"{name}.pkl") as file:
            pickle.dump(records, file, protocol=4)
    return {"scenes": record}


def _listed(pair: RegistrationPair, part: str) -> dict[str, Any]:
    """A pair as the published pickles list it: the target is pcd0, the source pcd1."""
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


THREEDMATCH = Simulator("threedmatch", "4", plan_fragments)
