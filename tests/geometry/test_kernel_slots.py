import copy
import itertools
import pickle

import pytest

from pcnn.geometry import Kernel


def test_slots_run_x_slowest_z_fastest() -> None:
    assert Kernel.of((2, 1, 3)).offsets[:4] == ((0, 0, -1), (0, 0, 0), (0, 0, 1), (1, 0, -1))


@pytest.mark.parametrize(
    ("size", "stride", "dilation", "padding"),
    [
        (3, 1, 1, 1),
        (5, 1, 1, 2),
        (3, 1, 2, 2),
        (2, 1, 1, 0),
        (4, 1, 3, 0),
        (3, 2, 1, 1),
        (3, 3, 1, 0),
        (5, 4, 1, 1),
        (5, 5, 1, 0),
        (7, 5, 1, 2),
        (4, 4, 1, 0),
        (1, 2, 1, 0),
        (3, 4, 1, 1),  # shorter than the stride
        (3, 3, 2, 2),  # dilated
    ],
)
def test_odd_windows_are_centred_as_far_as_they_cover_their_cell_and_even_ones_are_left(
    size: int, stride: int, dilation: int, padding: int
) -> None:
    assert Kernel.of(size, stride, dilation).padding == (padding,) * 3
    assert Kernel.of((size, 3, 2), (stride, 1, 2), (dilation, 1, 1)).padding == (padding, 1, 0)


def test_even_kernels_cover_zero_to_k_minus_one() -> None:
    assert Kernel.of(2).offsets == tuple(itertools.product((0, 1), repeat=3))


def test_properties() -> None:
    assert Kernel.of(3).is_symmetric
    assert not Kernel.of(3, 2).is_symmetric
    assert not Kernel.of(3, padding=0).is_symmetric
    assert Kernel.of((1, 3, 5)).is_symmetric
    assert Kernel.of(2, 2).is_disjoint
    assert not Kernel.of(2, 2, padding=1).is_disjoint
    assert not Kernel.of(3, 2).is_disjoint
    assert Kernel.of(1).is_pointwise
    assert not Kernel.of(1, 2).is_pointwise
    assert not Kernel.of(1, padding=1).is_pointwise
    assert Kernel.of(3, dilation=4).reach == 4
    assert Kernel.of(3, dilation=4).volume == 27


def test_equal_kernels_are_one_object() -> None:
    kernel = Kernel.of(3, [2, 2, 2])
    assert kernel is Kernel.of((3, 3, 3), 2)
    assert pickle.loads(pickle.dumps(kernel)) is kernel
    assert copy.deepcopy(kernel) is kernel
    other = Kernel(kernel.size, kernel.stride, kernel.dilation, kernel.padding)
    assert other is not kernel
    assert {kernel: 1}[other] == 1
    assert kernel != Kernel.of(3)
