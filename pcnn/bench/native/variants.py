"""The variants that figures compare: a geometry of a cloud, and an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pcnn.bench.engines import on
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE
from pcnn.geometry import Geometry
from pcnn.maps import DoubleTraversed, HashTable
from pcnn.ops import native_points, voxelize
from pcnn.ops.engine import Engine, resolve
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

#: Voxels; points moved to the corners of their cells, which computes what voxels do; points as
#: they are.
GEOMETRIES = ("voxel", "degraded", "native")


@dataclass(frozen=True)
class Variant:
    """One line of a figure: features on a geometry, and an engine.

    Args:
        name: what result rows call it.
        geometry: a name in `GEOMETRIES`.
        engine: finds the triplets and computes; named as the variant is.
    """

    name: str
    geometry: str
    engine: Engine

    @classmethod
    def of(cls, name: str, geometry: str, engine: Engine) -> Variant:
        """A variant whose engine has its name."""
        return cls(name, geometry, replace(engine, name=name))


def variants_on(device: torch.device) -> dict[str, Variant]:
    """All variants by name, on a device.

    ``voxel``, ``degraded`` and ``native`` are our engine ``auto``, ``pointcnnpp`` the kernels as
    the paper prints them; ``torchsparse`` and ``minuet`` gather, multiply and scatter.
    """
    auto = resolve("auto")
    found = [
        Variant.of("voxel", "voxel", auto),
        Variant.of("degraded", "degraded", auto),
        Variant.of("native", "native", auto),
        Variant.of("torchsparse", "voxel", Engine("", on(device, HashTable()), TORCHSPARSE)),
        Variant.of("minuet", "voxel", Engine("", on(device, DoubleTraversed()), MINUET)),
        Variant.of("pointcnnpp", "native", resolve("pointcnnpp")),
    ]
    return {variant.name: variant for variant in found}


def named_variants(names: Sequence[str], device: torch.device) -> list[Variant]:
    """Variants of these names, all if there is none.

    Raises:
        ValueError: no variant of that name.
    """
    known = variants_on(device)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no line {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def tensor_on(
    geometry: str,
    points: Tensor,
    features: Tensor,
    grid_size: float,
    planner: Planner | None,
    batch: Tensor | None = None,
    batch_size: int | None = None,
) -> SparseTensor:
    """Features of points on a geometry.

    Args:
        geometry: a name in `GEOMETRIES`.
        points: ``[P, 3]`` [m].
        features: ``[P, C]``.
        grid_size: edge of a cell or voxel [m].
        planner: of the network that the tensor will enter; on voxels it plans in the same go.
        batch: ``[P]`` cloud of every point; ``None``: one cloud.
        batch_size: number of clouds.

    Raises:
        ValueError: no such geometry.
    """
    if geometry not in GEOMETRIES:
        raise ValueError(f"geometry must be one of {', '.join(GEOMETRIES)}, got {geometry!r}")
    clouds: Any = {"batch": batch, "batch_size": batch_size}
    if geometry == "voxel":
        return voxelize(points, features, voxel_size=grid_size, planner=planner, **clouds)
    if geometry == "native":
        return native_points(points, features, grid_size=grid_size, **clouds)
    corners: Any = {"downsampling": "cell_origin", "thin": grid_size}
    return native_points(points, features, grid_size=grid_size, **corners, **clouds)


def sites_of(geometry: str, points: Tensor, grid_size: float) -> Geometry:
    """The geometry alone; arguments and errors as in `tensor_on`."""
    return tensor_on(geometry, points, points, grid_size, None).geometry
