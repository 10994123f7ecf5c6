import pytest
import torch

from pcnn.dataflows import Blocked, PerProduct, Reference
from pcnn.dataflows.products import PRODUCTS
from pcnn.dataflows.tuning_table import Choice
from pcnn.geometry import Kernel, KernelMap
from pcnn.maps import SortedSearch
from pcnn.runtime.layer_calls import LayerCall
from pcnn.runtime.shared_layouts import decide, joined, layers_by_map, layouts_ms
from tests.clouds import surface_grid

PAIRS, BLOCKS = Reference(), Blocked()


def nothing(names: tuple[str, ...]) -> float:
    return 0.0


def kernel_map(size: int = 3, stride: int = 1) -> KernelMap:
    grid, kernel = surface_grid(150), Kernel.of(size, stride)
    return grid.map_to(grid.strided(kernel), kernel, SortedSearch())


def test_output_and_gradient_are_chosen_together() -> None:
    # blocks win the output, but pairs are quicker for both together
    layer = {
        "forward": (Choice(BLOCKS, 1.0), Choice(PAIRS, 1.5)),
        "transposed": (Choice(PAIRS, 1.0), Choice(BLOCKS, 2.0)),
        "vvor": (Choice(BLOCKS, 1.0),),
    }
    chosen = decide({"a": layer}, nothing)["a"]
    assert joined(chosen) == PerProduct(PAIRS, PAIRS, BLOCKS)


def test_layers_of_a_map_read_the_same_layouts() -> None:
    likes_blocks = {"forward": (Choice(BLOCKS, 1.0), Choice(PAIRS, 1.1))}
    likes_pairs = {"forward": (Choice(PAIRS, 1.0), Choice(BLOCKS, 3.0))}
    both = decide({"a": likes_blocks, "b": likes_pairs}, nothing)
    assert {choices["forward"].dataflow for choices in both.values()} == {PAIRS}


def test_layouts_have_to_be_worth_their_making() -> None:
    layer = {"forward": (Choice(BLOCKS, 1.0), Choice(PAIRS, 1.5))}
    cost = {BLOCKS.needs: 4.0, PAIRS.needs: 1.0}
    assert decide({"a": layer}, cost.__getitem__)["a"]["forward"].dataflow == PAIRS
    # one more reader each: six layers pay for blocks together, two do not
    for count, winner in ((2, PAIRS), (7, BLOCKS)):
        many = decide({str(number): layer for number in range(count)}, cost.__getitem__)
        assert {choices["forward"].dataflow for choices in many.values()} == {winner}


def test_layouts_of_outputs_serve_gradients_too() -> None:
    layer = {name: (Choice(BLOCKS, 1.0), Choice(PAIRS, 1.1)) for name in PRODUCTS}
    layer["vvor"] = (Choice(PAIRS, 1.0), Choice(BLOCKS, 3.0))

    def cost(names: tuple[str, ...]) -> float:
        return float(len(names))

    assert joined(decide({"a": layer}, cost)["a"]) == PAIRS


def test_layers_with_nothing_in_common_are_decided_one_by_one() -> None:
    layers = {"a": {"forward": (Choice(BLOCKS, 1.0),)}, "b": {"forward": (Choice(PAIRS, 1.0),)}}
    found = decide(layers, nothing)
    assert [found[name]["forward"].dataflow for name in "ab"] == [BLOCKS, PAIRS]
    torn = {"forward": (Choice(BLOCKS, 1.0),), "transposed": (Choice(PAIRS, 1.0),)}
    with pytest.raises(ValueError, match="same layouts"):
        decide({"a": torn, "b": torn}, nothing)


def test_one_dataflow_for_all_products_needs_no_wrapping() -> None:
    assert joined({name: Choice(PAIRS, 1.0) for name in PRODUCTS}) == PAIRS
    assert joined({"forward": Choice(PAIRS, 1.0)}) == PAIRS


def test_layers_are_grouped_by_their_maps_whichever_side_they_read() -> None:
    down, other = kernel_map(2, 2), kernel_map()

    def call(built: KernelMap) -> LayerCall:
        return LayerCall(built, 4, 6, 1, torch.float32)

    calls = {"down": [call(down)], "same": [call(other)], "up": [call(down.transpose())]}
    assert list(layers_by_map(calls)) == [["down", "up"], ["same"]]


def test_making_layouts_is_timed_and_leaves_the_map_alone() -> None:
    built = kernel_map()
    before = dict(built.edges.layouts)
    assert layouts_ms([built], ("blocks", "table")) > 0
    assert layouts_ms([built], ("hybrid:2", "fitting_tiles")) > 0
    assert layouts_ms([built, built.transpose()], ()) >= 0
    assert built.edges.layouts == before


@pytest.mark.parametrize("side", [False, True])
def test_layouts_of_a_map_that_rests_on_its_tiles_are_timed_from_its_table(side: bool) -> None:
    built = kernel_map(2, 2)
    built.layout("table")
    del built.edges.layouts["pairs", False]
    (built.transpose() if side else built).layout("tiles")
    built.edges.layouts.pop(("pairs", True), None)
    built.drop_tables()
    for view in (built, built.transpose()):
        assert layouts_ms([view], ("pairs", "tiles")) > 0
