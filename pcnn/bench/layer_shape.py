"""Shapes of layers that are timed, and the standard ones.

Nothing heavy is imported, so that the options of commands show at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcnn.geometry import Kernel

#: Largest channels and kernel sizes of a layer that is measured.
MOST_CHANNELS, MOST_SIZE = 4096, 63
#: Kinds of times of layers: on an existing map, or with a new map from the sorted keys.
KINDS = ("layer", "train", "map+layer", "map+train")


@dataclass(frozen=True)
class LayerShape:
    """Channels and kernel of a convolution.

    Args:
        c_in: input channels.
        c_out: output channels.
        size: kernel size, the same along all axes.
        stride: stride, likewise.
        groups: groups of channels.
    """

    c_in: int
    c_out: int
    size: int
    stride: int = 1
    groups: int = 1

    @property
    def kernel(self) -> Kernel:
        """The relation."""
        from pcnn.geometry import Kernel

        return Kernel.of(self.size, self.stride)

    @classmethod
    def parse(cls, text: str) -> LayerShape:
        """Read ``c_in:c_out:size`` or ``c_in:c_out:size:stride``.

        Raises:
            ValueError: something else.
        """
        parts = text.split(":")
        if len(parts) not in (3, 4) or not all(p.isdecimal() and int(p) for p in parts):
            raise ValueError(
                f"{text}: must be c_in:c_out:size or c_in:c_out:size:stride, as in 16:32:3"
            )
        if max(map(int, parts[:2])) > MOST_CHANNELS or max(map(int, parts[2:])) > MOST_SIZE:
            raise ValueError(
                f"{text}: at most {MOST_CHANNELS:,} channels, and size and stride {MOST_SIZE}"
            )
        return cls(*map(int, parts))


def layer_shapes(text: str) -> tuple[LayerShape, ...]:
    """Several layers, with commas between them; see `LayerShape.parse`."""
    return tuple(map(LayerShape.parse, text.split(",")))


#: Layers that the papers' networks are made of.
STANDARD = layer_shapes(
    "4:16:3,16:16:3,32:32:3,64:64:3,64:128:3,128:128:3,256:256:3,16:16:5,32:32:5,64:64:5"
)
