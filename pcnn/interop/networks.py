"""Published networks of other packages as networks of ours, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from pcnn.geometry import Kernel
from pcnn.interop import names
from pcnn.interop.layouts import (
    MINKOWSKI,
    SPCONV,
    SPCONV_RSCK,
    SPCONV_RSKC,
    TORCHSPARSE,
    ChannelsAround,
    WeightLayout,
)
from pcnn.interop.state import grouped_state, layers_of, load_state, state_of
from pcnn.models import (
    SPVCNN,
    MinkUNet42,
    ResUNetBN2C,
    SpUNet,
    VoxelBackbone,
    VoxelResBackbone,
)
from pcnn.nn import Conv3d, ConvTranspose3d

#: Entries of a state by the name of the layer and of the entry in it.
Groups = Mapping[str, Mapping[str, Tensor]]


class Row(NamedTuple):
    """A layer that was converted."""

    ours: str  # its name in the network of ours
    theirs: str  # its name in the file
    shape: tuple[int, ...]  # of its weight in ours


@dataclass(frozen=True)
class PublishedNetwork:
    """A network of another package that one of ours equals."""

    source: str  # where it is published
    licence: str  # SPDX name of the licence of that code; weights may have terms of their own
    layout: WeightLayout  # of its convolutions
    make: Callable[..., nn.Module]  # makes the network of ours
    rules: Sequence[names.Rule]  # of the names there of layers of ours
    first: str  # the convolution of ours that the network begins with; its norm stands beside it
    slots: int | None  # of the first convolution; None: the file tells, as the argument does
    wide: tuple[str, int]  # a norm of ours, and its channels at width 1
    head: str | None = "head.module"  # the layer whose outputs are counted by an argument
    prefixes: tuple[str, ...] = ()  # that its names may have in larger models
    idle: tuple[str, ...] = ()  # beginnings of names in its files that it does not compute with
    pointwise: frozenset[str] = frozenset()  # layers of ours that are linear
    biased: tuple[str, ...] = ()  # ends of names of its layers that have a bias and ours have not

    @property
    def made_by(self) -> str:
        """Name of the network of ours in `pcnn.models`."""
        return self.make.__name__

    def to_ours(self, state: Mapping[str, Tensor]) -> tuple[nn.Module, dict[str, Any], list[Row]]:
        """A network of ours with the parameters of a published one."""
        prefix = self._prefix(state)
        inside = {
            name.removeprefix(prefix): v
            for name, v in state.items()
            if name[: len(prefix)] == prefix
        }
        theirs = {name: dict(one) for name, one in grouped_state(inside).items()}

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
        for ours, other in pairs.items():
            self._fit(ours, network, theirs, other, pairs)
        flat = {f"{name}.{key}": v for name, one in theirs.items() for key, v in one.items()}
        load_state(network, flat, self.layout, pairs)
        rows = [
            Row(ours, prefix + other, tuple(_weight(network, ours).shape))
            for ours, other in pairs.items()
        ]
        return network.eval(), arguments, rows

    def from_ours(self, network: nn.Module) -> dict[str, Tensor]:
        """The state of the published network with the parameters of one of ours."""
        own = grouped_state(state_of(network, self.layout))
        written: dict[str, Tensor] = {}
        for ours, entries in own.items():
            theirs = self._renamed(ours)
            values = dict(entries)
            if ours in self.pointwise:
                weight = values.pop("weight").t()[None]
                values[self.layout.parameter] = self.layout.from_ours(weight, Kernel.of(1))
            if self.biased and theirs.endswith(self.biased):
                weight = _weight(network, ours)
                values["bias"] = weight.new_zeros(weight.shape[-1])
            if self.layout is MINKOWSKI and self.layout.parameter in values and "bias" in values:
                values["bias"] = values["bias"][None]
            written.update({f"{theirs}.{key}": value for key, value in values.items()})
        return written

    def _arguments(self, found: Callable[[str], Mapping[str, Tensor]]) -> dict[str, Any]:
        """What makes the network of ours, read off a state whose layers are found by our names."""
        outputs = len(found(f"{self.first.removesuffix('conv')}norm")["running_mean"])
        weight = found(self.first)[self.layout.parameter]
        slots = weight.shape[0] if self.slots is None else self.slots
        arguments: dict[str, Any] = {"in_channels": weight.numel() // (slots * outputs)}
        if self.head is not None:
            arguments["out_channels"] = found(self.head)["bias"].numel()
        if self.slots is None:
            arguments["first_kernel"] = round(slots ** (1 / 3))
        norm, channels = self.wide
        arguments["width"] = len(found(norm)["running_mean"]) / channels
        return arguments

    def _renamed(self, ours: str) -> str:
        name = names.renamed(self.rules, ours)
        if name is None:
            raise ValueError(f"{self.source} has no layer like {ours} of ours")
        return name

    def _prefix(self, state: Mapping[str, Tensor]) -> str:
        """The prefix that its first layer has among those known; "" where it has none."""
        known = ("", "module.", *self.prefixes, *(f"module.{one}" for one in self.prefixes))
        first = self._renamed(self.first)
        fitting = [one for one in known if any(name.startswith(f"{one}{first}.") for name in state)]
        return max(fitting, key=len, default="")

    def _named(self, ours: str, theirs: Groups) -> str:
        """Name of a layer in a state; norms of older versions hold torch's norm as ``bn``."""
        name = self._renamed(ours)
        for other in (f"{name}.bn", name.removesuffix(".bn")):
            if name not in theirs and other in theirs:
                return other
        return name

    def _fit(
        self,
        ours: str,
        network: nn.Module,
        theirs: dict[str, dict[str, Tensor]],
        other: str,
        pairs: Mapping[str, str],
    ) -> None:
        """Bring a layer of theirs into the form of ours: linear, and without bias before a norm."""
        entries, layer = theirs.get(other, {}), network.get_submodule(ours)
        if ours in self.pointwise and self.layout.parameter in entries:
            kernel = entries.pop(self.layout.parameter)
            entries["weight"] = self.layout.to_ours(kernel, Kernel.of(1))[0].t().contiguous()
            if "bias" in entries:
                entries["bias"] = entries["bias"].flatten()
        bare = isinstance(layer, Conv3d | ConvTranspose3d) and layer.bias is None
        norm = f"{ours.removesuffix('conv')}norm"
        if bare and "bias" in entries and norm in pairs:
            # a norm takes a constant away again, whether it was in the batch or in the mean
            bias = entries.pop("bias").flatten()
            mean = theirs[pairs[norm]]["running_mean"]
            theirs[pairs[norm]]["running_mean"] = mean - bias.to(mean.dtype)


def _weight(network: nn.Module, name: str) -> Tensor:
    weight = network.get_submodule(name).weight
    assert isinstance(weight, Tensor)
    return weight


_UNET = PublishedNetwork(
    "MinkUNet of SPVNAS",
    "MIT",
    TORCHSPARSE,
    MinkUNet42,
    names.SPVNAS,
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
    names.FCGF,
    first="encoder.0.entry.conv",
    slots=None,
    wide=("encoder.3.entry.norm", 256),
    head="final",
)
_SPUNET = replace(
    _UNET,
    source="SpUNet-v1m1 of Pointcept",
    layout=SPCONV,
    make=SpUNet,
    rules=names.POINTCEPT,
    slots=125,
    prefixes=("backbone.",),
    pointwise=frozenset({"head.module"}),
    idle=(),
)
_CENTERPOINT = PublishedNetwork(
    "VoxelResBackBone8x of OpenPCDet",
    "Apache-2.0",
    replace(SPCONV, axes="zyx"),
    VoxelResBackbone,
    names.OPENPCDET,
    first="stages.0.0.conv",
    slots=27,
    wide=("stages.0.0.norm", 16),
    head=None,
    prefixes=("backbone_3d.",),
    biased=("conv1", "conv2"),
)
_SECOND = replace(
    _CENTERPOINT,
    source="VoxelBackBone8x of OpenPCDet",
    make=VoxelBackbone,
    rules=names.SECOND,
    biased=(),
)


def _saved_as(published: PublishedNetwork, layout: ChannelsAround) -> PublishedNetwork:
    assert isinstance(published.layout, ChannelsAround)
    return replace(published, layout=replace(layout, axes=published.layout.axes))


#: By the package (and how it was saved) and the network of ours.
PUBLISHED: Mapping[tuple[str, str], PublishedNetwork] = {
    ("torchsparse", "minkunet"): _UNET,
    ("torchsparse", "spvcnn"): _SPVCNN,
    ("minkowski", "resunet"): _RESUNET,
    **{
        (f"spconv{suffix}", model): _saved_as(published, layout)
        for suffix, layout in (("", SPCONV), ("-rskc", SPCONV_RSKC), ("-rsck", SPCONV_RSCK))
        for model, published in (
            ("spunet", _SPUNET),
            ("centerpoint", _CENTERPOINT),
            ("second", _SECOND),
        )
    },
}
#: Networks that a file may name, and nothing else.
BUILDERS: Mapping[str, Callable[..., nn.Module]] = {
    one.made_by: one.make for one in PUBLISHED.values()
}


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
