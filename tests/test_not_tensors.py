"""Arrays and lists given where a tensor is meant are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import pcnn
from pcnn import nn
from pcnn.geometry.quantize import grid_of_cells, quantize

POINTS = np.zeros((4, 3), dtype=np.float32)
ONES = np.ones((4, 2), dtype=np.float32)
TENSOR = torch.zeros(4, 3)
CALLS: dict[str, Callable[[], Any]] = {
    "points": lambda: pcnn.voxelize([[0.0] * 3], torch.ones(1, 2), voxel_size=1.0),  # type: ignore[arg-type]
    "features": lambda: pcnn.voxelize(TENSOR, ONES.astype(object), voxel_size=1.0),
    "batch": lambda: pcnn.voxelize(TENSOR, torch.ones(4, 2), [0] * 4, voxel_size=1.0),  # type: ignore[arg-type]
    "features of native points": lambda: pcnn.native_points(TENSOR, [[1.0]] * 4),  # type: ignore[arg-type]
    "points of a grid": lambda: quantize(POINTS, voxel_size=1.0),  # type: ignore[arg-type]
    "cells": lambda: grid_of_cells(POINTS),  # type: ignore[arg-type]
    "features of a tensor": lambda: pcnn.SparseTensor(ONES, quantize(TENSOR, voxel_size=1.0)),  # type: ignore[arg-type]
}
LAYERS = (
    nn.Conv3d(2, 2, 3),
    nn.Conv3d(2, 2, 1),
    nn.ConvTranspose3d(2, 2, 2, 2),
    nn.MaxPool3d(2),
    nn.GlobalAvgPool(),
    nn.FeatureWise(torch.nn.ReLU()),
)


@pytest.mark.parametrize("name", CALLS)
def test_an_array_in_place_of_a_tensor_is_named(name: str) -> None:
    argument = name.split()[0]
    with pytest.raises(TypeError, match=rf"^{argument} must be a torch.Tensor, got .*; pass torch"):
        CALLS[name]()


def read_only(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values


AS_ARRAYS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": lambda values: values,
    "read only": read_only,
    "strided": lambda values: np.repeat(values, 2, axis=0)[::2],
    "backwards": lambda values: values[::-1].copy()[::-1],
    "of the other byte order": lambda values: values.astype(values.dtype.newbyteorder()),
}


@pytest.mark.parametrize("kind", AS_ARRAYS)
def test_points_and_cells_may_be_arrays(kind: str) -> None:
    random = np.random.default_rng(0)
    points = random.random((20, 3)).astype(np.float32)
    features = random.random((20, 2)).astype(np.float32)
    given = points, features, random.integers(0, 2, 20)
    tensors = [torch.from_numpy(values) for values in given]
    arrays: list[Any] = [AS_ARRAYS[kind](values) for values in given]
    cells, whole = [*arrays], [*tensors]
    cells[0], whole[0] = np.floor(arrays[0] * 4), (tensors[0] * 4).floor()
    makes: tuple[tuple[Callable[..., pcnn.SparseTensor], list[Any], list[Any]], ...] = (
        (partial(pcnn.voxelize, voxel_size=0.2), arrays, tensors),
        (partial(pcnn.native_points, voxel_size=0.2), arrays, tensors),
        (pcnn.from_coordinates, cells, whole),
    )
    for make, own, wanted in makes:
        found, expected = make(*own), make(*wanted)
        assert torch.equal(found.coords, expected.coords)
        assert torch.equal(found.features, expected.features)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("given", [torch.ones(4, 2), ONES], ids=["Tensor", "ndarray"])
def test_layers_take_sparse_tensors(layer: torch.nn.Module, given: Any) -> None:
    said = rf"{type(layer).__name__} takes a pcnn.SparseTensor, got {type(given).__name__}"
    with pytest.raises(TypeError, match=said):
        layer(given)


@pytest.mark.parametrize("size", [0, -1.0, float("nan"), float("inf"), [1.0, 1.0], [1, 1, 0]])
def test_voxels_of_no_size(size: Any) -> None:
    for make in (pcnn.voxelize, pcnn.native_points):
        with pytest.raises(ValueError, match="voxel_size must be positive"):
            make(TENSOR, torch.ones(4, 2), voxel_size=size)
