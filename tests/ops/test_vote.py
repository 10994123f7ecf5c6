"""One label of many, against a loop."""

from collections import Counter

import pytest
import torch

import pcnn
from pcnn.ops import vote_labels


@pytest.mark.parametrize("rule", ["unanimous", "majority"])
@pytest.mark.parametrize("many", [0, 1, 300])
def test_votes_are_those_of_a_loop(rule: str, many: int) -> None:
    draw = torch.Generator().manual_seed(0)
    points = torch.rand(many, 3, generator=draw) * 4 - 2
    batch = torch.randint(0, 2, (many,), generator=draw)
    labels = torch.randint(-1, 3, (many,), generator=draw)
    x = pcnn.voxelize(points, torch.ones(many, 1), batch, voxel_size=0.7, batch_size=3)
    for grid in (x.geometry, x.geometry.strided(pcnn.Kernel.of(2, 2))):
        rows, wanted = grid.point_rows().tolist(), []
        for row in range(grid.rows):
            own = [int(a) for a, b in zip(labels, rows, strict=True) if b == row and a != -1]
            most = Counter(own).most_common(2)
            tie = len(most) > 1 and (rule == "unanimous" or most[0][1] == most[1][1])
            wanted.append(-1 if not most or tie else most[0][0])
        for dtype in (torch.int64, torch.int32):
            found = vote_labels(labels.to(dtype), grid, ignore_index=-1, rule=rule)
            assert found.tolist() == wanted
            assert found.dtype == torch.int64
    bytes_ = vote_labels(labels.clamp(min=0).to(torch.uint8), x.geometry)
    assert set(bytes_.tolist()) <= {-100, 0, 1, 2}
