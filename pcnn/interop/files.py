"""Files of published networks, and of those that were converted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.files.pickles import read_arrays
from pcnn.files.tensors import is_tensors, read_tensors, write_tensors
from pcnn.interop.networks import BUILDERS

#: Under which programs keep the state of a network in their checkpoints.
CONTAINERS = ("state_dict", "model_state_dict", "model_state", "model", "net")

_WORD = "pcnn_network"


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Parameters and buffers in a file of another program; nothing of it is run."""
    path = Path(path)
    with named(path, "file of weights"):
        if is_tensors(path):
            return read_tensors(path)[0]
        content = read_arrays(path)
        for name in CONTAINERS:
            inner = content.get(name) if isinstance(content, Mapping) else None
            if isinstance(inner, Mapping):
                content = inner
                break
        if not isinstance(content, Mapping):
            raise FileError(path, "it holds no state of a network")
        found = {str(name): v for name, v in content.items() if isinstance(v, Tensor)}
        if not found:
            raise FileError(path, f"it holds no tensors by name; known places: {CONTAINERS}")
        return found


def save_network(
    path: str | Path,
    network: nn.Module,
    name: str,
    arguments: Mapping[str, Any],
    about: Mapping[str, str],
) -> None:
    """Write a converted network, whole or not at all; `load_network` makes it again."""
    if name not in BUILDERS:
        raise ValueError(f"{name} is none of {', '.join(BUILDERS)}")
    word = json.dumps({"network": name, "arguments": dict(arguments)})
    write_tensors(Path(path), network.state_dict(), {_WORD: word, **about})


def load_network(path: str | Path) -> nn.Module:
    """A converted network with its weights, in evaluation mode, on the CPU."""
    path = Path(path)
    with named(path, "converted network"):
        tensors, words = read_tensors(path)
        if _WORD not in words:
            raise FileError(path, "it names no network; `pcnn convert` writes files that do")
        told = json.loads(words[_WORD])
        if told["network"] not in BUILDERS:
            raise FileError(path, f"it names {told['network']!r}, known: {', '.join(BUILDERS)}")
        network = BUILDERS[told["network"]](**told["arguments"])
        network.load_state_dict(tensors)
        return network.eval()
