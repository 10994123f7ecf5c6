"""Levels and maps are kept with their geometry, freed with it, and no copy takes them along."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import pcnn
from pcnn.geometry import Geometry, Kernel, KernelMap
from pcnn.nn import Conv3d
from tests.clouds import surface_grid
from tests.maps.native_points import scan

Copy = Callable[[Any], Any]
COPIES: dict[str, Copy] = {
    "replace": replace,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
}


def features(geometry: Geometry) -> pcnn.SparseTensor:
    values = torch.arange(3 * geometry.rows).float().sin().view(-1, 3)
    return pcnn.SparseTensor(values, geometry)


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kind", ["voxels", "points"])
def test_no_copy_takes_the_caches_along(kind: str, make: Copy) -> None:
    geometry: Geometry = surface_grid(200) if kind == "voxels" else scan(200)
    net = pcnn.nn.Sequential(Conv3d(3, 4, 3), Conv3d(4, 4, 2, 2), Conv3d(4, 4, 3))
    wanted = net(features(geometry)).features
    assert geometry.cached_maps()
    assert geometry.levels()
    other = make(geometry)
    assert not other.cached_maps()
    assert not other.levels()
    net(features(other))
    assert next(iter(other.levels().values())) is not next(iter(geometry.levels().values()))
    assert torch.equal(net(features(other)).features, wanted)
    # nor does a copy of a tensor
    assert not copy.deepcopy(features(geometry)).geometry.cached_maps()


@dataclass(frozen=True)
class Empty:
    """Builds maps without triplets."""

    setting: int = 0

    def build(self, source: Geometry, target: Geometry, kernel: Kernel) -> KernelMap:
        none = torch.zeros(0, dtype=torch.int32)
        offsets = torch.zeros(kernel.volume + 1, dtype=torch.int64)
        return KernelMap.from_pairs(none, none, offsets, source.rows, target.rows)


@pytest.mark.parametrize("kind", ["voxels", "points"])
def test_levels_and_maps_are_kept_and_freed_with_their_geometry(kind: str) -> None:
    made: Any = surface_grid(100) if kind == "voxels" else scan(50)
    kernel = Kernel.of(3, 2)
    coarse = made.strided(kernel)
    first = made.map_to(coarse, kernel, Empty())
    assert made.map_to(coarse, Kernel.of(3, 2), Empty()) is first
    assert made.cached_map(coarse, kernel, Empty()) is first
    builder = Empty() if kind == "points" else None
    assert made.maps_to(coarse) == {(kernel, builder): first}
    assert made.level(kernel, down=True) is coarse
    assert made.level(kernel, down=False) is None
    assert made.cached_maps() == [first]
    assert first.edges.kernel == kernel
    things = [made, coarse, first]
    if kind == "voxels":
        things.append(coarse.generated(kernel))
        things[-1].map_to(coarse, kernel, Empty())
    alive = [weakref.ref(thing) for thing in things]
    gc.disable()  # reference counts alone must free them: no cycle
    try:
        del made, coarse, first, things
        assert all(reference() is None for reference in alive)
    finally:
        gc.enable()


def test_every_builder_has_maps_of_its_own() -> None:
    made = scan(50)
    kernel = Kernel.of(3)
    first = made.map_to(made, kernel, Empty(1))
    assert made.map_to(made, kernel, Empty(1)) is first
    second = made.map_to(made, kernel, Empty(2))
    assert second is not first
    assert made.cached_map(made, kernel) is None
    # a map that was given serves everybody who has none
    given = made.add_map(made, kernel, Empty().build(made, made, kernel))
    assert made.map_to(made, kernel, Empty(1)) is first
    assert made.map_to(made, kernel, Empty(3)) is given
