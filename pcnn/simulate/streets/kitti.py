"""A set of simulated streets in the files of SemanticKITTI and KITTI odometry."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.ranges import Count, Natural, Seed
from pcnn.simulate.mesh import Floats
from pcnn.simulate.simulator import SetPlan, Simulator, Split, Task
from pcnn.simulate.streets.drive import REVOLUTION
from pcnn.simulate.streets.street import Street, View

# A job builds its stretch of street once; how scans are grouped never depends on the number of
# workers.
_SCANS_PER_JOB = 4

# Camera 0 looks forward (x right, y down, z forward), 27 cm before and 8 cm below the sensor
TO_CAMERA = np.array([[0.0, -1, 0, 0], [0, 0, -1, -0.08], [1, 0, 0, -0.27], [0, 0, 0, 1]])
_PROJECTION = np.array([[710.0, 0, 610, 0], [0, 710, 185, 0], [0, 0, 1, 0]])
_BASELINES = (0.0, -380.0, 45.0, -335.0)  # focal length times offset of cameras 0-3


@dataclass(frozen=True)
class Sequence:
    """The scans of one sequence; scan i is frame i * stride of a 10 Hz drive."""

    seed: int
    number: int
    split: Split
    scans: int
    stride: int

    @property
    def name(self) -> str:
        return f"{self.number:02d}"

    def street(self) -> Street:
        return Street(self.seed, self.number, self.split)


Job = tuple[Sequence, range]  # neighbouring scans of one sequence


def plan_kitti(
    *,
    seed: Seed = 0,
    train_scans: Natural = 40,
    val_scans: Natural = 8,
    frame_stride: Count = 15,
) -> SetPlan[Job]:
    """Plan simulated streets in the formats of SemanticKITTI and KITTI odometry.

    Sequences 00-07, 09 and 10 share the training scans evenly, 08 holds the validation scans, from
    streets of other seeds and of shifted settings. A sequence that gets no scan is not written.
    """
    # here, for it brings torch along, which the processes that simulate have no use for
    from pcnn.datasets.semantic_kitti import TRAIN_SEQUENCES, VAL_SEQUENCES

    if train_scans + val_scans < 1:
        raise ValueError("train_scans and val_scans: at least one scan must be asked for")
    shares: list[tuple[Any, Split, int]] = [
        (TRAIN_SEQUENCES, "train", train_scans),
        (VAL_SEQUENCES, "val", val_scans),
    ]
    sequences = [
        Sequence(seed, number, split, count, frame_stride)
        for numbers, split, total in shares
        for place, number in enumerate(numbers)
        if (count := total // len(numbers) + (place < total % len(numbers)))
    ]
    jobs = [
        (sequence, range(sequence.scans)[start : start + _SCANS_PER_JOB])
        for sequence in sequences
        for start in range(0, sequence.scans, _SCANS_PER_JOB)
    ]
    tasks = [Task(_name(job), job, len(job[1])) for job in jobs]
    return SetPlan(tasks, do_job, partial(_finish, jobs), unit="scan")


def _name(job: Job) -> str:
    return f"{job[0].name}-{job[1][0]:06d}"


def do_job(folder: Path, job: Job) -> dict[str, int]:
    """Take and write the scans of one job; return the number of points of each raw id."""
    sequence, scans = job
    view, counts = View(sequence.street(), [n * sequence.stride for n in scans]), Counter[str]()
    for index in scans:
        scan = view.scan(index * sequence.stride)
        own = folder / "sequences" / sequence.name
        for name in ("velodyne", "labels"):
            (own / name).mkdir(parents=True, exist_ok=True)
        (own / "velodyne" / f"{index:06d}.bin").write_bytes(scan.points.astype("<f4").tobytes())
        (own / "labels" / f"{index:06d}.label").write_bytes(scan.labels.astype("<u4").tobytes())
        raw_ids, points = np.unique(scan.labels, return_counts=True)
        counts.update({str(r): int(p) for r, p in zip(raw_ids, points, strict=True)})
    return dict(counts)


def _finish(
    jobs: list[Job], root: Path, counts: dict[str, dict[str, int]], workers: int
) -> dict[str, Any]:
    """Write poses and calibrations; describe every sequence."""
    record = {}
    (root / "poses").mkdir(exist_ok=True)
    for sequence in dict.fromkeys(sequence for sequence, _ in jobs):
        street, folder = sequence.street(), root / "sequences" / sequence.name
        times = [scan * sequence.stride * REVOLUTION for scan in range(sequence.scans)]
        poses = poses_text([street.drive.pose(time) for time in times])
        (folder / "calib.txt").write_text(calibration_text())
        (folder / "times.txt").write_text("".join(f"{time:.6e}\n" for time in times))
        (folder / "poses.txt").write_text(poses)
        (root / "poses" / f"{sequence.name}.txt").write_text(poses)
        points = Counter[str]()
        for job in jobs:
            points.update(counts[_name(job)] if job[0] == sequence else {})
        record[sequence.name] = {
            "split": sequence.split,
            "scans": sequence.scans,
            "points": sum(points.values()),
            "points_by_raw_id": {raw: points[raw] for raw in sorted(points, key=int)},
            "settings": asdict(street.settings),
            "sensor": asdict(street.sensor_settings),
        }
    return {"sequences": record}


def calibration_text() -> str:
    """The content of calib.txt: four projections 3 x 4 and `Tr`."""
    lines = [
        f"P{camera}: {_row(_PROJECTION + np.array([[0, 0, 0, shift], [0] * 4, [0] * 4]))}"
        for camera, shift in enumerate(_BASELINES)
    ]
    return "\n".join([*lines, f"Tr: {_row(TO_CAMERA)}"]) + "\n"


def poses_text(sensor_poses: list[Floats]) -> str:
    """The content of a pose file: camera 0 of every scan in camera 0 of the first.

    P_i = Tr inv(V_0) V_i inv(Tr), so that inv(Tr) P_i Tr is the pose of the sensor in its first
    pose.
    """
    to_first = TO_CAMERA @ np.linalg.inv(sensor_poses[0])
    back = np.linalg.inv(TO_CAMERA)
    return "".join(_row(to_first @ pose @ back) + "\n" for pose in sensor_poses)


def _row(transform: Floats) -> str:
    return " ".join(f"{value:.12e}" for value in transform[:3].reshape(-1))


KITTI = Simulator("kitti", "8", plan_kitti)
