"""The solver of cliques as CUDA graphs: one launch a pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.registration.cliques import poses
from pcnn.registration.found_poses import Found, packed, solutions_of
from pcnn.registration.ransac import Solution, checked_shapes
from pcnn.registration.settings import CliqueSettings
from pcnn.runtime.capture import Capture, CudaGraphs, Figures

SMALLEST = 256  # matches that a graph has room for at least


class _Room(NamedTuple):
    """A graph and the memory that it reads."""

    sides: Tensor  # [2, 1, M, 3] float64 points of the matches
    there: Tensor  # [1] int64, how many are
    most: int  # poses that it finds
    replay: Callable[[], Figures]


class GraphedCliques:
    """Estimates transforms of one pair after another, each as `cliques` would.

    A graph has room for a number of matches, a power of two or one and a half times one; it is
    captured at the first pair that needs it, and kept. Graphs share the memory of their temporary
    tensors, so that a solver serves one thread.

    Args:
        settings: of groups and what agrees.
        refine: fit the best hypotheses again to what agrees with them.
        capture: makes graphs; None: of CUDA, of the device of the first pair.
    """

    def __init__(
        self, settings: CliqueSettings, refine: bool = True, capture: Capture | None = None
    ) -> None:
        self.settings, self.refine = settings, refine
        self._capture = capture
        self._rooms: dict[int, _Room] = {}

    @torch.no_grad()
    def __call__(self, source: Tensor, target: Tensor) -> Solution:
        """Estimate the transform of a pair; the host waits once.

        Args:
            source: [M, 3] points of the matches in the source [m], of every pair on one device.
            target: [M, 3] their partners.

        Raises:
            ValueError: shapes differ, or coordinates are not finite.
        """
        checked_shapes(source, target)
        count = len(source)
        if count < 3:
            return Solution(None, torch.zeros(count, dtype=torch.bool), 0)
        size = room_for(count)
        room = self._rooms.get(size)
        if room is None:
            room = self._rooms[size] = self._captured(size, source.device)
        room.sides[0, 0, :count] = source
        room.sides[1, 0, :count] = target
        room.there.fill_(count)
        parcel = room.replay()["parcel"].cpu()
        (solution,) = solutions_of(parcel, [count], room.most)
        return solution

    def _captured(self, size: int, device: torch.device) -> _Room:
        generator = torch.Generator().manual_seed(0)  # any matches: they are run once before
        sides = torch.rand(2, 1, size, 3, generator=generator, dtype=torch.float64).to(device)
        count = torch.full((1,), size, device=device)

        def found() -> Found:
            return poses(sides[0], sides[1], count, self.settings, self.refine)

        def work() -> Figures:
            return {"parcel": packed(found())}

        most = found().support.shape[1]
        if self._capture is None:
            self._capture = CudaGraphs(device)
        return _Room(sides, count, most, self._capture(work))


def room_for(count: int) -> int:
    """The smallest number of matches that graphs are made for and that holds the count."""
    size = SMALLEST
    while size < count:
        # 256, 384, 512, 768, ...
        size = size * 3 // 2 if size & (size - 1) == 0 else size // 3 * 4
    return size
