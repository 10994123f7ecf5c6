"""Operations on sparse tensors: convolution, reduction, making them, engines and plans."""

from pcnn.ops.convolution import convolution
from pcnn.ops.devoxelize import devoxelize, lookup
from pcnn.ops.engine import ENGINES, Engine, resolve
from pcnn.ops.plan import Planner, plan
from pcnn.ops.reduce import reduce_max, reduce_mean, reduce_sum
from pcnn.ops.voxelize import from_coordinates, native_points, reduce_points, voxelize

__all__ = [
    "ENGINES",
    "Engine",
    "Planner",
    "convolution",
    "devoxelize",
    "from_coordinates",
    "lookup",
    "native_points",
    "plan",
    "reduce_max",
    "reduce_mean",
    "reduce_points",
    "reduce_sum",
    "resolve",
    "voxelize",
]
