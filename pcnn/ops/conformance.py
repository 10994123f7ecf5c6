"""Checks of map builders and dataflows: every promise, over all that they have differed in.

A builder or dataflow may refuse by a ``ValueError`` what it does not serve; what it serves, it
serves right. Benchmarks run the whole checks (`check_builder`, `check_dataflow`), and the tests run
the same products over more layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from pcnn.dataflows import Dataflow, Epilogue, Reference
from pcnn.geometry import Kernel, KernelMap, VoxelGrid, grid_of_cells, point_set_of
from pcnn.geometry.base import Builder
from pcnn.geometry.packing import HALF as LIMIT
from pcnn.kernels.conv_spec import tf32_products
from pcnn.maps import BruteForce, Windowed
from pcnn.maps.radius import RadiusSearch
from pcnn.ops.convolution import convolution

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
K3, DOWN, EVEN = Kernel.of(3), Kernel.of(3, 2), Kernel.of(2, 2)

#: Kernels that differ in parity, in their axes, in what they tile and in what they leave out.
KERNELS = (
    *(Kernel.of(size) for size in (3, 2, 1, 5, (1, 3, 2))),
    *(Kernel.of(size, size) for size in (2, 3)),
    *(Kernel.of(3, dilation=dilation) for dilation in (2, (1, 3, 2))),
    *(Kernel.of(size, stride) for size, stride in ((3, 2), (4, 2), (1, 2))),
    Kernel.of((1, 1, 3), (1, 1, 2)),
    Kernel.of(3, padding=0),
    Kernel.of(3, 3, padding=1),
    Kernel.of(2, dilation=2, padding=1),  # symmetric, with an even number of slots
)

#: Bound on the relative RMS error against float64 of a result that is rounded to a dtype, whose
#: operands were rounded before the reference ran. float64: order of additions. float32: sums of up
#: to a few thousand terms (worst seen 3e-7). float16, bfloat16: one rounding of the result, half an
#: ulp is 2^-11 and 2^-8 (worst seen 2.1e-4 and 1.7e-3); products and sums are float32.
RELATIVE_RMS = {DOUBLE: 1e-14, SINGLE: 1e-6, HALF: 5e-4, BRAIN: 4e-3}
#: Float32 results of sums on a GPU: tensor cores truncate where they align the terms of a sum, so
#: errors do not cancel (worst seen 6.6e-5, all towards zero, of a million terms a slot).
SUMS_ON_TENSOR_CORES = 1e-4


class Nonconforming(RuntimeError):
    """A builder or dataflow that breaks its promise; the message says where and how."""


def _run(subject: str, checks: Iterable[tuple[object, Callable[[], bool]]]) -> None:
    """Run checks by what they are about; a subject that fails one, or serves none, is refused."""
    served = False
    for name, check in checks:
        try:
            served |= check()
        except ValueError:
            continue
        except Exception as error:  # a compiler's errors have no base of their own
            first = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise Nonconforming(f"{subject} fails at {name}: {first}") from error
    if not served:
        raise Nonconforming(f"{subject} refuses all checks")


def wavy_cells(n: int, seed: int = 0, centre: int = 0) -> Tensor:
    """[<= n, 3] int64 cells on a bumpy surface, negative coordinates included, duplicates kept."""
    generator = torch.Generator().manual_seed(seed)
    side = max(2, int(n**0.5))
    flat = torch.randint(-side // 2, side // 2 + 1, (n, 2), generator=generator)
    height = (3 * torch.sin(flat[:, 0] / 4) + 2 * torch.cos(flat[:, 1] / 3)).round().long()
    return torch.cat([flat, height[:, None]], dim=1) + centre


def wavy_grid(n: int, batch_size: int = 1, seed: int = 0, **kwargs: object) -> VoxelGrid:
    """Voxels of `wavy_cells` in clouds drawn at random."""
    cells = wavy_cells(n, seed)
    batch = torch.randint(0, batch_size, (n,), generator=torch.Generator().manual_seed(seed + 1))
    return grid_of_cells(cells, batch, batch_size, **kwargs)  # type: ignore[arg-type]


#: Input sites, output sites, and the relation.
Relation = tuple[VoxelGrid, VoxelGrid, Kernel]


def _relations(device: torch.device) -> Iterator[Relation]:
    """Sites with all kernels: none, one, few, several clouds, deeper levels, far away, given."""
    for n, kernel in product((0, 1, 2, 33, 200), KERNELS):
        grid = wavy_grid(n, batch_size=3).to(device)
        yield grid, grid.strided(kernel), kernel
    coarse = wavy_grid(600, batch_size=2).to(device).strided(Kernel.of(2, (2, 4, 1)))
    reached = wavy_grid(300, batch_size=2, downsampling="reached").to(device)
    for grid, kernels in ((coarse, (K3, Kernel.of(2, (1, 1, 2)))), (reached, ())):
        for kernel in (*kernels, DOWN, EVEN):
            yield grid, grid.strided(kernel), kernel
    limit = LIMIT - 2  # the largest coordinate with a neighbour on either side
    cells = wavy_cells(200) % 3 + torch.tensor([limit - 2, -limit, 0])
    far = grid_of_cells(cells, torch.arange(200) % 4, 4).to(device)
    yield far, far, K3
    grid, other = wavy_grid(300, seed=3).to(device), wavy_grid(200, seed=4).to(device)
    yield grid, other, K3
    yield grid, other.strided(EVEN), EVEN  # sites that lack the parents of some inputs


@lru_cache(maxsize=4)
def _true_maps(device: torch.device) -> list[tuple[Relation, KernelMap]]:
    return [(one, BruteForce().build(*one)) for one in _relations(device)]


def _same_map(builder: Builder, relation: Relation, truth: KernelMap) -> bool:
    """True if the builder finds triplets, and they are the true ones in their order."""
    built = builder.build(*relation)
    for name in ("n_in", "n_out", "volume", "symmetric", "offsets", "out_index", "in_index"):
        found, wanted = getattr(built, name), getattr(truth, name)
        if not (torch.equal(found, wanted) if isinstance(wanted, Tensor) else found == wanted):
            raise Nonconforming(f"{name} is {found} instead of {wanted}")
    return truth.triplets > 0


@lru_cache(maxsize=256)  # of those that pass: an error is not kept
def check_builder(builder: Builder, device: torch.device) -> None:
    """Compare a builder's maps with brute force, once in a process for every builder and device."""
    checks = ((one, partial(_same_map, builder, one, truth)) for one, truth in _true_maps(device))
    _run(f"map builder {builder.name!r} on {device}", checks)


def relative_rms(value: Tensor, reference: Tensor) -> float:
    """``||value - reference|| / ||reference||``; NaN never passes a comparison."""
    value, reference = value.detach().double(), reference.detach().double()
    return float((value - reference).norm() / reference.norm().clamp_min(1e-300))


@dataclass(frozen=True)
class Case:
    """A layer; its map, operands and true products serve any number of dataflows."""

    kernel: Kernel  # the relation
    c_in: int  # input channels
    c_out: int  # output channels
    dtype: torch.dtype = SINGLE  # of the operands
    groups: int = 1  # groups of channels
    transposed: bool = False  # whether the layer reads the map from its other side
    n: int = 300  # voxels drawn, in two clouds
    device: str = "cpu"  # where
    scale: float = 1.0  # of the operands: sums of products beyond float16 do not overflow
    apart: bool = False  # whether the output sites are those of another cloud
    points: bool = False  # whether native points, of which several fill a slot, not voxels
    #: of a fused product: channels of a skip connection, and some of the letters ``a b r +`` for
    #: scale, shift, residual and ReLU
    c_skip: int = 0
    epilogue: str | None = None

    def _built(self) -> KernelMap:
        if self.points:
            places = wavy_cells(self.n).float().to(self.device)
            points = point_set_of(places, voxel_size=2.0)
            return points.map_to(points.strided(self.kernel), self.kernel, RadiusSearch())
        grid = wavy_grid(self.n, batch_size=2).to(self.device)
        sites = wavy_grid(self.n, batch_size=2, seed=9).to(self.device) if self.apart else grid
        return grid.map_to(sites.strided(self.kernel), self.kernel, Windowed())

    @cached_property
    def map(self) -> KernelMap:
        """The kernel map, by the builder of the device."""
        built = self._built()
        return built.transpose() if self.transposed else built

    @cached_property
    def operands(self) -> dict[str, Tensor]:
        """Features, their like at the outputs, weights, and what a fused product takes."""
        random, n_in, n_out = torch.Generator().manual_seed(0), self.map.n_in, self.map.n_out
        shapes: dict[str, tuple[int, ...]] = {
            "x": (n_in, self.c_in),
            "y": (n_out, self.c_out),
            "weight": (self.map.volume, self.c_in // self.groups + self.c_skip, self.c_out),
            "skip": (n_in, self.c_skip),
            "r": (n_out, self.c_out),
            **dict.fromkeys("ab", (self.c_out,)),
        }
        drawn: dict[str, Tensor] = {}
        for name, shape in shapes.items():
            values = self.scale * torch.randn(*shape, dtype=DOUBLE, generator=random)
            drawn[name] = values.to(self.device, SINGLE if name in "ab" else self.dtype)
        return drawn

    @cached_property
    def exact(self) -> dict[bool, list[Tensor]]:
        """The products in float64, plain and, where the map is its own transpose, mirrored."""
        ways = range(1 + self.map.symmetric)
        return {bool(way): self.products(Reference(), bool(way), DOUBLE) for way in ways}

    def products(
        self, dataflow: Dataflow, mirrored: bool = False, dtype: torch.dtype | None = None
    ) -> list[Tensor]:
        """Output, gradient of the features and, not rounded to half, of the weights.

        Of a layer with a skip connection or an epilogue the output alone.
        """
        dtype, trained = dtype or self.dtype, self.epilogue is None
        own = {
            name: one.to(DOUBLE) if dtype == DOUBLE else one for name, one in self.operands.items()
        }
        how: dict[str, Any] = {"groups": self.groups, "compute_dtype": dtype}
        if self.epilogue is not None:
            a, b, r = (own[one] if one in self.epilogue else None for one in "abr")
            how["epilogue"] = Epilogue(a, b, r, "+" in self.epilogue)
            how["skip"] = own["skip"] if self.c_skip else None
        wide = torch.promote_types(dtype, SINGLE) if trained else dtype
        pair = own["x"], own["weight"].to(wide)
        x, weight = (one.detach().requires_grad_(trained) for one in pair)
        kernel_map = self.map.transpose() if mirrored else self.map
        with tf32_products(False), torch.set_grad_enabled(trained):
            out = convolution(x, weight, kernel_map, dataflow, **how)
            grads = torch.autograd.grad(out, (x, weight), own["y"]) if trained else ()
        return [out.detach(), *grads]


def check_products(dataflow: Dataflow, case: Case) -> bool:
    """Compare all products of a layer, plain and mirrored, with float64."""
    for mirrored, exact in case.exact.items():
        dtypes = case.dtype, case.dtype, torch.promote_types(case.dtype, SINGLE)
        for tensor, dtype in zip(exact, dtypes, strict=False):
            # freed memory is handed out next: let it not hold the last dataflow's right values
            torch.full_like(tensor, torch.nan, dtype=dtype)
        found = case.products(dataflow, mirrored)
        names = "out", "grad_x", "grad_weight"
        for name, dtype, out, wanted in zip(names, dtypes, found, exact, strict=False):
            where = name + ", mirrored" * mirrored
            if out.shape != wanted.shape or out.dtype != dtype:
                raise Nonconforming(f"{where} is {out.dtype} {list(out.shape)}")
            error, bound = relative_rms(out, wanted), RELATIVE_RMS[dtype]
            if out.is_cuda and dtype == SINGLE:
                bound = SUMS_ON_TENSOR_CORES
            if not error < bound:
                raise Nonconforming(f"{where}: RMS error {error:.1e}, over {bound:.1e} of it")
    return True


def check_repeats(dataflow: Dataflow, case: Case) -> bool:
    """Two runs of a deterministic dataflow give identical bits."""
    runs = [case.products(dataflow) for _ in range(2)]
    if not all(map(torch.equal, *runs)):
        raise Nonconforming("two runs differ, but deterministic is True")
    return True


@lru_cache(maxsize=8)
def _cases(device: str) -> list[Case]:
    """Layers that differ in one thing at a time; few shapes, as kernels are compiled for each."""
    usual = partial(Case, K3, 16, 32)
    found = [usual(dtype) for dtype in (HALF, BRAIN, SINGLE, DOUBLE)]
    for dtype in (HALF, SINGLE):
        # channels that no block divides
        found += [Case(K3, 33, 20, dtype), Case(K3, 1, 3, dtype), Case(K3, 12, 6, dtype, groups=3)]
    for kernel in (DOWN, EVEN, Kernel.of(2), Kernel.of(5), Kernel.of((1, 3, 5), 1, 2)):
        found += [Case(kernel, 16, 32, HALF, transposed=other) for other in (False, True)]
    found += [usual(HALF, n=n) for n in (0, 1, 65)]
    found += [
        usual(SINGLE, n=5000),  # beyond every block of rows
        usual(HALF, apart=True),  # rows without a triplet
        Case(Kernel.of(1), 16, 32, HALF, scale=40.0),  # gradients that float16 does not hold
        usual(HALF, epilogue="abr+"),
        usual(SINGLE, epilogue="b"),
        usual(HALF, c_skip=5, epilogue="ab+"),
        usual(SINGLE, c_skip=32, epilogue=""),
        usual(HALF, n=1, c_skip=5, epilogue="r"),
        usual(HALF, n=0, epilogue="ab+"),
        usual(HALF, points=True),
        Case(DOWN, 16, 32, HALF, points=True),
        Case(DOWN, 16, 32, SINGLE, transposed=True, points=True),
    ]
    return [replace(case, device=device) for case in found]


@lru_cache(maxsize=256)  # of those that pass: an error is not kept
def check_dataflow(dataflow: Dataflow, device: torch.device) -> None:
    """Run the whole check once in a process for every dataflow and device."""
    cases = _cases(str(device))
    checks = [(one, partial(check_products, dataflow, one)) for one in cases]
    if dataflow.deterministic:
        checks += [(one, partial(check_repeats, dataflow, one)) for one in (cases[0], *cases[-2:])]
    _run(f"{dataflow} on {device}", checks)
