"""Arguments of kernels by name: laid out as by the C++ compiler, refused where they differ."""

import struct
from pathlib import Path

import pytest
import torch

from pcnn.kernels.structs import arguments_of

SOURCE = """
#include "common.cuh"
#define MOST 3
struct __align__(16) Part { float x; int* at; };
struct Parts { Part parts[MOST + 1]; bool last; };
struct Arguments {
    const u32* count;  // or null
    void* room;
    double size[3], scale;
    int n = 7;
    Parts parts;
    __device__ int twice() const { int m = n; return 2 * m; }
};
KERNEL(work, Arguments, 32) { }
"""
PART = struct.Struct("=f4xQ")


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "toy.cu").write_text(SOURCE)
    return str(tmp_path / "toy.cu")


def given(**changes: object) -> dict[str, object]:
    count, room = torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.float16)
    parts = {"parts": [{"x": 1.5, "at": None}, (2.5, 64)], "last": True}
    values = {"count": count, "room": room, "size": (1, 2), "scale": 4, "n": 5, "parts": parts}
    return values | changes


def test_values_lie_where_the_source_says(source) -> None:
    values = given()
    packed = arguments_of(source, "work", {}).pack(values, -1)
    head = struct.unpack_from("=2Q4di", packed)
    assert head == (values["count"].data_ptr(), values["room"].data_ptr(), 1, 2, 0, 4, 5)
    assert [PART.unpack_from(packed, 64 + 16 * k) for k in range(3)] == [
        (1.5, 0),
        (2.5, 64),
        (0, 0),
    ]
    assert packed[64 + 4 * 16] == 1
    assert len(packed) == 64 + 4 * 16 + 16
    assert arguments_of(source, "work", {"MOST": 7}).size == len(packed) + 4 * 16
    values["parts"] = packed[64:]  # as bytes
    assert arguments_of(source, "work", {}).pack(values, -1) == packed


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"other": 1}, "other"),
        ({"n": None}, "Arguments"),
        ({"n": 1 << 31}, "Arguments"),
        ({"count": torch.zeros(1)}, "count"),
        ({"parts": {"parts": [{"x": 1.0}], "last": False}}, "at"),
        ({"parts": {"parts": [(1, None)] * 5, "last": False}}, "array of 4"),
    ],
)
def test_other_values_are_refused(source, changes, says) -> None:
    with pytest.raises(ValueError, match=says):
        arguments_of(source, "work", {}).pack(given(**changes), -1)
