"""A set of simulated streets: its plan, its tasks and its record."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.ranges import Count, Natural, Seed, Workers
from pcnn.simulate.driver import SetPlan, Task, write_set
from pcnn.simulate.marker import VERSION
from pcnn.simulate.streets.plan import Job, SequencePlan, plan_jobs, plan_sequences
from pcnn.simulate.streets.street import Street
from pcnn.simulate.streets.trajectory import FRAME_RATE
from pcnn.simulate.streets.view import View
from pcnn.simulate.streets.writer import write_scan, write_sequence

# points by raw id
Counts = dict[str, int]


def simulate_kitti(
    root: str | Path,
    *,
    seed: Seed = 0,
    train_scans: Natural = 40,
    val_scans: Natural = 8,
    workers: Workers | None = None,
    progress: bool = True,
    frame_stride: Count = 15,
) -> Path:
    """Write simulated streets in the formats of SemanticKITTI and KITTI odometry.

    Sequences 00-07, 09 and 10 share the training scans evenly, 08 holds the validation scans, from
    streets of other seeds and of shifted settings. A sequence that gets no scan is not written.
    Equal arguments and an equal `VERSION` give equal bytes on a machine, whatever `workers` is. The
    set is built in a hidden folder beside `root` and renamed when it is whole; interrupted, the
    same call goes on where it stopped (`pcnn.simulate.driver`).

    Args:
        root: the folder to write; it will hold `sequences/`, `poses/` and `SIMULATED.json`.
        seed: of all randomness, at least 0.
        train_scans: number of training scans in all.
        val_scans: number of validation scans in all.
        workers: processes; None takes every core, 1 works in this one. More than one need the
            usual `if __name__ == "__main__":` in a script.
        progress: show a progress bar on a terminal, two lines elsewhere.
        frame_stride: 10 Hz frames from one scan to the next; 15 are about 12 m of driving.

    Returns:
        The root, as an absolute path.

    Raises:
        ValueError: a count or a seed that makes no sense.
        FileExistsError: the root holds something else than the set asked for.
    """
    if seed < 0:
        raise ValueError(f"seed={seed}: give a seed of at least 0")
    request = {
        "format": "semantic_kitti",
        "version": VERSION,
        "seed": seed,
        "train_scans": train_scans,
        "val_scans": val_scans,
        "frame_stride": frame_stride,
    }
    plans = plan_sequences(train_scans, val_scans, frame_stride)
    jobs = plan_jobs(seed, plans)
    plan = SetPlan(
        request,
        [Task(job.name, job, len(job.scans)) for job in jobs],
        prepare=partial(_prepare, seed, plans),
        do=do_job,
        finish=partial(_record, seed, plans, jobs),
        unit="scan",
    )
    return write_set(root, plan, workers=workers, progress=progress)


def _prepare(seed: int, plans: list[SequencePlan], folder: Path) -> None:
    """Write the folders, calibrations, times and poses of all sequences."""
    for plan in plans:
        street = Street(seed, plan.sequence, plan.split)
        times = [frame / FRAME_RATE for frame in plan.frames()]
        poses = [street.drive.pose(time) for time in times]
        write_sequence(folder, plan.sequence, poses, times)


def _record(
    seed: int,
    plans: list[SequencePlan],
    jobs: list[Job],
    folder: Path,
    counts: dict[str, Counts],
) -> dict[str, Any]:
    """Describe every sequence: split, scans, points by raw id, settings."""
    record = {}
    for plan in plans:
        points: Counter[str] = Counter()
        for job in jobs:
            if job.sequence == plan.sequence:
                points.update(counts[job.name])
        street = Street(seed, plan.sequence, plan.split)
        times = [frame / FRAME_RATE for frame in plan.frames()]
        span = street.drive.along(times[0]), street.drive.along(times[-1])
        record[f"{plan.sequence:02d}"] = {
            "split": plan.split,
            "scans": plan.scans,
            "points": sum(points.values()),
            "points_by_raw_id": {raw: points[raw] for raw in sorted(points, key=int)},
            "settings": asdict(street.settings),
            "sensor": asdict(street.sensor_settings),
            "districts": {str(n): asdict(d) for n, d in street.districts(*span).items()},
        }
    return {"sequences": record}


def do_job(folder: Path, job: Job) -> Counts:
    """Take and write the scans of one job; return how many points each raw id got."""
    view = View(Street(job.seed, job.sequence, job.split), [frame for _, frame in job.scans])
    counts: Counter[str] = Counter()
    for index, frame in job.scans:
        scan = view.scan(frame)
        write_scan(folder / "sequences" / f"{job.sequence:02d}", index, scan)
        raw_ids, points = np.unique(scan.labels & 0xFFFF, return_counts=True)
        counts.update({str(r): int(p) for r, p in zip(raw_ids, points, strict=True)})
    return dict(counts)
