import json
from dataclasses import astuple

import pytest
import torch

from pcnn.dataflows import Blocked, Dataflow, PerProduct, Reference
from pcnn.dataflows.gather_scatter import GatherScatter
from pcnn.dataflows.grouping import Adaptive, Sorted
from pcnn.dataflows.hybrid import Hybrid
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.dataflows.settings import CLASSES, dataflow_of, described, settings_of
from pcnn.dataflows.weight_stationary import WeightStationary
from pcnn.kernels.gemm_blocks import GemmBlocks
from pcnn.kernels.product_tiles import (
    MANY_PAIRS,
    ChunkTiles,
    ProductShape,
    RowTiles,
    power_of_two,
)
from pcnn.kernels.row_tiles import WARPS


def usual(kind: type) -> object | None:
    """An object of a class without obligatory settings."""
    try:
        return kind()
    except TypeError:
        return None


EVERY = [
    OutputStationary(GemmBlocks(64, 32, 16, 2, 8, 3)),
    WeightStationary(tiles=ChunkTiles(128, 64, 32, 32), central_tiles=RowTiles(64, 32, 32)),
    Hybrid(),
    Hybrid(2, dense_tiles=RowTiles(64, 32, 32)),
    GatherScatter(Sorted(0.5, float("inf")), locality=False),
    *(made for made in map(usual, CLASSES.values()) if made is not None),
]


@pytest.mark.parametrize("dataflow", EVERY, ids=lambda one: type(one).__name__)
def test_settings_survive_a_file(dataflow: Dataflow) -> None:
    written = json.loads(json.dumps(settings_of(dataflow)))
    assert dataflow_of(written) == dataflow
    assert hash(dataflow_of(written)) == hash(dataflow)


@pytest.mark.parametrize("pairs", [1000, MANY_PAIRS])
@pytest.mark.parametrize("channels", [16, 32, 96, 128])
def test_tiles_without_measuring_are_of_sizes_that_triton_takes(pairs: int, channels: int) -> None:
    shape = ProductShape(27, channels, 0, channels, groups=1, transposed=False, mirrored=False)
    for dtype in (torch.float16, torch.float32):
        for tiles in (ChunkTiles.of(shape, pairs, dtype), RowTiles.of(shape, pairs, dtype)):
            sizes = astuple(tiles)[:-1]  # stages may be of any number
            assert all(size == power_of_two(size) for size in sizes), tiles


def test_rows_of_96_channels_are_cut_into_whole_steps() -> None:
    tiles = RowTiles.of(ProductShape(27, 96, 0, 96, 1, False, False), 1 << 17, torch.float16)
    assert (tiles.rows, tiles.columns, tiles.depth) == (64, 128, 32)


def test_usual_cuts_are_of_sizes_that_triton_takes() -> None:
    sizes = *astuple(GemmBlocks())[:-1], WARPS
    assert all(size == power_of_two(size) for size in sizes), sizes


def test_what_is_usual_is_not_written() -> None:
    assert settings_of(Blocked()) == {"name": "Blocked", "fields": {}}
    other = settings_of(Reference(name="other"))
    assert other["fields"] == {"name": "other"}
    assert dataflow_of(other).name == "other"


def test_classes_that_no_file_may_name_are_refused() -> None:
    class Strange:
        pass

    with pytest.raises(ValueError, match=r"Strange cannot be written.*Blocked"):
        settings_of(Strange())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"name": "Exotic", "fields": {}}, "no settings named 'Exotic'"),
        ({}, "no settings named None"),
        ({"name": "Blocked", "fields": {"speed": 9}}, "Blocked.*speed"),
        ({"name": "Blocked", "fields": 3}, "no settings"),
    ],
)
def test_unknown_settings_are_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        dataflow_of(settings)


def test_a_dataflow_is_described_in_one_line() -> None:
    assert described(Blocked()) == "Blocked"
    blocks = GemmBlocks(64, 32, 16, 2, 8, 3)
    assert described(OutputStationary(blocks)) == "OutputStationary(blocks=64_32_16_2_8_3)"
    both = PerProduct(Blocked(), Blocked(), Reference())
    assert described(both) == "PerProduct(forward=Blocked, transposed=Blocked, vvor=Reference)"


def test_files_of_older_versions_load() -> None:
    blocks = {"name": "GemmBlocks", "fields": {"rows": 64}}
    old = {"name": "OuterByRow", "fields": {"blocks": blocks}}
    assert dataflow_of(old) == OutputStationary(GemmBlocks(64), None)
    adaptive = {"name": "Adaptive", "fields": {"epsilon": 0.5}}
    fields = {"grouping": adaptive, "products": "compute", "weight_gradient": "grouped"}
    old = {"name": "GatherScatter", "fields": fields}
    assert dataflow_of(old) == GatherScatter(Adaptive(0.5))
