"""The largest cloud that fits a device, and the peak of memory on the way there (Figure J)."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from pcnn.bench.clouds import Cloud, room
from pcnn.bench.harness import DIGITS
from pcnn.bench.layers.layer import products_of
from pcnn.bench.native.network import CheckedNetworks
from pcnn.bench.native.variants import Variant
from pcnn.bench.rows import Row, left_out
from pcnn.bench.setting import NativeSetting

#: Points of the first room.
FIRST = 250_000
#: Every room has so many times the points of the last.
GROWTH = 4
#: The search ends where the largest that fits and the smallest that does not differ by this factor.
CLOSE = 1.1


def largest_rows(setting: NativeSetting, figure: str) -> Iterator[Row]:
    """Peak memory of growing rooms until one does not fit, then bisection between the last two.

    A run is inference, or a training step, from points with ResNet18. Peaks are those of torch's
    allocator above what lay there before the cloud: the cloud, weights, sites, maps, activations.
    Rows whose setting ``fits`` is 0 ran out of memory; ``stopped_by`` names any other error.
    """
    if setting.where.type != "cuda":
        return
    with products_of(setting.dtype_name):
        checked = CheckedNetworks(setting)
        for mode in ("infer", "train"):
            for variant in setting.variants:
                yield from _of_variant(setting, figure, checked, variant, mode)


def _of_variant(
    setting: NativeSetting, figure: str, checked: CheckedNetworks, variant: Variant, mode: str
) -> Iterator[Row]:
    try:
        checked.check(variant, mode)
    except Exception as error:  # a compiler's errors have no base of their own
        yield left_out(checked.row(variant, checked.cloud, figure, mode), error)
        return
    checked.forget()
    fits, fails = 0, 0
    points = FIRST
    while points <= 1000 * setting.largest:
        row = _tried(setting, figure, checked, variant, mode, points)
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
    setting: NativeSetting,
    figure: str,
    checked: CheckedNetworks,
    variant: Variant,
    mode: str,
    points: int,
) -> Row:
    """One run on a room of so many points."""
    clear()
    held = torch.cuda.memory_allocated(setting.where)
    cloud = room(0, points, setting.where)  # before the memory is limited
    clear()
    row = checked.row(variant, cloud, figure, mode)
    said = {**(row.params or {}), "points": points, "fits": 1}
    if setting.memory is not None:
        said["memory_gb"] = setting.memory
    row = replace(row, params=said)
    try:
        with at_most(setting):
            seconds, peak = _run(setting, checked, variant, mode, cloud)
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
    setting: NativeSetting, checked: CheckedNetworks, variant: Variant, mode: str, cloud: Cloud
) -> tuple[float, int]:
    """Seconds of the second of two runs, and the peak of both [bytes]."""
    torch.cuda.reset_peak_memory_stats(setting.where)
    work = checked.work(variant, mode, cloud)
    call = work.calls(mode)
    seconds = 0.0
    for index in range(2):
        torch.cuda.synchronize(setting.where)
        began = time.perf_counter()
        found = call(index)()
        torch.cuda.synchronize(setting.where)
        seconds = time.perf_counter() - began
        assert isinstance(found, list)
        if not all(bool(one.isfinite().all()) for one in found[:1]):
            raise ArithmeticError("logits are not finite")
        del found
    return seconds, torch.cuda.max_memory_allocated(setting.where)


@contextmanager
def at_most(setting: NativeSetting) -> Iterator[None]:
    """Let torch's allocator take no more than the setting's share of the device."""
    if setting.memory is None:
        yield
        return
    device = torch.device("cuda", setting.where.index or 0)
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, setting.memory * 1e9 / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def clear() -> None:
    """Give back memory that is not in use."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
