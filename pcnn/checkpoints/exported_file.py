"""Exported networks: weights in the safetensors format, what they belong to as text beside them.

The header names weights as the network does; in its word ``pcnn`` stand, as YAML, the
configuration, the record of the training and the number of steps. Weights in 8 bits have scales
beside them (`pcnn.checkpoints.eight_bits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # a package that OmegaConf needs

from pcnn.checkpoints.eight_bits import restored
from pcnn.errors import FileError
from pcnn.files.bounded import YAML
from pcnn.files.tensors import read_tensors, write_tensors
from pcnn.files.text import parsed_yaml

#: Suffix of an exported network.
SUFFIX = ".safetensors"
#: Names of weights in a checkpoint begin with it: the task holds the network under this name.
NET = "net."
_WORD = "pcnn"


def write_exported(path: Path, content: Mapping[str, Any]) -> None:
    """Write the content of a checkpoint, whole or not at all."""
    plain = {key: value for key, value in content.items() if key != "state_dict"}
    state = content["state_dict"]
    weights = {name.removeprefix(NET): v for name, v in state.items() if name.startswith(NET)}
    write_tensors(path, weights, {_WORD: yaml.safe_dump(plain, sort_keys=False)})


def read_exported(path: Path) -> dict[str, Any]:
    """Content of an exported network, as of a checkpoint;
    weights in 8 bits come back in float32.
    """
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
