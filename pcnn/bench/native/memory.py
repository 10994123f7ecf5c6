"""Memory of native points: parts of a step, the largest cloud that fits, and one huge step."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pcnn.bench import oracle
from pcnn.bench.clouds import Cloud, room
from pcnn.bench.harness import DIGITS, Calls, Repeats, peak_memory_mb, wall_time
from pcnn.bench.layers.layer import Layer, Operands, products_of
from pcnn.bench.native.layers import PAPER
from pcnn.bench.native.network import CheckedNetworks, network_case
from pcnn.bench.native.variants import Variant, sites_of
from pcnn.bench.networks.work import Work
from pcnn.bench.rows import Row, left_out
from pcnn.bench.run import Case, Checked, Columns, run
from pcnn.bench.setting import NativeSetting, Setting
from pcnn.bench.verify import check_values
from pcnn.dataflows.reference import slot_ranges
from pcnn.geometry import KernelMap, PointSet
from pcnn.ops.prefetch import tensors_of
from pcnn.tensor import SparseTensor

MB = 2**20


def breakdown_rows(setting: NativeSetting, figure: str) -> Iterator[Row]:
    """Of a training step of ResNet18: what it must hold, and on a GPU the allocator's peak.

    ``needed_mb`` is the sum of activations that backward reads, weights, their gradients, and sites
    with maps and layouts; ``over_needed`` is the peak of a step on planned input over it,
    ``from_points`` that of a step that plans, too. Each tensor's memory counts once; the cloud
    itself, which its reader holds, does not.
    """
    with products_of(setting.dtype_name):
        checked = CheckedNetworks(setting)
        scans = setting.scans() if setting.clouds else ()
        for cloud in [*scans, room(0, max(setting.size_list), setting.where)]:
            for variant in setting.variants:
                row = checked.row(variant, cloud, figure, "step")
                case = network_case(checked, variant, "train", cloud, row, breakdown)
                yield from run([case], setting)


def breakdown(work: Work, setting: Setting, count: bool) -> Iterator[Columns]:
    """Parts of the memory of a step, in the settings of its row; the peak is its memory."""
    work.network.train()
    x = work.input.on(work.network, backward=True)
    weights = list(work.network.parameters())
    work.train(x)  # builds layouts that are not planned, compiles and warms up
    work.train(x)
    layouts = bytes_of(tensors_of(x), ())
    activations = kept_bytes(work, x, [*weights, *tensors_of(x)])
    own = sum(weight.nbytes for weight in weights)
    needed = layouts + activations + 2 * own  # weights, and gradients of their size
    found: dict[str, float] = {
        "activations_mb": activations / MB,
        "weights_mb": own / MB,
        "gradients_mb": own / MB,
        "layouts_mb": layouts / MB,
        "needed_mb": needed / MB,
    }
    if setting.where.type == "cuda":
        clear()
        # in memory are the network, the cloud, and the planned input
        held = layouts + own
        peak = held + MB * peak_memory_mb(lambda: work.train(x), setting.where)
        del x
        clear()
        from_points = own + MB * peak_memory_mb(work.train, setting.where)
        found |= {
            "peak_mb": peak / MB,
            "over_needed": peak / needed,
            "from_points_mb": from_points / MB,
            "from_points": from_points / needed,
        }
    params = {name: round(value, DIGITS) for name, value in found.items()}
    yield {"memory_mb": params.get("peak_mb"), "params": params}


def kept_bytes(work: Work, x: SparseTensor, others: Iterable[Tensor]) -> int:
    """Bytes of the tensors that a forward pass keeps for backward."""
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = work.outputs(x)
    found = bytes_of(kept, others)
    del outputs
    return found


def bytes_of(tensors: Iterable[Tensor], others: Iterable[Tensor]) -> int:
    """Bytes of the memory behind tensors on their device, each piece once, without that of others.

    Args:
        tensors: counted; what lies on another device than the first of them is not.
        others: left out.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in others}
    total, device = 0, None
    for tensor in tensors:
        device = device or tensor.device
        storage = tensor.untyped_storage()
        if tensor.device == device and storage.data_ptr() not in known:
            known.add(storage.data_ptr())
            total += storage.nbytes()
    return total


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
