"""Checks of a map builder: the triplets of brute force, in their order, for odd cases too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid, grid_of_cells
from pcnn.geometry.packing import DEFAULT_FORMAT
from pcnn.maps.base import MapBuilder
from pcnn.maps.host_search import BruteForce

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
#: Largest coordinate that keys hold with a neighbour on either side.
LIMIT = min(DEFAULT_FORMAT.half) - 2


class Nonconforming(RuntimeError):
    """A builder or dataflow that breaks its promise; the message says where and how."""


def run_checks(subject: str, checks: Iterable[tuple[object, Callable[[], bool | None]]]) -> None:
    """Run checks by what they are about; a subject that fails one, or refuses all, is refused."""
    faults: list[str] = []
    served, number = False, 0
    for name, check in checks:
        number += 1
        try:
            served |= check() is not False
        except ValueError:
            continue
        except Nonconforming as error:
            faults.append(str(error))
        except Exception as error:  # a compiler's errors have no base of their own
            faults.append(
                ": ".join([str(name), type(error).__name__, *str(error).splitlines()[:1]])
            )
    if faults:
        text = "; ".join(faults[:2])
        raise Nonconforming(f"{subject} fails {len(faults)} of {number} checks: {text}")
    if not served:
        raise Nonconforming(f"{subject} refuses all of {number} checks")


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


#: What is special about the sites, input sites, output sites, and the relation.
Case = tuple[str, VoxelGrid, VoxelGrid, Kernel]


def cases(device: torch.device) -> Iterator[Case]:
    """Sites with all kernels: none, one, few, several clouds, deeper levels, far away, given."""
    for n in (0, 1, 2, 33, 200):
        grid = wavy_grid(n, batch_size=3).to(device)
        for kernel in KERNELS:
            yield "a surface", grid, grid.strided(kernel), kernel
    coarse = wavy_grid(600, batch_size=2).to(device).strided(Kernel.of(2, (2, 4, 1)))
    for kernel in (Kernel.of(3), Kernel.of(3, 2), Kernel.of(2, (1, 1, 2)), Kernel.of(2, 2)):
        yield "a deeper level", coarse, coarse.strided(kernel), kernel
    reached = wavy_grid(300, batch_size=2, downsampling="reached").to(device)
    for kernel in (Kernel.of(3, 2), Kernel.of(2, 2)):
        yield "reached sites", reached, reached.strided(kernel), kernel
    cells = wavy_cells(200) % 3 + torch.tensor([LIMIT - 2, -LIMIT, 0])
    far = grid_of_cells(cells, torch.arange(200) % 4, 4).to(device)
    yield "clouds at the limit of the keys", far, far, Kernel.of(3)
    grid = wavy_grid(300, seed=3).to(device)
    other = wavy_grid(200, seed=4).to(device)
    yield "given sites", grid, other, Kernel.of(3)
    # sites that lack the parents of some inputs
    yield "given sites", grid, other.strided(Kernel.of(2, 2)), Kernel.of(2, 2)


@lru_cache(maxsize=4)
def _truth(device: torch.device) -> list[tuple[Case, KernelMap]]:
    search = BruteForce().build
    return [(one, search(*one[1:])) for one in cases(device)]


def difference(built: KernelMap, truth: KernelMap) -> str | None:
    """The difference of a map from the true one; ``None`` if there is none."""
    sizes = [(one.n_in, one.n_out, one.volume, one.symmetric) for one in (built, truth)]
    if sizes[0] != sizes[1]:
        return f"(inputs, outputs, slots, symmetric) are {sizes[0]} instead of {sizes[1]}"
    found, wanted = (
        (one.slot_index.long() * one.n_out + one.out_index.long()) * one.n_in + one.in_index.long()
        for one in (built, truth)
    )
    if torch.equal(found, wanted):
        return None
    if torch.equal(found.sort().values, wanted):
        return "the triplets are not ordered by slot, then output row"
    right = int(torch.isin(wanted, found).sum())
    return f"{len(found)} triplets, of which {right} are among the {len(wanted)} true ones"


def _matches(builder: MapBuilder, case: Case, truth: KernelMap) -> bool:
    """True if the builder serves triplets, and they are the true ones."""
    about, source, target, kernel = case
    wrong = difference(builder.build(source, target, kernel), truth)
    if wrong:
        sites = f"{source.rows} -> {target.rows} sites"
        raise Nonconforming(f"{about}, {sites}, {kernel}: {wrong}")
    return truth.triplets > 0


@lru_cache(maxsize=256)  # of those that pass: an error is not kept
def check_builder(builder: MapBuilder, device: torch.device) -> None:
    """Compare a builder's maps with brute force, once in a process for every builder and device."""
    checks = ((case, partial(_matches, builder, case, truth)) for case, truth in _truth(device))
    run_checks(f"map builder {builder.name!r} on {device}", checks)
