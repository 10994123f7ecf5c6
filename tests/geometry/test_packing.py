import pytest
import torch

from pcnn.geometry import KeyFormat

LAYOUTS = [KeyFormat(), KeyFormat(3, (20, 20, 20)), KeyFormat(0, (12, 12, 8))]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_packing_keeps_coordinates_and_order_to_the_limit(layout: KeyFormat) -> None:
    half = torch.tensor(layout.half)
    corners = torch.cartesian_prod(*[torch.tensor([-int(h), -1, 0, int(h) - 1]) for h in half])
    batches = torch.tensor([0, max(0, layout.max_batch - 1)])
    coords = torch.cat(
        [torch.cat([torch.full((len(corners), 1), int(b)), corners], 1) for b in batches]
    )
    keys = layout.pack(coords)
    assert torch.equal(layout.unpack(keys).long(), coords)
    assert (keys >= 0).all()
    expected = sorted({tuple(row) for row in coords.tolist()})
    got = layout.unpack(torch.unique(keys)).tolist()
    assert [tuple(row) for row in got] == expected


def test_a_neighbours_key_is_a_sum() -> None:
    layout = KeyFormat()
    coords = torch.tensor([[2, -5, 0, 7], [0, -131070, 131069, 0]])
    for offset in ((0, 0, -1), (1, -1, 1), (-2, 2, 0)):
        moved = coords + torch.tensor([0, *offset])
        assert torch.equal(layout.pack(coords) + layout.delta(offset), layout.pack(moved))
