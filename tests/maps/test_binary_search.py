import pytest

from pcnn.geometry import Kernel
from pcnn.maps.binary_search import BinarySearch
from pcnn.maps.z_delta import ZDelta
from tests.clouds import surface_grid
from tests.maps.guarded import POISON, guarded
from tests.maps.test_z_delta import listed, triplets_of

pytestmark = pytest.mark.usefixtures("emulated")


@pytest.mark.parametrize("key_bits", [64, 32, "auto"])
def test_a_thousand_sites_as_z_delta_search_finds_them(key_bits: int | str) -> None:
    grid = surface_grid(1000)
    for kernel in (Kernel.of(3), Kernel.of(2, 2)):
        target = grid.strided(kernel)
        one = BinarySearch(key_bits=key_bits).build(grid, target, kernel)
        other = ZDelta().build(grid, target, kernel)
        for name in ("table", "masks", "counts"):
            assert (one.layout(name)[0] == other.layout(name)[0]).all()
        assert one.symmetric == other.symmetric


def test_kernels_of_more_slots_than_a_tile_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = surface_grid(40)
    kernel = Kernel.of((1, 2, 1001), padding=(0, 0, 500))
    with guarded(monkeypatch):
        kernel_map = BinarySearch().build(grid, grid, kernel)
        assert (kernel_map.layout("masks")[0] != POISON).all()
        assert listed(kernel_map) == triplets_of(grid, grid, kernel)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="binary_search: key_bits must be 32, 64 or auto"):
        BinarySearch(key_bits=16)
    grid = surface_grid(10, batch_size=2)
    with pytest.raises(ValueError, match="binary_search: 32-bit keys hold one cloud"):
        BinarySearch(key_bits=32).build(grid, grid, Kernel.of(3))
