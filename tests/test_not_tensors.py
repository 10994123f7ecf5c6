"""Arrays and lists given where a tensor is meant are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pcnn
from pcnn import nn
from pcnn.geometry.quantize import grid_of_cells, quantize

POINTS = np.zeros((4, 3), dtype=np.float32)
ONES = np.ones((4, 2), dtype=np.float32)
CLOUDS = np.zeros(4, dtype=np.int64)
TENSOR = torch.zeros(4, 3)
CALLS: dict[str, Callable[[], Any]] = {
    "points": lambda: pcnn.voxelize(POINTS, torch.ones(4, 2), voxel_size=1.0),  # type: ignore[arg-type]
    "features": lambda: pcnn.voxelize(TENSOR, ONES, voxel_size=1.0),  # type: ignore[arg-type]
    "batch": lambda: pcnn.voxelize(TENSOR, torch.ones(4, 2), CLOUDS, voxel_size=1.0),  # type: ignore[arg-type]
    "points of native points": lambda: pcnn.native_points(POINTS, torch.ones(4, 2)),  # type: ignore[arg-type]
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


def test_a_geometry_that_is_none() -> None:
    with pytest.raises(TypeError, match="geometry must be a VoxelGrid or a PointSet, got dict"):
        pcnn.SparseTensor(torch.ones(4, 2), {})  # type: ignore[arg-type]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("given", [torch.ones(4, 2), ONES], ids=["Tensor", "ndarray"])
def test_layers_take_sparse_tensors(layer: torch.nn.Module, given: Any) -> None:
    said = rf"{type(layer).__name__} takes a pcnn.SparseTensor, got {type(given).__name__}"
    with pytest.raises(TypeError, match=said):
        layer(given)


@pytest.mark.parametrize("size", [0, -1.0, float("nan"), float("inf"), [1.0, 1.0], [1, 1, 0]])
def test_voxels_of_no_size(size: Any) -> None:
    for make, key in ((pcnn.voxelize, "voxel_size"), (pcnn.native_points, "grid_size")):
        with pytest.raises(ValueError, match=f"{key} must be positive"):
            make(TENSOR, torch.ones(4, 2), **{key: size})
