"""The cost of a call on clouds of growing size."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SIZES = (10_000, 100_000, 1_000_000, 5_000_000)

#: Growth of a voxel's share of the time from 1 to 5 million voxels: caches are left behind.
TIME = 1.5
#: The same of the peak memory, from a hundred thousand voxels on, in either direction.
MEMORY = 1.2


def sheet(n: int, device: torch.device | str = "cpu") -> Tensor:
    """``[n, 4]`` int32 (batch, x, y, z): just n distinct cells on a bumpy surface, two clouds."""
    place = torch.arange(n, device=device)
    side = max(1, round(n**0.5))
    x, y = place // side, place % side
    z = (3 * torch.sin(x / 4) + 2 * torch.cos(y / 3)).round().long()
    return torch.stack([(x > side // 2).long(), x - side // 2, y - side // 2, z], 1).int()


@dataclass(frozen=True)
class Cost:
    """Of one call."""

    n: int  # voxels
    ms: float  # wall time until the device is done, the shortest of some repeats [ms]
    peak: int  # memory in use at most, beyond what was in use before [bytes]

    def __str__(self) -> str:
        share = f"{1e6 * self.ms / self.n:.2f} ns, {self.peak / self.n:.0f} bytes a voxel"
        return f"{self.n:>9} voxels: {self.ms:.3f} ms, {self.peak / 1e6:.1f} MB ({share})"


def cost(n: int, call: Callable[[], object], repeats: int = 7) -> Cost:
    """Run a call on the GPU some times, after two that compile and learn."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        kept = call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        del kept
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    return Cost(n, 1e3 * min(times), peak)


def check(costs: Sequence[Cost]) -> None:
    """Hold time and memory to linear growth."""
    for one in costs:
        print(one)
    largest = costs[-1]
    million = next(c for c in costs if c.n == 1_000_000)
    assert largest.ms / largest.n <= TIME * million.ms / million.n
    for one in costs:
        if one.n >= 100_000:
            ratio = (one.peak / one.n) / (largest.peak / largest.n)
            assert 1 / MEMORY <= ratio <= MEMORY, one
