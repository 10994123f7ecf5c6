"""One layer and one training step at many millions of points, where indices leave 32 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pcnn.bench import oracle
from pcnn.bench.clouds import Cloud, room
from pcnn.bench.harness import DIGITS, Calls, Repeats, peak_memory_mb, wall_time
from pcnn.bench.layers.layer import Layer, Operands, products_of
from pcnn.bench.native.largest import clear
from pcnn.bench.native.layers import PAPER
from pcnn.bench.native.memory_breakdown import MB, bytes_of
from pcnn.bench.native.network import CheckedNetworks, network_case
from pcnn.bench.native.variants import Variant, sites_of
from pcnn.bench.networks.work import Work
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, Columns, run
from pcnn.bench.setting import NativeSetting, Setting
from pcnn.bench.verify import check_values
from pcnn.dataflows.reference import slot_ranges
from pcnn.geometry import KernelMap, PointSet
from pcnn.ops.prefetch import tensors_of

#: Rows of the result that are computed from all points.
SAMPLED = 256
#: Triplets multiplied together where the gradient of weights is computed in float64.
CHUNK = 1 << 21


def step_rows(setting: NativeSetting, figure: str) -> Iterator[Row]:
    """The paper's layer, then a training step of ResNet18, on one large room of native points.

    ``triplet_bytes`` of a layer are those of (i, j, k) at 4 bytes each.
    """
    cloud = room(0, int(1000 * setting.step), setting.where)
    with products_of(setting.dtype_name):
        for variant in setting.chosen("native"):
            yield from run([_layer_case(setting, figure, cloud, variant)], setting)
            clear()
            checked = CheckedNetworks(setting)
            row = checked.row(variant, cloud, figure, "train")
            case = network_case(checked, variant, "train", cloud, row, _of_network)
            yield from run([case], setting)
            clear()


def _layer_case(setting: NativeSetting, figure: str, cloud: Cloud, variant: Variant) -> Case:
    sites = sites_of(variant.geometry, cloud.points, cloud.grid_size)
    assert isinstance(sites, PointSet)
    row = Row(
        "train",
        cloud.name,
        variant.name,
        n=sites.rows,
        dtype=setting.dtype_name,
        k=PAPER.size,
        stride=PAPER.stride,
        c_in=PAPER.c_in,
        c_out=PAPER.c_out,
        figure=figure,
    )

    def check() -> Checked:
        sizes = sites.rows, sites.rows, PAPER.kernel.volume
        operands = Operands.random(sizes, PAPER, setting.dtype_name, setting.where)
        layer = Layer(variant.engine, sites, PAPER.kernel, operands)
        truth, rows = sampled_truth(sites, layer)
        results = layer.results("train")
        for name in ("out", "grad_x"):
            results[name] = results[name].detach()[rows]
        sizes_of_slots = layer.map.offsets.diff()
        proof = check_values(row, results, truth, int(sizes_of_slots.max()))
        del results, truth
        clear()
        return proof, lambda: layer

    return Case(row, check, _of_layer)


def _of_layer(layer: Layer, setting: Setting, count: bool) -> Iterator[Columns]:
    columns = _few(setting, layer.calls("train"))
    layouts = bytes_of((t for layout in layer.map.edges.layouts.values() for t in layout), ())
    triplets = layer.map.triplets
    params = {"triplet_bytes": 12 * triplets, "layouts_mb": round(layouts / MB, DIGITS)}
    yield {**columns, "triplets": triplets, "params": params}


def _of_network(work: Work, setting: Setting, count: bool) -> Iterator[Columns]:
    columns = _few(setting, work.calls("train"))
    x = work.input.on(work.network, backward=True)
    work.train(x)
    layouts = round(bytes_of(tensors_of(x), ()) / MB, DIGITS)
    triplets = sum(_triplets(level) for level in _levels(x.geometry))
    yield {**columns, "params": {"layouts_mb": layouts, "triplets": triplets}}


def _few(setting: Setting, calls: Calls) -> dict[str, Any]:
    """Wall time of few repeats, and the peak of all memory that torch has given out."""
    timing = wall_time(calls, setting.where, Repeats(min(setting.repeats, 3), 1, 60.0))
    found: dict[str, Any] = {**timing.columns(), "cache": "warm"}
    if setting.where.type == "cuda":
        clear()
        before = torch.cuda.memory_allocated(setting.where) / MB
        found["memory_mb"] = round(before + peak_memory_mb(calls(0), setting.where), DIGITS)
    return found


def sampled_truth(sites: PointSet, layer: Layer) -> tuple[dict[str, Tensor], Tensor]:
    """Some rows of the output and of the input's gradient, and the gradient of weights, in float64.

    The rows' neighbours are found among all points by looking at every one. The gradient of the
    weights is summed over the triplets of the map, whose number the rows' own neighbours confirm.

    Args:
        sites: points of input and output.
        layer: a submanifold layer on them.

    Returns:
        Truth by name, and the sampled rows ``[S]``.

    Raises:
        ValueError: the map has other triplets than the sampled rows' neighbours.
    """
    kernel, operands = layer.kernel, layer.operands
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(sites.rows, (SAMPLED,), generator=random).unique().to(sites.device)
    i, j = oracle.every_pair(sites.points, sites.points[rows], oracle.radius(sites, kernel))
    slot = oracle.slots(sites.points[j] - sites.points[rows[i]], sites.grid_size[0], kernel)
    _check_sample(layer.map, rows, j, rows[i], slot)
    weight = operands.weight.detach().double()
    x, grad = operands.x.detach(), operands.grad
    out = weight.new_zeros(len(rows), weight.shape[2])
    grad_x = weight.new_zeros(len(rows), weight.shape[1])
    for k in range(kernel.volume):
        of = slot == k
        out.index_add_(0, i[of], x[j[of]].double() @ weight[k])
        # the map is its own transpose: what i hears from j by slot k, j hears from i by K - 1 - k
        back = weight[kernel.volume - 1 - k].t()
        grad_x.index_add_(0, i[of], grad[j[of]].double() @ back)
    truth = {"out": out, "grad_x": grad_x, "grad_weight": _grad_weight(layer.map, x, grad)}
    return truth, rows


def _check_sample(built: KernelMap, rows: Tensor, j: Tensor, i: Tensor, slot: Tensor) -> None:
    in_index, out_index, offsets = built.layout("pairs")
    wanted = (slot * built.n_out + i) * built.n_in + j
    found = []
    for k, (start, end) in enumerate(slot_ranges(offsets)):
        mine = torch.isin(out_index[start:end], rows.to(out_index.dtype)).nonzero()[:, 0] + start
        found.append((k * built.n_out + out_index[mine].long()) * built.n_in + in_index[mine])
    if not torch.equal(torch.cat(found).sort().values, wanted.sort().values):
        raise ValueError(
            f"the map has other triplets than {len(rows)} sampled rows have neighbours"
        )


def _grad_weight(built: KernelMap, x: Tensor, grad: Tensor) -> Tensor:
    in_index, out_index, offsets = built.layout("pairs")
    shape = built.volume, x.shape[1], grad.shape[1]
    sums = torch.zeros(shape, dtype=torch.float64, device=x.device)
    for k, (first, last) in enumerate(slot_ranges(offsets)):
        for start in range(first, last, CHUNK):
            part = slice(start, min(last, start + CHUNK))
            sums[k] += x[in_index[part]].double().t() @ grad[out_index[part]].double()
    return sums


def _levels(geometry: Any) -> Iterator[Any]:
    yield geometry
    for level in geometry.levels().values():
        yield from _levels(level)


def _triplets(geometry: Any) -> int:
    return sum(built.triplets for built in geometry.cached_maps())
