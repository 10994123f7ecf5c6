"""The largest cloud that fits a device, and the peak of memory on the way there (Figure J)."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from pcnn.bench.harness import DIGITS
from pcnn.bench.layers.layer import products_of
from pcnn.bench.native.cloud import Cloud
from pcnn.bench.native.lines import Line
from pcnn.bench.native.network import Checked
from pcnn.bench.native.rooms import room
from pcnn.bench.native.setting import Setting
from pcnn.bench.rows import Row

#: Points of the first room.
FIRST = 250_000
#: Every room has so many times the points of the last.
GROWTH = 4
#: The search ends where the largest that fits and the smallest that does not differ by this factor.
CLOSE = 1.1


def largest_rows(setting: Setting, figure: str) -> Iterator[Row]:
    """Peak memory of growing rooms until one does not fit, then bisection between the last two.

    A run is inference, or a training step, from points with ResNet18. Peaks are those of torch's
    allocator above what lay there before the cloud: the cloud, weights, sites, maps, activations.
    Rows whose setting ``fits`` is 0 ran out of memory; ``stopped_by`` names any other error.
    """
    if setting.device.type != "cuda":
        return
    with products_of(setting.dtype):
        checked = Checked(setting)
        for mode in ("infer", "train"):
            for line in setting.lines:
                yield from _of_line(setting, figure, checked, line, mode)


def _of_line(
    setting: Setting, figure: str, checked: Checked, line: Line, mode: str
) -> Iterator[Row]:
    try:
        checked.check(line, mode)
    except Exception as error:  # a compiler's errors have no base of their own
        identity = checked.identity(line, checked.cloud, figure, mode)
        identity["params"]["left_out"] = f"{type(error).__name__}: {error}"
        yield Row("network", **identity)
        return
    checked.forget()
    fits, fails = 0, 0
    points = FIRST
    while points <= setting.largest:
        row = _tried(setting, figure, checked, line, mode, points)
        yield row
        if (row.params or {})["fits"]:
            fits = points
        else:
            fails = points
        if not fails:
            points *= GROWTH
        elif fits and fails > CLOSE * fits:
            points = int((fits * fails) ** 0.5)
        else:
            return


def _tried(
    setting: Setting, figure: str, checked: Checked, line: Line, mode: str, points: int
) -> Row:
    """One run on a room of so many points."""
    clear()
    held = torch.cuda.memory_allocated(setting.device)
    cloud = room(0, points, setting.device)  # before the memory is limited
    clear()
    identity = checked.identity(line, cloud, figure, mode)
    said = identity["params"]
    said |= {"points": points, "fits": 1}
    if setting.memory_gb is not None:
        said["memory_gb"] = setting.memory_gb
    row = Row("network", **identity)
    try:
        with at_most(setting):
            seconds, peak = _run(setting, checked, line, mode, cloud)
    except torch.OutOfMemoryError:
        return replace(row, params={**said, "fits": 0})
    except Exception as error:  # a limit of its own, as a table that would be too large
        reason = f"{type(error).__name__}: {error}"
        return replace(row, params={**said, "fits": 0, "stopped_by": reason})
    finally:
        clear()
    took, peak_mb = round(1e3 * seconds, DIGITS), round((peak - held) / 2**20, DIGITS)
    return replace(row, wall_ms=took, memory_mb=peak_mb, checked=True)


def _run(
    setting: Setting, checked: Checked, line: Line, mode: str, cloud: Cloud
) -> tuple[float, int]:
    """Seconds of the second of two runs, and the peak of both [bytes]."""
    torch.cuda.reset_peak_memory_stats(setting.device)
    work = checked.work(line, mode, cloud)
    call = work.calls(mode)
    seconds = 0.0
    for index in range(2):
        torch.cuda.synchronize(setting.device)
        began = time.perf_counter()
        found = call(index)()
        torch.cuda.synchronize(setting.device)
        seconds = time.perf_counter() - began
        assert isinstance(found, list)
        if not all(bool(one.isfinite().all()) for one in found[:1]):
            raise ArithmeticError("logits are not finite")
        del found
    return seconds, torch.cuda.max_memory_allocated(setting.device)


@contextmanager
def at_most(setting: Setting) -> Iterator[None]:
    """Let torch's allocator take no more than the setting's share of the device."""
    if setting.memory_gb is None:
        yield
        return
    device = torch.device("cuda", setting.device.index or 0)
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, setting.memory_gb * 1e9 / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def clear() -> None:
    """Give back what nobody holds any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
