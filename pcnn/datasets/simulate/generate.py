"""Writes a whole simulated set: complete under its final name, or not at all."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pcnn.datasets.simulate.lock import exclusive
from pcnn.datasets.simulate.marker import MARKER, VERSION, read_marker, write_marker
from pcnn.datasets.simulate.plan import Job, SequencePlan, plan_jobs, plan_sequences
from pcnn.datasets.simulate.street import Street
from pcnn.datasets.simulate.trajectory import FRAME_RATE
from pcnn.datasets.simulate.writer import write_scan, write_sequence

# points by (sequence, raw id)
Counts = Counter[tuple[int, int]]


def simulate_kitti(
    root: str | Path,
    *,
    seed: int = 0,
    train_scans: int = 40,
    val_scans: int = 8,
    workers: int = 2,
    progress: bool = True,
    frame_stride: int = 15,
) -> Path:
    """Write simulated streets in the formats of SemanticKITTI and KITTI odometry.

    Sequences 00-07, 09 and 10 share the training scans evenly, 08 holds the validation scans, from
    streets of other seeds and of shifted settings. A sequence that gets no scan is not written.
    Equal arguments and an equal `VERSION` give equal bytes on a machine, whatever `workers` is. The
    set is built in a hidden folder beside `root` and renamed when it is whole; a second process
    that asks for the same root waits and then finds it done.

    Args:
        root: the folder to write; it will hold `sequences/`, `poses/` and `SIMULATED.json`.
        seed: of all randomness, at least 0.
        train_scans: number of training scans in all.
        val_scans: number of validation scans in all.
        workers: processes; 1 works in this one, more need the usual `if __name__ == "__main__":`
            in a script.
        progress: show a progress bar on a terminal, two lines elsewhere.
        frame_stride: 10 Hz frames from one scan to the next; 15 are about 12 m of driving.

    Returns:
        The root, as an absolute path.

    Raises:
        ValueError: a count or a seed that makes no sense.
        FileExistsError: the root holds something else than the set asked for.
    """
    if workers < 1 or seed < 0:
        raise ValueError(
            f"workers={workers}, seed={seed}: give at least 1 worker and a seed of at least 0"
        )
    root = Path(root).absolute()
    request = {
        "format": "semantic_kitti",
        "version": VERSION,
        "seed": seed,
        "train_scans": train_scans,
        "val_scans": val_scans,
        "frame_stride": frame_stride,
    }
    plans = plan_sequences(train_scans, val_scans, frame_stride)
    console = Console(stderr=True, quiet=not progress)
    root.parent.mkdir(parents=True, exist_ok=True)

    def tell() -> None:
        console.print(f"waiting for another process that writes {root}")

    with exclusive(root.parent / f".{root.name}.lock", tell):
        if _is_done(root, request):
            return root
        # under the lock nobody is at work, so whatever lies here was left by a process that was
        # killed
        for stale in root.parent.glob(f".{root.name}.partial-*"):
            shutil.rmtree(stale)
        partial = root.parent / f".{root.name}.partial-{os.getpid()}"
        try:
            _write_all(partial, root, request, plans, workers, console)
            os.replace(partial, root)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return root


def _is_done(root: Path, request: dict[str, Any]) -> bool:
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    if not (root / MARKER).is_file():
        raise FileExistsError(f"{root} exists and is not a simulated set; choose another folder")
    record = read_marker(root)
    differing = [
        f"{key} is {record.get(key)!r}, asked for {value!r}"
        for key, value in request.items()
        if record.get(key) != value
    ]
    if differing:
        raise FileExistsError(
            f"{root} holds another simulated set ({'; '.join(differing)}); "
            f"choose another folder or delete this one"
        )
    return True


def _write_all(
    folder: Path,
    root: Path,
    request: dict[str, Any],
    plans: list[SequencePlan],
    workers: int,
    console: Console,
) -> None:
    """Write a complete set, marker last, into a fresh folder."""
    folder.mkdir()
    seed = int(request["seed"])
    streets = {plan.sequence: Street(seed, plan.sequence, plan.split) for plan in plans}
    for plan in plans:
        times = [frame / FRAME_RATE for frame in plan.frames()]
        poses = [streets[plan.sequence].drive.pose(time) for time in times]
        write_sequence(folder, plan.sequence, poses, times)
    counts: Counts = Counter()
    total = sum(plan.scans for plan in plans)
    if not console.is_terminal:
        console.print(f"simulating {total} scans for {root}")
    bar = Progress(
        TextColumn("simulating streets"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("scans"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal or console.quiet,
    )
    with bar:
        task = bar.add_task("scans", total=total)
        for scans, part in _run(folder, plan_jobs(seed, plans), workers):
            counts.update(part)
            bar.advance(task, scans)
    write_marker(folder, request | {"sequences": _record(plans, streets, counts)})
    console.print(f"simulated {total} scans: {root}")


def _record(
    plans: list[SequencePlan], streets: dict[int, Street], counts: Counts
) -> dict[str, Any]:
    """Describe every sequence: split, scans, points by raw id, settings."""
    record = {}
    for plan in plans:
        by_class = {
            str(raw): counts[sequence, raw]
            for sequence, raw in sorted(counts)
            if sequence == plan.sequence
        }
        record[f"{plan.sequence:02d}"] = {
            "split": plan.split,
            "scans": plan.scans,
            "points": sum(by_class.values()),
            "points_by_raw_id": by_class,
            "settings": asdict(streets[plan.sequence].settings),
        }
    return record


def _run(folder: Path, jobs: list[Job], workers: int) -> Iterator[tuple[int, Counts]]:
    """Do the jobs in whatever order; yield the number of scans and their counts as each is done."""
    if workers == 1 or len(jobs) == 1:
        for job in jobs:
            yield len(job.scans), do_job(folder, job)
        return
    # spawned, not forked: a fork would copy the locks of whatever threads this process runs
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context) as pool:
        try:
            futures = {pool.submit(do_job, folder, job): len(job.scans) for job in jobs}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def do_job(folder: Path, job: Job) -> Counts:
    """Take and write the scans of one job; return how many points each raw id got."""
    view = Street(job.seed, job.sequence, job.split).view([frame for _, frame in job.scans])
    counts: Counts = Counter()
    for index, frame in job.scans:
        scan = view.scan(frame)
        write_scan(folder / "sequences" / f"{job.sequence:02d}", index, scan)
        raw_ids, points = np.unique(scan.labels & 0xFFFF, return_counts=True)
        counts.update(
            {(job.sequence, int(r)): int(p) for r, p in zip(raw_ids, points, strict=True)}
        )
    return counts
