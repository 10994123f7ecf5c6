"""The solver of cliques as CUDA graphs: one launch a pair.

For programs that solve one pair after another on a GPU and keep a solver for all of them, such as
a robot that registers every scan to the last one. `pcnn register` solves one pair and ends, and
`estimate_all` gives the pairs of a batch to `cliques_batch`, where the host waits once for all: so
neither takes graphs. The place for them would be `estimate.solve_all`, for a batch of one pair of
``solver=cliques`` on a GPU, with a solver that its caller keeps over the pairs: those of `pcnn
register --graph` and `pcnn calibrate`. Both spend most of their time elsewhere, on describing the
clouds, and on looking for other poses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.registration.cliques import cliques, poses
from pcnn.registration.found_poses import packed, solutions_of
from pcnn.registration.settings import CliqueSettings
from pcnn.registration.solution import Solution, checked_shapes
from pcnn.runtime.capture import Capture, CudaGraphs, Figures

SMALLEST = 256  # matches that a graph has room for at least
REPEATS = 3  # pairs of one room before it is captured, which takes as long as some of them


@dataclass(eq=False)
class _Room:
    """Memory for the matches of a pair, what is computed from them, and how."""

    sides: Tensor  # [2, 1, M, 3] float64 points of the matches
    there: Tensor  # [1] int64, how many are
    work: Callable[[], Figures]  # launches, or replays
    graphed: bool = False
    pairs: int = 0  # that were solved


class GraphedCliques:
    """Estimates transforms of one pair after another, each as `cliques` would.

    A graph has room for a number of matches, a power of two or one and a half times one. The first
    pairs of a room are solved by the same launches without a graph, so that a pair has the same
    transform before the capture and after it. Graphs share the memory of their temporary tensors,
    so that a solver serves one thread. On a CPU every pair is solved by `cliques`.
    """

    def __init__(
        self,
        settings: CliqueSettings,
        refine: bool = True,
        capture: Capture | None = None,
        repeats: int = REPEATS,
    ) -> None:
        if repeats < 1:
            raise ValueError(f"a graph is captured after a pair or more, got repeats={repeats}")
        self.settings, self.refine, self.repeats = settings, refine, repeats
        self._capture = capture
        self._rooms: dict[int, _Room] = {}

    @torch.no_grad()
    def __call__(self, source: Tensor, target: Tensor) -> Solution:
        """Estimate the transform of a pair; the host waits once."""
        if self._capture is None and not source.is_cuda:
            return cliques(source, target, self.settings, self.refine)
        checked_shapes(source, target)
        count = len(source)
        if count < 3:
            return Solution(None, torch.zeros(count, dtype=torch.bool), 0)
        size = room_for(count)
        room = self._rooms.get(size)
        if room is None:
            room = self._rooms[size] = self._room(size, source.device)
        # rows behind these are those of other pairs: what they hold changes nothing
        room.sides[0, 0, :count] = source
        room.sides[1, 0, :count] = target
        room.there.fill_(count)
        if room.pairs >= self.repeats and not room.graphed:
            if self._capture is None:
                self._capture = CudaGraphs(source.device)
            room.work, room.graphed = self._capture(room.work), True
        parcel = room.work()["parcel"].cpu()
        room.pairs += 1
        (solution,) = solutions_of(parcel, [count], size)
        return solution

    def _room(self, size: int, device: torch.device) -> _Room:
        sides = torch.zeros(2, 1, size, 3, dtype=torch.float64, device=device)
        there = torch.zeros(1, dtype=torch.int64, device=device)

        def work() -> Figures:
            found = poses(sides[0], sides[1], there, self.settings, self.refine)
            return {"parcel": packed(found)}

        return _Room(sides, there, work)


def room_for(count: int) -> int:
    """The smallest number of matches that graphs are made for and that holds the count."""
    size = SMALLEST
    while size < count:
        # 256, 384, 512, 768, ...
        size = size * 3 // 2 if size & (size - 1) == 0 else size // 3 * 4
    return size
