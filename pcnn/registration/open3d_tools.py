"""All uses of Open3D. It is imported when it is used: it takes seconds and system libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from pcnn.errors import MissingPackageError, first_line

if TYPE_CHECKING:
    from types import ModuleType


def open3d() -> ModuleType:
    """Import Open3D."""
    try:
        import open3d as module  # type: ignore[import-untyped, unused-ignore]
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "this needs Open3D: pip install open3d-cpu, or open3d where that has no wheels "
            "(matching, solvers and surfaces do without it)"
        ) from error
    except (ImportError, OSError) as error:
        raise MissingPackageError(
            f"Open3D lacks a library of the system ({first_line(error)}); Debian: apt-get install "
            "libusb-1.0-0 libgl1 libegl1 libgomp1 (all that does not need Open3D runs without)"
        ) from error
    imported: ModuleType = module
    return imported


def cloud_of(points: Tensor) -> Any:
    """An Open3D cloud of points [P, 3]."""
    o3d = open3d()
    vector = o3d.utility.Vector3dVector(np.ascontiguousarray(points.double().cpu().numpy()))
    return o3d.geometry.PointCloud(vector)
