"""Published networks of other packages as networks of ours, and the files of both.

Names of layers there follow from those of ours by one table of rules per source. A rule is a
pattern of a whole name of ours, and what makes the name there of its groups, numbers as `int`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.files.pickles import read_arrays
from pcnn.files.tensors import is_tensors, read_tensors, write_tensors
from pcnn.interop.layouts import (
    MINKOWSKI,
    TORCHSPARSE,
    WeightLayout,
    grouped_state,
    layers_of,
    load_state,
)
from pcnn.models import SPVCNN, MinkUNet42, ResUNetBN2C

Rule = tuple[str, Callable[..., str]]

_PLACE = {"conv": 0, "norm": 1, "linear": 0}
#: A part of a residual block of ours, and where each package keeps it.
_BLOCK = r"((?:first|second|shortcut)\.(?:conv|norm))"
_PARTS = [f"{half}.{part}" for half in ("first", "second", "shortcut") for part in ("conv", "norm")]
_SPVNAS = dict(
    zip(_PARTS, ("net.0", "net.1", "net.3", "net.4", "downsample.0", "downsample.1"), strict=True)
)
_FCGF = dict(zip(_PARTS, ("conv1", "norm1.bn", "conv2", "norm2.bn"), strict=False))

#: MinkUNet and SPVCNN of SPVNAS, written for TorchSparse.
SPVNAS: Sequence[Rule] = (
    (r"stem\.(\d)\.(conv|norm)", lambda n, part: f"stem.{3 * n + _PLACE[part]}"),
    (r"encoder\.(\d)\.0\.(conv|norm)", lambda n, part: f"stage{n + 1}.0.net.{_PLACE[part]}"),
    (rf"encoder\.(\d)\.1\.(\d)\.{_BLOCK}", lambda n, k, p: f"stage{n + 1}.{k + 1}.{_SPVNAS[p]}"),
    (r"up\.(\d)\.(conv|norm)", lambda n, part: f"up{n + 1}.0.net.{_PLACE[part]}"),
    (rf"decoder\.(\d)\.(\d)\.{_BLOCK}", lambda n, k, p: f"up{n + 1}.1.{k}.{_SPVNAS[p]}"),
    (r"points\.(\d)\.(linear|norm)", lambda n, part: f"point_transforms.{n}.{_PLACE[part]}"),
    (r"head\.module", lambda: "classifier.0"),
)
#: ResUNetBN2C of FCGF, written for MinkowskiEngine.
FCGF: Sequence[Rule] = (
    (r"encoder\.(\d)\.entry\.conv", lambda n: f"conv{n + 1}"),
    (r"encoder\.(\d)\.entry\.norm", lambda n: f"norm{n + 1}.bn"),
    (rf"encoder\.(\d)\.block\.{_BLOCK}", lambda n, part: f"block{n + 1}.{_FCGF[part]}"),
    (r"decoder\.(\d)\.entry\.conv", lambda n: f"conv{4 - n}_tr"),
    (r"decoder\.(\d)\.entry\.norm", lambda n: f"norm{4 - n}_tr.bn"),
    (rf"decoder\.(\d)\.block\.{_BLOCK}", lambda n, part: f"block{4 - n}_tr.{_FCGF[part]}"),
    (r"merge", lambda: "conv1_tr"),
    (r"final", lambda: "final"),
)
#: Entries of a state by the name of the layer and of the entry in it.
Groups = Mapping[str, Mapping[str, Tensor]]


@dataclass(frozen=True)
class PublishedNetwork:
    """A network of another package that one of ours equals."""

    source: str  # where it is published
    licence: str  # SPDX name of the licence of that code; weights may have terms of their own
    layout: WeightLayout  # of its convolutions
    make: Callable[..., nn.Module]  # makes the network of ours
    rules: Sequence[Rule]  # of the names there of layers of ours
    first: str  # the convolution of ours that the network begins with; its norm stands beside it
    slots: int | None  # of the first convolution; None: the file tells, as the argument does
    wide: tuple[str, int]  # a norm of ours, and its channels at width 1
    head: str = "head.module"  # the layer whose outputs are counted by an argument
    idle: tuple[str, ...] = ()  # beginnings of names in its files that it does not compute with

    def to_ours(
        self, state: Mapping[str, Tensor]
    ) -> tuple[nn.Module, dict[str, Any], dict[str, str]]:
        """A network of ours with the parameters of a published one, in evaluation mode.

        Also what made it, and the names of its layers there.
        """
        prefix = self._prefix(state)
        inside = {
            name.removeprefix(prefix): v
            for name, v in state.items()
            if name[: len(prefix)] == prefix
        }
        theirs = grouped_state(inside)

        def found(ours: str) -> Mapping[str, Tensor]:
            name = self._named(ours, theirs)
            if name not in theirs:
                raise ValueError(f"the file has no layer {name}: it is no {self.source}")
            return theirs[name]

        arguments = self._arguments(found)
        network = self.make(**arguments)
        pairs = {name: self._named(name, theirs) for name in layers_of(network)}
        used = set(pairs.values())
        left = [name for name in theirs if name not in used and not name.startswith(self.idle)]
        if left:
            raise ValueError(
                f"the file has {len(left)} layers that {self.source} has not, as {left[0]}"
            )
        load_state(network, inside, self.layout, pairs)
        return network.eval(), arguments, {ours: prefix + other for ours, other in pairs.items()}

    def _arguments(self, found: Callable[[str], Mapping[str, Tensor]]) -> dict[str, Any]:
        """What makes the network of ours, read off a state whose layers are found by name."""
        outputs = len(found(f"{self.first.removesuffix('conv')}norm")["running_mean"])
        weight = found(self.first)[self.layout.parameter]
        slots = weight.shape[0] if self.slots is None else self.slots
        arguments: dict[str, Any] = {
            "in_channels": weight.numel() // (slots * outputs),
            "out_channels": found(self.head)["bias"].numel(),
        }
        if self.slots is None:
            arguments["first_kernel"] = round(slots ** (1 / 3))
        norm, channels = self.wide
        arguments["width"] = len(found(norm)["running_mean"]) / channels
        return arguments

    def _renamed(self, ours: str) -> str:
        for pattern, there in self.rules:
            if found := re.fullmatch(pattern, ours):
                groups = (int(part) if part.isdigit() else part for part in found.groups())
                return there(*groups)
        raise ValueError(f"{self.source} has no layer like {ours} of ours")

    def _prefix(self, state: Mapping[str, Tensor]) -> str:
        """``module.`` where torch wrapped the network that was saved."""
        first = f"module.{self._renamed(self.first)}."
        return "module." if any(name.startswith(first) for name in state) else ""

    def _named(self, ours: str, theirs: Groups) -> str:
        """Name of a layer in a state; norms of older versions hold torch's norm as ``bn``."""
        name = self._renamed(ours)
        for other in (f"{name}.bn", name.removesuffix(".bn")):
            if name not in theirs and other in theirs:
                return other
        return name


_UNET = PublishedNetwork(
    "MinkUNet of SPVNAS",
    "MIT",
    TORCHSPARSE,
    MinkUNet42,
    SPVNAS,
    first="stem.0.conv",
    slots=27,
    wide=("encoder.3.1.0.second.norm", 256),
    idle=("point_transforms.",),
)
_SPVCNN = replace(_UNET, source="SPVCNN of SPVNAS", make=SPVCNN, idle=())
_RESUNET = PublishedNetwork(
    "ResUNetBN2C of FCGF",
    "MIT",
    MINKOWSKI,
    ResUNetBN2C,
    FCGF,
    first="encoder.0.entry.conv",
    slots=None,
    wide=("encoder.3.entry.norm", 256),
    head="final",
)

#: By the package and the network of ours.
PUBLISHED: Mapping[tuple[str, str], PublishedNetwork] = {
    ("torchsparse", "minkunet"): _UNET,
    ("torchsparse", "spvcnn"): _SPVCNN,
    ("minkowski", "resunet"): _RESUNET,
}
#: Networks that a file may name, and nothing else.
BUILDERS: Mapping[str, Callable[..., nn.Module]] = {
    one.make.__name__: one.make for one in PUBLISHED.values()
}


#: Under which programs keep the state of a network in their checkpoints.
CONTAINERS = ("state_dict", "model_state_dict", "model_state", "model", "net")

_WORD = "pcnn_network"


def published(package: str, model: str) -> PublishedNetwork:
    """The published network of a package that a model of ours equals."""
    found = PUBLISHED.get((package, model))
    if found is None:
        known = ", ".join(f"{name} of {one}" for one, name in PUBLISHED)
        raise ValueError(
            f"no published network of {package} equals our {model}; ready: {known}. Others: "
            "pcnn.interop.load_state pairs the layers of any two networks"
        )
    return found


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
