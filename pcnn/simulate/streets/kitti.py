"""A set of simulated streets in the files of SemanticKITTI and KITTI odometry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from pcnn.ranges import Count, Natural, Seed, Workers
from pcnn.simulate.mesh import Floats
from pcnn.simulate.simulator import SetPlan, Simulator, Split, Task, write_set
from pcnn.simulate.streets.drive import REVOLUTION
from pcnn.simulate.streets.lidar import Scan
from pcnn.simulate.streets.settings import Sensors
from pcnn.simulate.streets.street import Street, View

#: changes whenever the same seed would give other bytes
VERSION = "5"

# A job builds its stretch of street once; how scans are grouped never depends on the number of
# workers.
_SCANS_PER_JOB = 4

# Camera 0 looks forward (x right, y down, z forward), 27 cm before and 8 cm below the sensor,
# turned by a few thousandths as a real mounting is.
_TILT = np.array([[1.0, -0.004, 0.002], [0.004, 1.0, -0.006], [-0.002, 0.006, 1.0]])
_AXES = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
_FOCAL, _CENTRE = 710.0, (610.0, 185.0)
_BASELINES = (0.0, -380.0, 45.0, -335.0)  # focal length times offset of cameras 0-3


@dataclass(frozen=True)
class Job:
    """Neighbouring scans of one sequence; scan i is frame i * frame_stride of a 10 Hz drive."""

    seed: int
    sequence: int
    split: Split
    scans: range
    frame_stride: int
    sensors: Sensors = "hdl64"

    @property
    def name(self) -> str:
        return f"{self.sequence:02d}-{self.scans[0]:06d}"

    @property
    def frames(self) -> list[int]:
        return [scan * self.frame_stride for scan in self.scans]

    def street(self) -> Street:
        return Street(self.seed, self.sequence, self.split, self.sensors)


def simulate_kitti(
    root: str | Path,
    *,
    seed: Seed = 0,
    train_scans: Natural = 40,
    val_scans: Natural = 8,
    workers: Workers | None = None,
    progress: bool = True,
    frame_stride: Count = 15,
    sensors: Sensors = "hdl64",
) -> Path:
    """Write simulated streets in the formats of SemanticKITTI and KITTI odometry.

    Sequences 00-07, 09 and 10 share the training scans evenly, 08 holds the validation scans, from
    streets of other seeds and of shifted settings. A sequence that gets no scan is not written.
    Equal arguments and an equal `VERSION` give equal bytes on a machine, for any `workers`. The
    set is built in a hidden folder beside `root` and renamed when it is whole; interrupted, the
    same call goes on where it stopped (`pcnn.simulate.simulator`).
    """
    if min(seed, train_scans, val_scans, frame_stride - 1, train_scans + val_scans - 1) < 0:
        raise ValueError(
            "seed and scans must be at least 0, one scan must be asked for, and frame_stride must "
            f"be at least 1, got {seed}, {train_scans} and {val_scans}, {frame_stride}"
        )
    if sensors not in get_args(Sensors):
        raise ValueError(f"sensors must be one of {', '.join(get_args(Sensors))}, got {sensors!r}")
    request: dict[str, Any] = {
        "format": "semantic_kitti",
        "version": VERSION,
        "seed": seed,
        "train_scans": train_scans,
        "val_scans": val_scans,
        "frame_stride": frame_stride,
    }
    if sensors != "hdl64":
        request["sensors"] = sensors
    sequences = plan_sequences(seed, train_scans, val_scans, frame_stride, sensors)
    jobs = [job for whole in sequences for job in cut(whole)]
    plan = SetPlan(
        request,
        [Task(job.name, job, len(job.scans)) for job in jobs],
        prepare=partial(_write_sequences, sequences),
        do=do_job,
        finish=partial(_record, sequences),
        unit="scan",
    )
    return write_set(root, plan, workers=workers, progress=progress)


def plan_sequences(
    seed: int, train_scans: int, val_scans: int, frame_stride: int, sensors: Sensors = "hdl64"
) -> list[Job]:
    """Share the scans evenly among the official sequences; the first ones get the remainder."""
    # here, for it brings torch along, which the processes that simulate have no use for
    from pcnn.datasets.semantic_kitti import TRAIN_SEQUENCES, VAL_SEQUENCES

    shares: list[tuple[Sequence[int], Split, int]] = [
        (TRAIN_SEQUENCES, "train", train_scans),
        (VAL_SEQUENCES, "val", val_scans),
    ]
    return [
        Job(seed, sequence, split, range(count), frame_stride, sensors)
        for sequences, split, total in shares
        for place, sequence in enumerate(sequences)
        if (count := total // len(sequences) + (place < total % len(sequences)))
    ]


def cut(sequence: Job) -> list[Job]:
    """Cut the scans of a sequence into jobs for one process each."""
    starts = range(0, len(sequence.scans), _SCANS_PER_JOB)
    parts = [sequence.scans[start : start + _SCANS_PER_JOB] for start in starts]
    return [replace(sequence, scans=part) for part in parts]


def do_job(folder: Path, job: Job) -> dict[str, int]:
    """Take and write the scans of one job; return the number of points of each raw id."""
    view = View(job.street(), job.frames)
    counts: Counter[str] = Counter()
    for index, frame in zip(job.scans, job.frames, strict=True):
        scan = view.scan(frame)
        write_scan(folder / "sequences" / f"{job.sequence:02d}", index, scan)
        raw_ids, points = np.unique(scan.labels & 0xFFFF, return_counts=True)
        counts.update({str(r): int(p) for r, p in zip(raw_ids, points, strict=True)})
    return dict(counts)


def _record(
    sequences: list[Job], folder: Path, counts: dict[str, dict[str, int]]
) -> dict[str, Any]:
    """Describe every sequence: split, scans, points by raw id, settings."""
    record = {}
    for sequence in sequences:
        points: Counter[str] = Counter()
        for job in cut(sequence):
            points.update(counts[job.name])
        street, frames = sequence.street(), sequence.frames
        span = (street.drive.along(frame * REVOLUTION) for frame in (frames[0], frames[-1]))
        beams = {} if sequence.sensors == "hdl64" else {"beams": len(street.lidar.elevations)}
        record[f"{sequence.sequence:02d}"] = {
            "split": sequence.split,
            "scans": len(sequence.scans),
            "points": sum(points.values()),
            "points_by_raw_id": {raw: points[raw] for raw in sorted(points, key=int)},
            "settings": asdict(street.settings),
            "sensor": asdict(street.sensor_settings) | beams,
            "districts": {str(n): asdict(d) for n, d in street.districts(*span).items()},
        }
    return {"sequences": record}


def _write_sequences(sequences: list[Job], root: Path) -> None:
    (root / "poses").mkdir(exist_ok=True)
    for sequence in sequences:
        drive = sequence.street().drive
        times = [frame * REVOLUTION for frame in sequence.frames]
        name = f"{sequence.sequence:02d}"
        folder = root / "sequences" / name
        (folder / "velodyne").mkdir(parents=True, exist_ok=True)
        (folder / "labels").mkdir(exist_ok=True)
        poses = poses_text([drive.pose(time) for time in times])
        (folder / "calib.txt").write_text(calibration_text())
        (folder / "times.txt").write_text("".join(f"{time:.6e}\n" for time in times))
        (folder / "poses.txt").write_text(poses)
        (root / "poses" / f"{name}.txt").write_text(poses)


def write_scan(sequence_folder: Path, index: int, scan: Scan) -> None:
    """Write velodyne/NNNNNN.bin (float32 x y z remission) and labels/NNNNNN.label (uint32)."""
    name = f"{index:06d}"
    (sequence_folder / "velodyne" / f"{name}.bin").write_bytes(scan.points.astype("<f4").tobytes())
    (sequence_folder / "labels" / f"{name}.label").write_bytes(scan.labels.astype("<u4").tobytes())


def calibration_text() -> str:
    """Return the content of calib.txt: four projections 3 x 4 and `Tr`."""
    lines = []
    for camera, shift in enumerate(_BASELINES):
        projection = [[_FOCAL, 0, _CENTRE[0], shift], [0, _FOCAL, _CENTRE[1], 0], [0, 0, 1, 0]]
        lines.append(f"P{camera}: {_row(np.array(projection, float))}")
    lines.append(f"Tr: {_row(velodyne_to_camera())}")
    return "\n".join(lines) + "\n"


def velodyne_to_camera() -> Floats:
    """Return the rigid transform `Tr` [4, 4] from the sensor to camera 0."""
    transform = np.eye(4)
    u, _, vt = np.linalg.svd(_TILT)  # the nearest rotation
    transform[:3, :3] = u @ vt @ _AXES
    transform[:3, 3] = (0.0, -0.08, -0.27)
    # the poses are made with the numbers that a reader parses from the file
    return np.vstack([np.array(_row(transform).split(), float).reshape(3, 4), [0, 0, 0, 1]])


def poses_text(sensor_poses: list[Floats]) -> str:
    """Return the content of a pose file: camera 0 of every scan in camera 0 of the first.

    P_i = Tr inv(V_0) V_i inv(Tr), so that inv(Tr) P_i Tr is the pose of the sensor in its first
    pose.
    """
    transform = velodyne_to_camera()
    back = np.linalg.inv(transform)
    first = np.linalg.inv(sensor_poses[0])
    return "".join(_row(transform @ first @ pose @ back) + "\n" for pose in sensor_poses)


def _row(transform: Floats) -> str:
    return " ".join(f"{value:.12e}" for value in transform[:3].reshape(-1))


KITTI = Simulator("kitti", VERSION, simulate_kitti)
