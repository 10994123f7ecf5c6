"""Float64 truth, and how far a result may be from it.

Triplets and sums are computed here once more, the plain way. A network's float64 self is run with a
random error of a product's bound on every product: an output may be off by twice as much, a
gradient by four times, as errors of several draws differ by up to 2.3 and 8. Plain torch's error in
the same dtype takes their place where it is larger. A gradient below one rounding of the largest
one vanishes, as behind a norm whose rows are equal, and may be off by a rounding of the largest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Reference
from pcnn.geometry import Geometry, Kernel, KernelMap, PointSet, VoxelGrid
from pcnn.ops.conformance import check_builder, check_dataflow
from pcnn.ops.engine import Engine

Pair = tuple[Tensor, Tensor]  # rows j of the input and i of the output of one slot
Tensors = dict[str, Tensor]

TF32 = "tf32"  # name of float32 operands that are rounded to ten bits, as half precision has
#: Bound on the relative RMS error, by what operands are rounded to: half and bfloat16 results once,
#: at 2^-11 and 2^-8, TF32 operands at 2^-11; float32 sums K x C products.
RELATIVE_RMS = {"float16": 1e-3, "bfloat16": 8e-3, TF32: 1e-3, "float32": 2e-6, "float64": 1e-12}
SUM_ERROR = 1e-8  # error of a float32 sum of n random terms, relative to it, over the root of n
#: No single element is off by more than this many times the bound times the RMS of the truth.
WORST_OVER_RMS = 50.0
#: Largest error of an output and of a gradient, in errors of a network of rounded products.
OUTPUT, GRADIENT = 2.0, 4.0
CHUNK = 1 << 25  # pairs of points looked at together


class CheckFailed(RuntimeError):
    """A result that disagrees with the reference; its configuration gets no time."""


def triplets(source: Geometry, target: Geometry, kernel: Kernel) -> list[Pair]:
    """Rows (j, i) of every slot of a convolution on voxels or native points."""
    if isinstance(source, VoxelGrid) and isinstance(target, VoxelGrid):
        return _between_voxels(source, target, kernel)
    assert isinstance(source, PointSet)
    assert isinstance(target, PointSet)
    centres = target.points_about(source)
    i, j = _every_pair(source.points, centres, _radius(source, kernel))
    slot = _slots(source.points[j] - centres[i], source.voxel_size[0], kernel)
    order = slot.argsort(stable=True)
    sizes = torch.bincount(slot, minlength=kernel.volume).tolist()
    return list(zip(j[order].split(sizes), i[order].split(sizes), strict=True))


def _between_voxels(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> list[Pair]:
    """By binary search among mixed-radix cell numbers."""
    inputs, outputs = _cells(source), _cells(target)
    if not len(inputs) or not len(outputs):
        empty = torch.zeros(0, dtype=torch.int64, device=source.device)
        return [(empty, empty)] * kernel.volume
    low = inputs.min(0).values
    span = inputs.max(0).values - low + 1
    radix = torch.stack([span[1:].prod(), span[2:].prod(), span[3], torch.ones_like(span[3])])
    numbers, order = ((inputs - low) * radix).sum(1).sort()
    stride = torch.tensor((1, *kernel.stride), device=source.device)
    found = []
    for offset in kernel.offsets:
        place = outputs * stride + torch.tensor((0, *offset), device=source.device) - low
        inside = ((place >= 0) & (place < span)).all(1)
        wanted = (place * radix).sum(1)
        position = torch.searchsorted(numbers, wanted).clamp(max=len(numbers) - 1)
        hit = inside & (numbers[position] == wanted)
        found.append((order[position[hit]], hit.nonzero()[:, 0]))
    return found


def _cells(grid: VoxelGrid) -> Tensor:
    """Batch and coordinates ``[N, 4]`` int64 in units of the grid's own voxels."""
    step = torch.tensor((1, *grid.tensor_stride), device=grid.device)
    return torch.div(grid.coords.to(torch.int64), step, rounding_mode="floor")


def _radius(source: PointSet, kernel: Kernel) -> float:
    """Radius of the ball that has the volume of the kernel's box [m]."""
    (size, *others), (edge, *edges) = kernel.size, source.voxel_size
    if {size, *others} != {size} or {edge, *edges} != {edge} or not size % 2:
        raise ValueError(f"the kernel must be odd and cubic, over cubic cells, got {kernel}")
    # in this order of operations: the last bit decides about points on the boundary
    return float(edge * (3 * size**3 / (4 * math.pi)) ** (1 / 3))


def _every_pair(points: Tensor, centres: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """Rows (i, j) of all pairs within reach, boundary included; squares are added x, y, z."""
    limit = torch.tensor(reach * reach, dtype=torch.float32, device=points.device)
    rows = max(1, CHUNK // max(1, len(points)))
    found = [torch.zeros(0, 2, dtype=torch.int64, device=points.device)]
    for start in range(0, len(centres), rows):
        x, y, z = (
            (centres[start : start + rows, axis, None] - points[None, :, axis]).square_()
            for axis in range(3)
        )
        near = ((x + y) + z <= limit).nonzero()
        found.append(near + torch.tensor([start, 0], device=near.device))
    both = torch.cat(found)
    return both[:, 0], both[:, 1]


def _slots(offsets: Tensor, edge: float, kernel: Kernel) -> Tensor:
    """Slot ``[T]`` of offsets ``[T, 3]``: cells rounded half away from zero, clamped to the box."""
    cell = (offsets / torch.tensor(edge, dtype=torch.float32, device=offsets.device)).double()
    whole = torch.sign(cell) * torch.floor(cell.abs() + 0.5)
    half = kernel.size[0] // 2
    x, y, z = (whole.clamp(-half, half) + half).to(torch.int64).unbind(1)
    return (x * kernel.size[0] + y) * kernel.size[0] + z


def products(pairs: list[Pair], x: Tensor, weight: Tensor, grad: Tensor, backward: bool) -> Tensors:
    x, w, grad = (operand.detach().double() for operand in (x, weight, grad))
    out, grad_x, grad_w = torch.zeros_like(grad), torch.zeros_like(x), torch.zeros_like(w)
    for slot, (j, i) in enumerate(pairs):
        out.index_add_(0, i, x[j] @ w[slot])
        if backward:
            grad_x.index_add_(0, j, grad[i] @ w[slot].T)
            grad_w[slot] = x[j].T @ grad[i]
    return {"out": out} | ({"grad_x": grad_x, "grad_weight": grad_w} if backward else {})


def check_triplets(built: KernelMap, truth: list[Pair]) -> None:
    device = built.in_index.device
    counts = torch.tensor([len(j) for j, _ in truth], device=device)
    slots = torch.arange(len(truth), device=device).repeat_interleave(counts)
    in_index, out_index = (torch.cat(rows) for rows in zip(*truth, strict=True))
    wanted = _numbers(slots, in_index, out_index, built)
    got = _numbers(built.slot_index, built.in_index.long(), built.out_index.long(), built)
    if not torch.equal(got, wanted):
        common = int(torch.isin(got, wanted).sum())
        raise CheckFailed(f"{len(got)} triplets, {len(wanted)} expected, {common} in common")


def _numbers(slot: Tensor, j: Tensor, i: Tensor, shape: KernelMap) -> Tensor:
    return ((slot * shape.n_out + i) * shape.n_in + j).sort().values


def check_values(results: Tensors, truth: Tensors, dtype: str, terms: int = 0) -> None:
    for name, result in results.items():
        wrong = disagreement(result, truth[name], dtype, terms if name == "grad_weight" else 0)
        if wrong:
            raise CheckFailed(f"{name} {wrong}")


def disagreement(result: Tensor, truth: Tensor, dtype: str, terms: int = 0) -> str | None:
    """How a result disagrees with its truth, ``None`` if its dtype explains the error."""
    if result.shape != truth.shape:
        return f"has the shape {tuple(result.shape)} instead of {tuple(truth.shape)}"
    error, scale = result.detach().double() - truth, rms(truth)
    if not bool(error.isfinite().all()):
        return "is not finite"
    bound = RELATIVE_RMS[dtype] + (SUM_ERROR * terms**0.5 if dtype != "float64" else 0.0)
    worst = float(error.abs().max()) if error.numel() else 0.0
    if rms(error) > bound * scale or worst > WORST_OVER_RMS * bound * scale:
        return f"is off by {rms(error):.2e} (RMS), {worst:.2e} at most; bound {bound * scale:.2e}"
    return None


def check_network(
    results: Tensors, truth: Tensors, plain: Tensors, errors: dict[str, float], dtype: str
) -> None:
    """Compare a network's results with float64, as far as errors of its products explain."""
    if set(results) != set(truth):
        raise CheckFailed(f"results {sorted(results)}, truth {sorted(truth)}")
    rounding = RELATIVE_RMS[dtype]
    gradients = {n: rms(t) for n, t in truth.items() if not n.startswith("out")}
    least = rounding * max(gradients.values(), default=0.0)
    for name, expected in truth.items():
        result, scale = results[name], rms(expected)
        if result.shape != expected.shape or not bool(result.isfinite().all()):
            raise CheckFailed(f"{name} has another shape or is not finite")
        error, explained = rms(result.double() - expected), rms(plain[name].double() - expected)
        one = least if name in gradients and scale < least else rounding * scale
        factor = OUTPUT if name.startswith("out") else GRADIENT
        bound = factor * max(explained, errors[name], one)
        if error > bound:
            raise CheckFailed(
                f"{name} is off by {error:.2e} (RMS) at a scale of {scale:.2e}; bound {bound:.2e}"
            )


def rms(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt()) if tensor.numel() else 0.0


@dataclass(frozen=True)
class Rounded(Reference):
    """The reference, with a normal error on every result of relative RMS ``error``."""

    error: float = 0.0
    name: str = field(init=False)
    deterministic: bool = False

    def __post_init__(self) -> None:
        size = f"{self.error:.3e}".replace(".", "_").replace("-", "m").replace("+", "p")
        object.__setattr__(self, "name", f"rounded_{size}")

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        return self._off(super().forward(x, w, layouts, n_out, spec))

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        return self._off(super().weight_grad(x, g, layouts, spec))

    def _off(self, exact: Tensor) -> Tensor:
        return exact + self.error * rms(exact) * torch.randn_like(exact)


def gate(engine: Engine, device: torch.device) -> None:
    """Hold an engine's map builder and dataflows to their whole check, which takes long."""
    if engine.on_voxels is not None:
        check_builder(engine.on_voxels, device)
    for dataflow in engine.dataflows(device):
        check_dataflow(dataflow, device)
