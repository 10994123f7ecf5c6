from __future__ import annotations

import pytest

from pcnn.bench.mapping.stages import searches, split
from pcnn.bench.trace import KernelTime


def kernels(*names: str) -> list[KernelTime]:
    return [KernelTime(name, 1000.0, 1) for name in names]


def test_what_stands_before_and_after_the_search_is_preparation_and_finish() -> None:
    timeline = kernels("pack", "radix_pass", "search", "fill", "search", "scan", "radix_pass")
    assert split(timeline) == {"prepare": 2.0, "search": 3.0, "finish": 2.0}


def test_without_a_search_all_is_preparation() -> None:
    assert split(kernels("pack", "sort")) == {"prepare": 2.0, "search": 0.0, "finish": 0.0}
    assert split([]) == {"prepare": 0.0, "search": 0.0, "finish": 0.0}


@pytest.mark.parametrize(
    "name",
    [
        "search",
        "void search(SearchArguments)",
        "search_blocks",
        "split_queries",
        "windowed_search",
        "first_windows",
        "z_delta",
        "binary_search",
        "disjoint_map",
        "aten::searchsorted",
        "void at::native::(anonymous namespace)::searchsorted_cuda_kernel<long, long>",
    ],
)
def test_searches_are_known_by_name(name: str) -> None:
    assert searches(name)


@pytest.mark.parametrize(
    "name", ["radix_pass", "insert", "clear", "bound_box", "aten::sort", "mask_keys", "tile_lists"]
)
def test_other_kernels_do_not_search(name: str) -> None:
    assert not searches(name)
