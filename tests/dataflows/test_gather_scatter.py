"""Settings of gather-scatter; values are held to the oracle in test_dataflows."""

from dataclasses import replace

import torch

from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE
from pcnn.dataflows.grouping import Adaptive, Fixed, Separate, Sorted
from pcnn.dataflows.padded_buffer import padded_buffer
from pcnn.kernels.row_tiles import default_tile, tile_shape, tiles_of

#: Five slots of 2, 0, 5, 3 and 2 triplets.
OFFSETS = (0, 2, 2, 7, 10, 12)


def test_slots_lie_where_the_shifts_say() -> None:
    place = padded_buffer(OFFSETS, Sorted(0.5), -1, False)
    assert [(block.slots, block.start, block.end) for block in place.blocks] == [
        ((0, 3, 4), 0, 9),
        ((2,), 9, 14),
    ]
    assert [place.first(k) for k in (0, 3, 4, 2)] == [0, 3, 6, 9]
    assert place.padding() == [(2, 3), (8, 9)]
    assert place.rows == place.gathered == 14


def test_the_identity_follows_what_is_gathered() -> None:
    place = padded_buffer(OFFSETS, Separate(), 2, False)
    assert place.gathered == 7
    assert place.rows == 12
    assert place.first(2) == 7
    (block,) = place.identity_blocks()
    assert (block.slots, block.weights, block.rows) == ((2,), (2,), 5)
    assert padded_buffer(OFFSETS, Separate(), -1, False).identity_blocks() == ()


def test_matrices_of_a_mirrored_map_ascend() -> None:
    place = padded_buffer(OFFSETS, Fixed(), 2, True)
    (block,) = place.blocks
    assert block.slots == (4, 3, 0)
    assert block.weights == (0, 1, 4)
    (identity,) = place.identity_blocks()
    assert identity.weights == (2,)


def test_only_matrices_at_uneven_steps_are_copied() -> None:
    matrices = torch.randn(5, 2, 3)
    even = padded_buffer((0, 2, 2, 4, 4, 6), Adaptive(1), -1, False).blocks[0]
    assert even.take(matrices)._base is matrices
    assert torch.equal(even.take(matrices), matrices[::2])
    uneven = padded_buffer(OFFSETS, Sorted(0.5), -1, False).blocks[0]
    assert torch.equal(uneven.take(matrices), matrices[[0, 3, 4]])


def test_names_tell_settings_apart() -> None:
    settings = [
        TORCHSPARSE,
        MINUET,
        replace(MINUET, streams=1),
        replace(TORCHSPARSE, locality=False),
        replace(TORCHSPARSE, identity=False),
        replace(TORCHSPARSE, gather_tile=16),
        replace(TORCHSPARSE, scatter_tile=16),
        replace(TORCHSPARSE, grouping=Adaptive(0.5)),
    ]
    names = {dataflow.name for dataflow in settings}
    assert len(names) == len(settings)
    assert all(name.isidentifier() for name in names)


def test_an_order_asks_for_its_layouts() -> None:
    assert TORCHSPARSE.needs == ("pairs", "identity_slot", "by_in", "by_out")
    by_slot = replace(TORCHSPARSE, locality=False)
    assert by_slot.needs == by_slot.needs_weight_grad == ("pairs", "identity_slot", "counts")
    assert not by_slot.deterministic


def test_tiles_are_divisors_and_threads_have_one_access_a_row() -> None:
    for channels, tiles in (
        (1, (1,)),
        (3, (1, 4)),
        (64, (1, 2, 4, 8, 16, 32, 64)),
        (96, (1, 2, 4, 8, 16, 32, 128)),
    ):
        assert tiles_of(channels) == tiles
        assert default_tile(channels) == tiles[-1]
    for asked, shape in (
        ((64, None, 2), (1, 64, 16)),  # 128 threads of 8 channels
        ((64, None, 4), (1, 64, 8)),
        ((64, 16, 2), (4, 16, 64)),
        ((33, None, 2), (1, 64, 2)),  # rows are aligned to 2 bytes only
        ((12, None, 2), (1, 16, 32)),  # to 8 bytes
        ((1024, None, 2), (2, 512, 2)),
    ):
        assert tile_shape(*asked) == shape, asked
