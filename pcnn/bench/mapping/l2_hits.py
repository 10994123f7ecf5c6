"""Share of a search's memory requests that the L2 cache answers, by Nsight Compute.

``ncu`` runs a fresh Python process that builds one map and profiles the kernels of the second
build. Clocks are left as they are. Nsight Compute empties the caches before every kernel, so the
share counts a search that finds nothing in the cache but what it has read itself.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from pcnn.bench.mapping.builders import named
from pcnn.bench.mapping.maps import searches
from pcnn.bench.mapping.products import build
from pcnn.bench.place import Place, bare
from pcnn.bench.rows import Row
from pcnn.bench.scenes import load_scene
from pcnn.geometry import Kernel, VoxelGrid
from pcnn.maps import MapBuilder

HIT_RATE = "lts__t_sector_hit_rate.pct"
SECTORS = "lts__t_sectors.sum"
#: Seconds that one run of ncu may take [s]: it starts Python and torch, and replays kernels.
LIMIT_S = 180


@dataclass(frozen=True)
class KernelHits:
    """Requests of a launch of a kernel: share of hits [%], and sectors of 32 bytes asked for."""

    name: str
    hit_percent: float
    sectors: float


def l2_hit_percent(row: Row, place: Place, builder: MapBuilder) -> Row:
    """Add the share of L2 hits of a builder's search to its row.

    Raises:
        RuntimeError: ncu is not there, fails, or saw no search.
    """
    with tempfile.TemporaryDirectory() as folder:
        scene, log = Path(folder) / "scene.npz", Path(folder) / "ncu.csv"
        assert isinstance(place.grid, VoxelGrid)
        np.savez(scene, coords=place.grid.coords.cpu().numpy())
        size, stride = place.kernel.size[0], place.kernel.stride[0]
        words = [str(scene), builder.name, str(size), str(stride), str(place.grid.device)]
        command = ncu_command(log, [sys.executable, "-m", "pcnn.bench.mapping.l2_hits", *words])
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RuntimeError(f"ncu does not run: {error}") from error
        text = log.read_text() if log.is_file() else ""
        if done.returncode or not text:
            raise RuntimeError(f"ncu failed: {(text + done.stdout + done.stderr)[-2000:]}")
    return replace(row, l2_hit_percent=round(mean_hits(read_ncu_csv(text)), 2))


def ncu_command(log: Path, program: Sequence[str]) -> list[str]:
    """Words that profile the marked part of a program into a CSV file."""
    return [
        "ncu",
        "--clock-control=none",
        "--profile-from-start=off",
        f"--metrics={HIT_RATE},{SECTORS}",
        "--print-units=base",
        "--csv",
        f"--log-file={log}",
        *program,
    ]


def read_ncu_csv(text: str) -> list[KernelHits]:
    """Launches in the CSV of ``ncu --csv``: one line a metric, after lines that begin with ``==``.

    Raises:
        RuntimeError: no table, or a launch without the metrics.
    """
    lines = text.splitlines()
    header = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if header is None:
        raise RuntimeError(f"ncu wrote no table: {text[-2000:]}")
    table = [line for line in lines[header:] if line.startswith('"')]
    launches: dict[str, dict[str, str]] = {}
    for entry in csv.DictReader(io.StringIO("\n".join(table))):
        launch = launches.setdefault(entry["ID"], {"name": entry["Kernel Name"]})
        launch[entry["Metric Name"]] = entry["Metric Value"]
    try:
        return [
            KernelHits(launch["name"], _number(launch[HIT_RATE]), _number(launch[SECTORS]))
            for launch in launches.values()
        ]
    except KeyError as error:
        raise RuntimeError(f"ncu did not measure {error}: no access to counters?") from error


def _number(text: str) -> float:
    return float(text.replace(",", ""))  # ncu groups thousands


def mean_hits(launches: Sequence[KernelHits]) -> float:
    """Share of hits over all launches that search, weighted by their sectors [%].

    Raises:
        RuntimeError: no launch searches.
    """
    found = [launch for launch in launches if searches(launch.name)]
    sectors = sum(launch.sectors for launch in found)
    if not sectors:
        names = ", ".join(sorted({launch.name for launch in launches})) or "no kernel at all"
        raise RuntimeError(f"ncu saw no search, but {names}")
    return sum(launch.hit_percent * launch.sectors for launch in found) / sectors


def one_build(words: Sequence[str]) -> None:
    """Build a map twice, and have the second build profiled on a CUDA device.

    Only the second build lies between the profiler's start and stop; the first one compiles kernels
    and fills the allocator.
    """
    workload, name, size, stride, where = words
    device = torch.device(where)
    (builder,) = named(device, [name])
    grid = load_scene(workload).grid.to(device)
    kernel = Kernel.of(int(size), int(stride))
    build(bare(grid), builder, kernel, "table")
    if device.type != "cuda":
        build(bare(grid), builder, kernel, "table")
        return
    again = bare(grid)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    build(again, builder, kernel, "table")
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    one_build(sys.argv[1:])
