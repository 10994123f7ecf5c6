"""A set of simulated RGB-D fragments in the formats of 3DMatch."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Interval

from pcnn.datasets.readers.fragments import numbered_fragments, read_fragment
from pcnn.datasets.registration.gt_files import write_scene
from pcnn.datasets.registration.make_gt import read_pose, scene_pairs
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.ranges import Natural, Seed, Workers
from pcnn.simulate.driver import SetPlan, Task, available_cores, write_set
from pcnn.simulate.interiors.camera_path import camera_path, draw_motion
from pcnn.simulate.interiors.classes import ROOM_TYPES
from pcnn.simulate.interiors.depth_camera import draw_camera
from pcnn.simulate.interiors.fragment import FRAMES, Drift, Fusion, take_fragment
from pcnn.simulate.interiors.fusion import VOXEL, voxel_means, voxel_samples
from pcnn.simulate.interiors.room import build_room
from pcnn.simulate.interiors.settings import Split
from pcnn.simulate.interiors.threedmatch_files import (
    pair_record,
    write_fragment,
    write_pairs,
)
from pcnn.simulate.interiors.version import VERSION

FusionName = Literal["samples", "means", "tsdf"]

_CHUNK = 8  # fragments of one scene that one process takes
_SPLITS: tuple[Split, ...] = ("train", "val", "test")
# the kinds of rooms of 3DMatch: those of S3DIS, and rooms with beds
_TYPES = (*ROOM_TYPES, "guestRoom")


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
        return _TYPES[(7 * self.index + 5 * _SPLITS.index(self.split) + 8) % len(_TYPES)]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"simulated-{self.split}-{self.index:03d}-{self.room_type}"

    @property
    def part(self) -> str:
        """The folder under data/: scenes for validation lie beside those for training."""
        return "test" if self.split == "test" else "train"

    def stream(self, *key: int) -> np.random.Generator:
        """Return a random stream of the scene."""
        return np.random.default_rng([self.seed, _SPLITS.index(self.split), self.index, *key])


@dataclass(frozen=True)
class Job:
    """Fragments first..last - 1 of a scene."""

    scene: Scene
    first: int
    last: int
    fusion: FusionName


def simulate_fragments(
    root: str | Path,
    *,
    seed: Seed = 0,
    train_scenes: Natural = 8,
    val_scenes: Natural = 2,
    test_scenes: Natural = 2,
    fragments: Annotated[int, Interval(ge=2, le=10_000)] = 16,
    fusion: FusionName = "samples",
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
    whatever `workers` is; interrupted, the same call goes on where it stopped.

    Args:
        root: the folder to write.
        seed: of all randomness, at least 0.
        train_scenes: rooms for training.
        val_scenes: rooms for validation, of shifted settings.
        test_scenes: rooms of the benchmark lists, of shifted settings.
        fragments: of every scene, at least 2.
        fusion: `samples` (see `voxel_samples`), `means` (`voxel_means`) or `tsdf` (Open3D).
        workers: processes; None takes every core, 1 works in this one. More than one need the
            usual `if __name__ == "__main__":` in a script.
        progress: show a progress bar on a terminal, two lines elsewhere.

    Returns:
        The root, as an absolute path.

    Raises:
        ValueError: counts, a seed or a fusion that make no sense.
        FileExistsError: the root holds something else than the set asked for.
        ImportError: `tsdf` without Open3D.
    """
    counts = (train_scenes, val_scenes, test_scenes)
    if min(counts) < 0 or sum(counts) == 0 or fragments < 2 or seed < 0:
        raise ValueError(
            f"train_scenes={train_scenes}, val_scenes={val_scenes}, test_scenes={test_scenes}, "
            f"fragments={fragments}, seed={seed}: give at least one scene, two fragments a scene, "
            "and a seed of at least 0"
        )
    fuse_by(fusion)  # an unknown or missing one is told before work begins
    request = {
        "format": "threedmatch",
        "version": VERSION,
        "seed": seed,
        "train_scenes": train_scenes,
        "val_scenes": val_scenes,
        "test_scenes": test_scenes,
        "fragments": fragments,
        "fusion": fusion,
    }
    scenes = [
        Scene(seed, split, index, fragments)
        for split, count in zip(_SPLITS, counts, strict=True)
        for index in range(count)
    ]
    jobs = [
        Job(scene, first, min(first + _CHUNK, fragments), fusion)
        for scene in scenes
        for first in range(0, fragments, _CHUNK)
    ]
    plan = SetPlan(
        request,
        [Task(f"{j.scene.name}-{j.first:04d}", j, j.last - j.first) for j in jobs],
        prepare=_prepare,
        do=do_job,
        finish=partial(_finish, scenes, jobs, workers),
        unit="fragment",
    )
    return write_set(root, plan, workers=workers, progress=progress)


def fuse_by(name: FusionName) -> Fusion:
    """Return the fusion of a name.

    Raises:
        ValueError: an unknown name.
        ImportError: `tsdf` without Open3D.
    """
    if name == "samples":
        return voxel_samples
    if name == "means":
        return voxel_means
    if name == "tsdf":
        from pcnn.simulate.interiors.tsdf import tsdf_points

        return tsdf_points()
    raise ValueError(f"fusion {name!r} is unknown; use 'samples', 'means' or 'tsdf'")


def _prepare(folder: Path) -> None:
    (folder / "data").mkdir(exist_ok=True)


def do_job(folder: Path, job: Job) -> dict[str, Any]:
    """Take and write the fragments of one job; return their points and the scene's settings."""
    scene, rng = job.scene, job.scene.stream()
    room = build_room(rng, scene.room_type, scene.split)
    camera, motion = draw_camera(rng), draw_motion(rng)
    drift = Drift(*(round(float(v), 6) for v in rng.uniform((0.0002, 0.0001), (0.001, 0.0005))))
    path = camera_path(rng, room, motion, scene.fragments * FRAMES)
    fuse = fuse_by(job.fusion)
    points = []
    for number in range(job.first, job.last):
        poses = path[number * FRAMES : (number + 1) * FRAMES]
        cloud = take_fragment(scene.stream(number), room, camera, poses, drift, fuse)
        target = folder / "data" / scene.part / scene.name
        write_fragment(target, scene.name, number, cloud, poses[0], FRAMES)
        points.append(len(cloud))
    described = {
        "room": asdict(room.settings),
        "camera": asdict(camera),
        "motion": asdict(motion),
        "drift": asdict(drift),
    }
    return {"points": points, "settings": described}


def related(folder: Path) -> tuple[list[RegistrationPair], dict[tuple[int, int], float]]:
    """Relate all fragments of a written scene by their true poses.

    Args:
        folder: of the scene.

    Returns:
        The pairs that overlap by more than a tenth, and the overlap of every pair.
    """
    files = numbered_fragments(folder)
    # a camera that saw nothing within three metres leaves an empty cloud, which overlaps none
    clouds = {n: read_fragment(path) for n, path in files.items()}
    held = {n: cloud for n, cloud in clouds.items() if len(cloud)}
    poses = {n: read_pose(files[n]) for n in held}
    pairs, shares = scene_pairs(held, poses, folder.name, VOXEL, (0.1, 1.0))
    return pairs, {key: shares.get(key, 0.0) for key in combinations(sorted(clouds), 2)}


def _all_related(
    folders: list[Path], workers: int
) -> Iterator[tuple[list[RegistrationPair], dict[tuple[int, int], float]]]:
    if workers == 1 or len(folders) < 2:
        yield from map(related, folders)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(workers, len(folders)),
        mp_context=context,
        initializer=torch.set_num_threads,  # the processes share the cores
        initargs=(1,),
    ) as pool:
        yield from pool.map(related, folders)


def _finish(
    scenes: list[Scene],
    jobs: list[Job],
    workers: int | None,
    folder: Path,
    results: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Write pair lists and ground truth; describe every scene."""
    metadata = folder / "metadata"
    lists: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("train", "val", "3DMatch", "3DLoMatch")
    }
    record = {}
    folders = [folder / "data" / scene.part / scene.name for scene in scenes]
    found = _all_related(folders, workers or available_cores())
    for scene, (pairs, shares) in zip(scenes, found, strict=True):
        chosen: dict[str, list[RegistrationPair]] = {scene.split: pairs}
        if scene.split == "test":
            chosen = {
                "3DMatch": [pair for pair in pairs if (pair.overlap or 0.0) > 0.3],
                "3DLoMatch": [pair for pair in pairs if (pair.overlap or 0.0) <= 0.3],
            }
            for name, part in chosen.items():
                target = metadata / "benchmarks" / name / scene.name
                write_scene(target, part, scene.fragments, shares)
        for name, part in chosen.items():
            lists[name] += [pair_record(pair, scene.part) for pair in part]
        own = [results[f"{j.scene.name}-{j.first:04d}"] for j in jobs if j.scene == scene]
        record[scene.name] = {
            "split": scene.split,
            "room_type": scene.room_type,
            "points": [count for result in own for count in result["points"]],
            "pairs": {name: len(part) for name, part in chosen.items()},
            "settings": own[0]["settings"],
        }
    for name, records in lists.items():
        write_pairs(metadata / f"{name}.pkl", records)
    return {"scenes": record}
