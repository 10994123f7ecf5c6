"""Votes of several squares of a cloud for the same points, in files until all were cast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.tile_spool import Square

#: Confidence is kept as a byte: so much is 1.
FULL = 255


def best_classes(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Class and confidence of rows.

    Args:
        scores: [N, C] probabilities.

    Returns:
        [N] uint8 classes, and [N] uint8, 255 times their probability.
    """
    probability, classes = scores.max(1)
    return classes.to(torch.uint8), (probability * FULL).round().to(torch.uint8)


@dataclass(frozen=True)
class SquareVotes:
    """Probabilities that squares give to points that several of them see, by owning square.

    Args:
        folder: for the files; they are removed as squares are settled.
        classes: C.
        device: where votes are averaged.
    """

    folder: Path
    classes: int
    device: torch.device

    def add(
        self,
        owners: Mapping[Square, tuple[int, int]],
        rows: np.ndarray,
        weights: np.ndarray,
        scores: np.ndarray,
    ) -> None:
        """Keep the votes of a square.

        Args:
            owners: where the points that a square owns begin and end among the following.
            rows: [M] int64 numbers of the points in the cloud.
            weights: [M] float32.
            scores: [M, C] float16.
        """
        records = np.empty(len(rows), self._record)
        records["row"], records["weight"], records["scores"] = rows, weights, scores
        for (i, j), (first, last) in owners.items():
            with (self.folder / f"{i}_{j}.votes").open("ab") as file:
                file.write(records[first:last].data)

    def settled(self, before: int | None) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Average the votes for points of squares in columns before this one; None: of all.

        Yields:
            Rows [M] int64 of a square, their classes [M] uint8 and confidence [M] uint8.
        """
        for path in self.folder.glob("*.votes"):
            if before is None or int(path.stem.split("_")[0]) < before:
                held = np.fromfile(path, self._record)
                path.unlink()
                yield self._averaged(held)

    @torch.inference_mode()
    def _averaged(self, held: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        of = held.dtype.fields
        assert of is not None  # a structure
        raw = torch.from_numpy(held.view(np.uint8).reshape(len(held), -1)).to(self.device)

        def column(name: str, dtype: torch.dtype) -> Tensor:
            kind, first = of[name][:2]
            return raw[:, first : first + kind.itemsize].contiguous().view(dtype)

        rows, order = column("row", torch.int64)[:, 0].sort(stable=True)
        weights = column("weight", torch.float32)[order]  # [M, 1]
        scores = column("scores", torch.float16)[order]  # [M, C]
        begins = torch.ones_like(rows, dtype=torch.bool)
        torch.ne(rows[1:], rows[:-1], out=begins[1:])
        first = begins.nonzero()[:, 0]
        counts = torch.diff(first, append=first.new_tensor([len(rows)]))
        total = scores.new_zeros(len(first), self.classes, dtype=torch.float32)
        weight = weights.new_zeros(len(first), 1)
        # vote after vote: atomic additions would not give the same sums twice
        for vote in range(int(counts.max()) if len(counts) else 0):
            some = (counts > vote).nonzero()[:, 0]
            at = first[some] + vote
            weight.index_add_(0, some, weights[at])
            total.index_add_(0, some, scores[at].float() * weights[at])
        classes, confidence = best_classes(total / weight)
        return rows[first].cpu().numpy(), classes.cpu().numpy(), confidence.cpu().numpy()

    @property
    def _record(self) -> np.dtype:
        return np.dtype([("row", "i8"), ("weight", "f4"), ("scores", "f2", (self.classes,))])
