"""A set of simulated RGB-D fragments in the files of 3DMatch.

A fragment is fifty frames of a hand-held depth camera, fused.
"""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pcnn.cores import available_cores
from pcnn.datasets.readers.fragments import numbered_fragments, read_fragment
from pcnn.datasets.registration.gt_files import write_scene
from pcnn.datasets.registration.make_gt import read_pose, scene_pairs
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.files.whole_file import whole_file
from pcnn.ranges import Fragments, Natural, Seed, Workers
from pcnn.simulate.mesh import Floats
from pcnn.simulate.rooms.depth_camera import VOXEL, DepthCamera, draw_camera, fuse, measure
from pcnn.simulate.rooms.room import Room, build_room
from pcnn.simulate.rooms.settings import TYPES
from pcnn.simulate.rooms.walk import Motion, walk_through
from pcnn.simulate.simulator import (
    SetPlan,
    Simulator,
    Split,
    Task,
    draw,
    drawn,
    in_processes,
    write_set,
)

#: changes whenever the same seed would give other bytes
VERSION = "3"

FRAMES = 50  # that make one fragment
_CHUNK = 8  # fragments of one scene that one process takes
_SPLITS: tuple[Split, ...] = ("train", "val", "test")
_LEAST, _MANY = 0.1, 0.3  # overlap of listed pairs, and of those of 3DMatch

# pairs of a scene that are listed, and the overlap of every pair
Related = tuple[list[RegistrationPair], dict[tuple[int, int], float]]


@dataclass(frozen=True)
class Drift:
    """Errors of the operator's pose estimates, which add up from frame to frame."""

    shift: float = drawn((0.0002, 0.001))  # [m] a frame
    turn: float = drawn((0.0001, 0.0005))  # [rad] a frame


def drifted(rng: np.random.Generator, poses: Floats, drift: Drift) -> Floats:
    """Return pose estimates whose errors grow like a random walk; the first is exact."""
    error = np.eye(4)
    estimates = [poses[0]]
    for pose in poses[1:]:
        turn, shift = rng.standard_normal((2, 3))
        angle = float(np.linalg.norm(drift.turn * turn))
        x, y, z = drift.turn * turn / max(angle, 1e-12)
        cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        motion = np.eye(4)  # Rodrigues' formula
        motion[:3, :3] += np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
        motion[:3, 3] = drift.shift * shift
        error = error @ motion
        estimates.append(pose @ error)
    return np.stack(estimates)


def take_fragment(
    rng: np.random.Generator, room: Room, camera: DepthCamera, poses: Floats, drift: Drift
) -> NDArray[np.float64]:
    """Record frames along poses and fuse them as the operator would, not knowing the truth."""
    images = [measure(rng, camera, room, pose) for pose in poses]
    back = np.linalg.inv(poses[0])
    return fuse(camera, images, [back @ pose for pose in drifted(rng, poses, drift)])


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
        return list(TYPES)[(7 * self.index + 5 * _SPLITS.index(self.split) + 8) % len(TYPES)]

    @property
    def name(self) -> str:
        return f"simulated-{self.split}-{self.index:03d}-{self.room_type}"

    @property
    def part(self) -> str:
        """The folder under data/: scenes for validation lie beside those for training."""
        return "test" if self.split == "test" else "train"

    def stream(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, _SPLITS.index(self.split), self.index, *key])


@dataclass(frozen=True)
class Job:
    """Fragments first..last - 1 of a scene."""

    scene: Scene
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.scene.name}-{self.first:04d}"


def simulate_fragments(
    root: str | Path,
    *,
    seed: Seed = 0,
    train_scenes: Natural = 8,
    val_scenes: Natural = 2,
    test_scenes: Natural = 2,
    fragments: Fragments = 16,
    workers: Workers | None = None,
    progress: bool = True,
) -> Path:
    """Write fragments of simulated rooms in the formats of 3DMatch.

    A hand-held depth camera is carried through furnished rooms; 50 frames each are fused. The
    layout is that of the usual preprocessed set: `data/{train,test}/SCENE/cloud_bin_N.pth` with
    `cloud_bin_N.info.txt`, `metadata/{train,val,3DMatch,3DLoMatch}.pkl`, and for test scenes
    `metadata/benchmarks/{3DMatch,3DLoMatch}/SCENE/{gt.log,gt.info,gt_overlap.log}`. Pairs for
    training and validation overlap by a tenth at least; 3DMatch holds the pairs above 0.3,
    3DLoMatch those from 0.1 to 0.3. Poses are the true ones; the fused frames were placed with
    slightly wrong ones. Equal arguments and an equal `VERSION` give equal bytes on a machine,
    for any `workers`; interrupted, the same call goes on where it stopped.
    """
    request = {
        "format": "threedmatch",
        "version": VERSION,
        "seed": seed,
        "train_scenes": train_scenes,
        "val_scenes": val_scenes,
        "test_scenes": test_scenes,
        "fragments": fragments,
    }
    counts = (train_scenes, val_scenes, test_scenes)
    if min(*counts, seed, fragments - 2) < 0 or sum(counts) == 0:
        raise ValueError(f"at least one scene of two fragments must be asked for, got {request}")
    jobs = [
        Job(Scene(seed, split, index, fragments), first, min(first + _CHUNK, fragments))
        for split, count in zip(_SPLITS, counts, strict=True)
        for index in range(count)
        for first in range(0, fragments, _CHUNK)
    ]
    plan = SetPlan(
        request,
        [Task(job.name, job, job.last - job.first) for job in jobs],
        prepare=lambda folder: (folder / "data").mkdir(exist_ok=True),
        do=do_job,
        finish=partial(finish, jobs, workers or available_cores()),
        unit="fragment",
    )
    return write_set(root, plan, workers=workers, progress=progress)


def do_job(folder: Path, job: Job) -> dict[str, Any]:
    """Take and write the fragments of one job; return their points and the scene's settings."""
    scene, rng = job.scene, job.scene.stream()
    room = build_room(rng, scene.room_type, scene.split)
    camera, motion, drift = draw_camera(rng), Motion(**draw(rng, Motion)), Drift(**draw(rng, Drift))
    path = walk_through(rng, room, motion, scene.fragments * FRAMES)
    points = []
    for number in range(job.first, job.last):
        poses = path[number * FRAMES : (number + 1) * FRAMES]
        cloud = take_fragment(scene.stream(number), room, camera, poses, drift)
        _write_fragment(folder / "data" / scene.part / scene.name, number, cloud, poses[0])
        points.append(len(cloud))
    described = {
        "room": asdict(room.settings),
        "camera": asdict(camera),
        "motion": asdict(motion),
        "drift": asdict(drift),
    }
    return {"points": points, "settings": described}


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


def related(folder: Path) -> Related:
    files = numbered_fragments(folder)
    # a camera that saw nothing within three metres leaves an empty cloud, which overlaps none
    clouds = {number: read_fragment(path) for number, path in files.items()}
    held = {number: cloud for number, cloud in clouds.items() if len(cloud)}
    poses = {n: read_pose(files[n]) for n in held}
    pairs, shares = scene_pairs(held, poses, folder.name, VOXEL, (_LEAST, 1.0))
    return pairs, {key: shares.get(key, 0.0) for key in combinations(sorted(files), 2)}


def finish(
    jobs: list[Job], workers: int, folder: Path, results: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Write pair lists and ground truth; describe every scene."""
    scenes = list(dict.fromkeys(job.scene for job in jobs))
    folders = [folder / "data" / scene.part / scene.name for scene in scenes]
    found = dict(in_processes(related, folders, workers))
    lists: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("train", "val", "3DMatch", "3DLoMatch")
    }
    record = {}
    for number, scene in enumerate(scenes):
        pairs, shares = found[number]
        chosen: dict[str, list[RegistrationPair]] = {scene.split: pairs}
        if scene.split == "test":
            chosen = {
                "3DMatch": [pair for pair in pairs if (pair.overlap or 0.0) > _MANY],
                "3DLoMatch": [pair for pair in pairs if (pair.overlap or 0.0) <= _MANY],
            }
            for name, part in chosen.items():
                target = folder / "metadata" / "benchmarks" / name / scene.name
                write_scene(target, part, scene.fragments, shares)
        for name, part in chosen.items():
            lists[name] += [_listed(pair, scene.part) for pair in part]
        own = [results[job.name] for job in jobs if job.scene == scene]
        record[scene.name] = {
            "split": scene.split,
            "room_type": scene.room_type,
            "points": [count for result in own for count in result["points"]],
            "pairs": {name: len(part) for name, part in chosen.items()},
            "settings": own[0]["settings"],
        }
    for name, records in lists.items():
        with whole_file(folder / "metadata" / f"{name}.pkl") as file:
            pickle.dump(records, file, protocol=4)
    return {"scenes": record}


def _listed(pair: RegistrationPair, part: str) -> dict[str, Any]:
    """Return a pair as the published pickles list it: the target is pcd0, the source pcd1."""
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


THREEDMATCH = Simulator("threedmatch", VERSION, simulate_fragments)
