"""Exported networks: weights in the safetensors format, what they belong to as text beside them.

The header names weights as the network does; in its word ``pcnn`` stand, as YAML, the
configuration, the record of the training and the number of steps.

Weights in 8 bits are in groups, each with a scale. A group is one column of the last two
dimensions: of a convolution `[K, C_in, C_out]` the inputs of one slot and one output. Its scale is
s = max |w| / 127, and a weight is kept as q = round(w / s), so that s q is within s / 2 of it. The
numbers q stand under the weight's name, s beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]  # a package that OmegaConf needs
from torch import Tensor

from pcnn.errors import FileError
from pcnn.files.bounded import YAML, parsed_yaml
from pcnn.files.tensors import read_tensors, write_tensors

#: Suffix of an exported network.
SUFFIX = ".safetensors"
#: Names of weights in a checkpoint begin with it: the task holds the network under this name.
NET = "net."
_WORD = "pcnn"
#: Follows the name of a weight in the name of its scales.
SCALE = ":scale"
_MOST = 127


def write_exported(path: Path, weights: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write weights and what they belong to, whole or not at all."""
    write_tensors(path, weights, {_WORD: yaml.safe_dump(dict(about), sort_keys=False)})


def read_exported(path: Path) -> dict[str, Any]:
    """Content of an exported network, as of a checkpoint; weights in 8 bits are in float32."""
    weights, words = read_tensors(path)
    text = words.get(_WORD)
    if text is None or len(text) > YAML:
        raise FileError(
            path, "it holds weights without a description, which `pcnn export` writes beside them"
        )
    plain = parsed_yaml(text, path)
    if not isinstance(plain, dict):
        raise FileError(path, "its description is no mapping")
    state = restored(weights, path)
    return {**plain, "state_dict": {f"{NET}{name}": value for name, value in state.items()}}


def packed(name: str, weight: Tensor) -> dict[str, Tensor]:
    """A weight in 8 bits and its scales."""
    weight = weight.float()
    # never 0: what divides by it stays finite where all weights of a group are 0
    scale = (weight.abs().amax(-2, keepdim=True) / _MOST).clamp(min=torch.finfo().tiny)
    if not bool(torch.isfinite(_MOST * scale).all()):
        raise ValueError(f"{name} holds NaN or infinite numbers: check the training")
    return {name: (weight / scale).round().to(torch.int8), f"{name}{SCALE}": scale}


def restored(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Tensors of a file, those in 8 bits as s q in float32, the others as they are."""
    found = {}
    for name, value in tensors.items():
        scale = tensors.get(f"{name}{SCALE}")
        packs = value.dtype == torch.int8 and value.ndim > 1
        fits = packs == (scale is not None)
        if packs and scale is not None:
            shape = [*value.shape[:-2], 1, value.shape[-1]]
            fits = list(scale.shape) == shape and scale.dtype == torch.float32
        if not fits:
            raise FileError(path, f"damaged, {name}: weights in 8 bits and scales do not fit")
        if not name.endswith(SCALE):
            found[name] = value if scale is None else value * scale
    return found
