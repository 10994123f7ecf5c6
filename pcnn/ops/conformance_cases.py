"""Layers and maps over which the checks of dataflows go."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap
from pcnn.maps import SortedSearch, Windowed
from pcnn.maps.conformance import wavy_grid

#: Bound on the relative RMS error against float64 of a result that is rounded to a dtype, whose
#: operands were rounded before the reference ran. float64: order of additions. float32: sums of up
#: to a few thousand terms (worst seen 3e-7). float16, bfloat16: one rounding of the result, half an
#: ulp is 2^-11 and 2^-8 (worst seen 2.1e-4 and 1.7e-3); products and sums are float32.
RELATIVE_RMS = {
    torch.float64: 1e-14,
    torch.float32: 1e-6,
    torch.float16: 5e-4,
    torch.bfloat16: 4e-3,
}
#: Float32 results of sums on a GPU: tensor cores truncate where they align the terms of a sum, so
#: errors do not cancel (worst seen 6.6e-5, all towards zero, of a million terms a slot).
SUMS_ON_TENSOR_CORES = 1e-4


@dataclass(frozen=True)
class Case:
    """A layer and its operands."""

    kernel: Kernel  # the relation
    c_in: int  # input channels
    c_out: int  # output channels
    dtype: torch.dtype = torch.float32  # of the operands
    groups: int = 1  # groups of channels
    transposed: bool = False  # whether the layer reads the map from its other side
    n: int = 300  # voxels drawn, in two clouds
    device: str = "cpu"  # where
    scale: float = 1.0  # of the operands: sums of products beyond float16 do not overflow
    apart: bool = False  # whether the output sites are those of another cloud

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        size, stride = ("".join(map(str, t)) for t in (self.kernel.size, self.kernel.stride))
        spread = max(self.kernel.dilation)
        way = "T" if self.transposed else ""
        words = [f"{way}k{size}s{stride}" + (f"d{spread}" if spread > 1 else "")]
        words += [f"{self.c_in}-{self.c_out}-g{self.groups}-{dtype}-n{self.n}"]
        words += [f"x{self.scale:g}"] if self.scale != 1.0 else []
        words += ["apart"] if self.apart else []
        return "-".join(words)

    def map(self) -> KernelMap:
        """The kernel map, by the builder of the device."""
        grid = wavy_grid(self.n, batch_size=2).to(self.device)
        builder = Windowed() if grid.device.type == "cuda" else SortedSearch()
        sites = wavy_grid(self.n, batch_size=2, seed=9).to(self.device) if self.apart else grid
        built = grid.map_to(sites.strided(self.kernel), self.kernel, builder)
        return built.transpose() if self.transposed else built

    def randn(self, random: torch.Generator, *shape: int) -> Tensor:
        """Operands in the case's dtype, from a generator of the CPU."""
        drawn = torch.randn(*shape, dtype=torch.float64, generator=random)
        return (self.scale * drawn).to(self.device, self.dtype)

    def bound(self, out_dtype: torch.dtype) -> float:
        """Largest relative RMS error of sums that are rounded to a dtype."""
        if torch.device(self.device).type == "cuda" and out_dtype == torch.float32:
            return SUMS_ON_TENSOR_CORES
        return RELATIVE_RMS[out_dtype]


def map_of(
    i: Tensor, j: Tensor, k: Tensor, n_in: int, n_out: int, volume: int, symmetric: bool = False
) -> KernelMap:
    """Kernel map of triplets in any order, slots and rows as builders sort them."""
    order = torch.argsort((k * max(1, n_out) + i) * max(1, n_in) + j)
    ends = torch.cumsum(torch.bincount(k, minlength=volume), 0)
    offsets = torch.nn.functional.pad(ends, (1, 0)).cpu()
    rows = j[order].to(torch.int32), i[order].to(torch.int32)
    return KernelMap.from_pairs(
        *rows,
        offsets,
        n_in,
        n_out,
        one_per_slot=False,
        one_per_slot_transposed=False,
        symmetric=symmetric,
    )


def random_map(
    n_in: int, n_out: int, volume: int, triplets: int, symmetric: bool = False, seed: int = 0
) -> KernelMap:
    """Random triplets, most slots with several inputs, some triplets twice."""
    triplets = triplets if n_in and n_out else 0
    random = torch.Generator().manual_seed(seed)
    # a few rows get most triplets, the last row none
    i = (torch.rand(triplets, generator=random) ** 2 * max(0, n_out - 1)).long()
    j = torch.randint(max(1, n_in), (triplets,), generator=random)
    k = (torch.rand(triplets, generator=random) * volume).long()
    k = torch.where(k == 1, 0, k)  # an empty slot, and a full one
    if symmetric:
        own = torch.arange(n_out)
        i, j = torch.cat((i, j, own)), torch.cat((j, i, own))
        k = torch.cat((k, volume - 1 - k, torch.full_like(own, volume // 2)))
    return map_of(i, j, k, n_in, n_out, volume, symmetric)


@dataclass(frozen=True)
class FanIn(Case):
    """A layer over a random map; of its kernel only the volume counts."""

    symmetric: bool = False  # whether the map is its own transpose

    def __str__(self) -> str:
        return f"{super().__str__()}-several-a-slot" + "-symmetric" * self.symmetric

    def map(self) -> KernelMap:
        """``n`` output rows, fewer input rows unless symmetric, some 8 triplets a row."""
        rows = self.n if self.symmetric else -(-2 * self.n // 3)
        built = random_map(rows, self.n, self.kernel.volume, 8 * self.n, self.symmetric)
        built = built.transpose() if self.transposed else built
        return moved(built, self.device)


def moved(kernel_map: KernelMap, device: str) -> KernelMap:
    """The same map on another device."""
    in_index, out_index, offsets = kernel_map.layout("pairs")
    return KernelMap.from_pairs(
        in_index.to(device),
        out_index.to(device),
        offsets,
        kernel_map.n_in,
        kernel_map.n_out,
        one_per_slot=False,
        one_per_slot_transposed=False,
        symmetric=kernel_map.symmetric,
    )
