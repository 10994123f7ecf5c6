"""Specs of products in one dtype."""

from __future__ import annotations

from typing import Any

import torch

from pcnn.dataflows import ConvSpec


def spec_of(dtype: torch.dtype, out_dtype: torch.dtype | None = None, **settings: Any) -> ConvSpec:
    return ConvSpec(compute_dtype=dtype, out_dtype=out_dtype or dtype, **settings)


SINGLE, EXACT = spec_of(torch.float32), spec_of(torch.float64)
