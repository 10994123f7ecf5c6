"""The first half of the correctness gate: the whole check of what an engine is made of.

A time needs more than a right result of the configuration that is timed: a dataflow that is wrong
elsewhere takes short cuts. So dataflows and map builders pass their whole checks
(`pcnn.ops.conformance`, `pcnn.maps.conformance`), once for every device and all sources as they are
(`pcnn.bench.passed`), before anything of theirs is timed; the configuration is then checked itself
(`pcnn.bench.verify`).
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import lru_cache

import torch

from pcnn.bench import oracle
from pcnn.bench.mapping.products import Planned
from pcnn.bench.passed import once
from pcnn.bench.verify import CheckFailed
from pcnn.dataflows import Dataflow
from pcnn.geometry import Kernel, PointSet
from pcnn.kernels.recorded import compile_all, recorded
from pcnn.maps import MapBuilder
from pcnn.maps.conformance import WrongMap, check_builder, wavy_cells
from pcnn.maps.radius import RadiusSearch
from pcnn.ops import conformance, native_points
from pcnn.ops.conformance import Nonconforming
from pcnn.ops.engine import Engine

#: Points and kernel sizes on which a search among native points is compared with all pairs.
POINTS = (0, 1, 2, 65, 400)
SIZES = (1, 3, 5)
#: Edge of a cell [m].
EDGE = 0.5


def check_engine(engine: Engine, device: torch.device, points: bool = False) -> None:
    """Check the map builder of an engine, and every dataflow that it may choose on a device.

    With ``points`` it serves native points there, else voxels.

    Raises:
        CheckFailed: one breaks its promise; the message says in which case, the error measured and
            its bound.
    """
    if points:
        check_search(engine.on_points, device)
    elif engine.on_voxels is not None:
        check_map_builder(engine.builder_on(device), device)
    for dataflow in engine.dataflows(device):
        check_dataflow(dataflow, device)


def check_dataflow(dataflow: Dataflow, device: torch.device) -> None:
    """Run the whole check of a dataflow; on a GPU its kernels are compiled first, side by side.

    Raises:
        CheckFailed: it breaks a promise.
    """

    def check_of_dataflow() -> None:
        if device.type == "cuda":
            with recorded() as launches, suppress(Nonconforming):  # results of no launch are wrong
                conformance.check_dataflow(dataflow, device)
            with suppress(Exception):  # what does not compile fails in the check, which says where
                deque(compile_all(launches, device), maxlen=0)
        try:
            conformance.check_dataflow(dataflow, device)
        except Nonconforming as error:
            raise CheckFailed(str(error)) from error

    once(dataflow, device, check_of_dataflow)


def check_map_builder(builder: MapBuilder | RadiusSearch, device: torch.device) -> None:
    """Compare a builder's maps with brute force, on sites without neighbours to odd kernels.

    Raises:
        CheckFailed: a map is wrong.
    """
    if isinstance(builder, RadiusSearch):
        check_search(builder, device)
        return

    def check_of_builder() -> None:
        try:
            check_builder(builder, device, usual=isinstance(builder, Planned))
        except WrongMap as error:
            raise CheckFailed(str(error)) from error

    once(builder, device, check_of_builder)


def check_search(search: RadiusSearch | None, device: torch.device) -> None:
    """Compare the maps of a search among native points with all pairs of points.

    Raises:
        CheckFailed: a map is wrong.
    """
    if search is not None:
        _passed(search, str(device))


@lru_cache(maxsize=64)  # of those that pass: an error is not kept
def _passed(search: RadiusSearch, device: str) -> None:
    faults = []
    for count in POINTS:
        sites = _points(count, device)
        for size in SIZES:
            kernel = Kernel.of(size)
            built = search.build(sites, sites, kernel)
            found = (built.slot_index.long() * built.n_out + built.out_index) * built.n_in
            found = (found + built.in_index).sort().values
            wanted = [
                (slot * built.n_out + i) * built.n_in + j
                for slot, (j, i) in enumerate(oracle.triplets(sites, sites, kernel))
            ]
            true = torch.cat(wanted).sort().values
            if not torch.equal(found, true):
                right = int(torch.isin(true, found).sum())
                faults.append(
                    f"{count} points, kernel size {size}: {len(found)} triplets, of which {right} "
                    f"are among the {len(true)} true ones"
                )
    if faults:
        raise CheckFailed(
            f"map builder {search.name!r} is wrong in {len(faults)} of {len(POINTS) * len(SIZES)} "
            f"cases on {device} (0 are allowed): {faults[0]}"
        )


def _points(count: int, device: str) -> PointSet:
    """Points on a bumpy surface, off the corners of their cells."""
    random = torch.Generator().manual_seed(0)
    places = EDGE * (wavy_cells(count) + torch.rand(count, 3, generator=random))
    x = native_points(places.to(device), places.to(device), grid_size=EDGE)
    assert isinstance(x.geometry, PointSet)
    return x.geometry
