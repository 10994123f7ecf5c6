"""Time of one core for each stage of a training sample."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from pcnn.bench.data.check import check_sample
from pcnn.bench.data.measured import Setting
from pcnn.bench.environment import processor
from pcnn.bench.rows import Row

#: Samples that are measured, after as many that are not.
SAMPLES = 5


def stage_rows(setting: Setting, figure: str) -> Iterator[Row]:
    """Measure reading, augmenting, placing and collating, and all of it.

    One thread, as in a worker process; time of the core, whatever else the machine does. ``read``
    includes the crop, or is what the cache takes. Medians over samples.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _measured(setting, figure)
    finally:
        torch.set_num_threads(threads)


def _measured(setting: Setting, figure: str) -> Iterator[Row]:
    module, batch_size = setting.module, int(setting.module.batch_size)
    dataset = module.dataset("train")
    check_sample(dataset, (0, 0))
    collate = module.collate()
    times: dict[str, list[float]] = {
        name: [] for name in ("read", "augment", "place", "collate", "sample")
    }
    points = rows = 0
    for number in range(2 * SAMPLES):
        index = number % len(dataset)
        key = (1 + number // len(dataset), index)
        read, _ = _timed(partial(dataset.stored, index))
        changed, cloud = _timed(partial(dataset.cloud, key))
        place, sample = _timed(partial(dataset.geometry.sample, cloud, setting.size))
        joined, _ = _timed(partial(collate, [sample] * batch_size))
        whole, _ = _timed(partial(dataset.__getitem__, key))
        if number < SAMPLES:
            continue
        share = joined / batch_size
        measured = (read, changed - read, place, share, whole + share)
        for name, value in zip(times, measured, strict=True):
            times[name].append(value)
        points += cloud.n_points
        rows += sample.geometry.rows
    for name, values in times.items():
        yield Row(
            what="stage",
            workload=setting.workload,
            engine="cpu",
            n=points // SAMPLES,
            host_ms=statistics.median(values),
            min_ms=min(values),
            params={"stage": name, "rows": rows // SAMPLES, "cpu": processor(), **setting.about},
            figure=figure,
            checked=True,
        )


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = call()
    return 1e3 * (time.process_time() - began), result
