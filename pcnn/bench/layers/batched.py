"""TorchSparse Fig. 7: what products of a layer gain when several of them make one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from pcnn.bench.harness import same
from pcnn.bench.layer_shape import LayerShape, layer_shapes
from pcnn.bench.layers.layer import products_of, torch_dtype
from pcnn.bench.place import Place
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, run
from pcnn.bench.setting import LayersSetting
from pcnn.bench.verify import check_values

#: Products in a call; there are 26 beside the centre's of a 3^3 kernel.
BATCHES = (1, 2, 13, 26)
#: The layer that follows the first of MinkUNet, whose input has 4 channels.
SHAPE = layer_shapes("32:32:3")[0]


def batched_products(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """Rate of the products of all slots but the centre, each of the mean size, by torch.

    ``gflop`` is the arithmetic of them all; over the time in ms it is the rate in TFLOP/s.
    """
    for scene in setting.scenes:
        place = Place.of(scene, SHAPE.kernel, setting.where)
        with products_of(setting.dtype_name):
            cases = [_case(setting, figure, place, SHAPE, batch) for batch in BATCHES]
            yield from run(cases, setting)


def _case(setting: LayersSetting, figure: str, place: Place, shape: LayerShape, batch: int) -> Case:
    slots = place.kernel.volume - 1
    rows = max(1, (place.triplets - place.grid.rows) // slots)
    kind, device = torch_dtype(setting.dtype_name), setting.where
    operations = 2 * slots * rows * shape.c_in * shape.c_out
    said = {"batch": batch, "rows": rows, "gflop": operations / 1e9}
    row = place.row("layer", "torch", figure, said, dtype=setting.dtype_name)
    row = replace(row, c_in=shape.c_in, c_out=shape.c_out)

    def check() -> Checked:
        random = torch.Generator(device).manual_seed(0)

        def operand(*size: int) -> Tensor:
            return torch.randn(size, generator=random, device=device).to(kind)

        x, w = operand(slots, rows, shape.c_in), operand(slots, shape.c_in, shape.c_out)
        out = x.new_empty(slots, rows, shape.c_out)

        def multiply() -> Tensor:
            for first in range(0, slots, batch):
                part = slice(first, first + batch)
                torch.bmm(x[part], w[part], out=out[part])
            return out

        truth = {"out": x.double() @ w.double()}
        return check_values(row, {"out": multiply()}, truth), lambda: same(multiply)

    return Case(row, check)
