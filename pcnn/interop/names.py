"""Names of layers in published networks, by those of ours.

Every function takes the name of a layer of ours and returns its name there; ``None`` where there
is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

#: Name there of a layer of ours.
Rename = Callable[[str], str | None]

#: Parts of a residual block of ours, and of a block in each package's way.
_SPVNAS = {
    "first.conv": "net.0",
    "first.norm": "net.1",
    "second.conv": "net.3",
    "second.norm": "net.4",
    "shortcut.conv": "downsample.0",
    "shortcut.norm": "downsample.1",
}
_POINTCEPT = {
    "first.conv": "conv1",
    "first.norm": "bn1",
    "second.conv": "conv2",
    "second.norm": "bn2",
    "shortcut.conv": "proj.0",
    "shortcut.norm": "proj.1",
}
_FCGF = {
    "first.conv": "conv1",
    "first.norm": "norm1.bn",
    "second.conv": "conv2",
    "second.norm": "norm2.bn",
}
_LITEPT = {
    "conv": "conv.0",
    "linear.module": "conv.1",
    "norm": "conv.2",
    "entry": "norm0.0",
    "first": "norm1.0",
    "second": "norm2.0",
    "attention.qkv": "attn.qkv",
    "attention.project": "attn.proj",
    "perceptron.0": "mlp.0.fc1",
    "perceptron.2": "mlp.0.fc2",
}
_BLOCK = r"(first|second|shortcut)\.(conv|norm)"
_PLACE = {"conv": "0", "norm": "1"}


def spvnas(name: str) -> str | None:
    """MinkUNet and SPVCNN of SPVNAS, written for TorchSparse."""
    if found := re.fullmatch(r"stem\.(\d)\.(conv|norm)", name):
        return f"stem.{3 * int(found[1]) + int(_PLACE[found[2]])}"
    if found := re.fullmatch(r"encoder\.(\d)\.0\.(conv|norm)", name):
        return f"stage{int(found[1]) + 1}.0.net.{_PLACE[found[2]]}"
    if found := re.fullmatch(rf"encoder\.(\d)\.1\.(\d)\.({_BLOCK})", name):
        return f"stage{int(found[1]) + 1}.{int(found[2]) + 1}.{_SPVNAS[found[3]]}"
    if found := re.fullmatch(r"up\.(\d)\.(conv|norm)", name):
        return f"up{int(found[1]) + 1}.0.net.{_PLACE[found[2]]}"
    if found := re.fullmatch(rf"decoder\.(\d)\.(\d)\.({_BLOCK})", name):
        return f"up{int(found[1]) + 1}.1.{found[2]}.{_SPVNAS[found[3]]}"
    if found := re.fullmatch(r"points\.(\d)\.(linear|norm)", name):
        return f"point_transforms.{found[1]}.{0 if found[2] == 'linear' else 1}"
    return "classifier.0" if name == "head.module" else None


def pointcept(name: str) -> str | None:
    """SpUNet (v1m1) of Pointcept, written for spconv."""
    if found := re.fullmatch(r"stem\.0\.(conv|norm)", name):
        return f"conv_input.{_PLACE[found[1]]}"
    if found := re.fullmatch(r"encoder\.(\d)\.0\.(conv|norm)", name):
        return f"down.{found[1]}.{_PLACE[found[2]]}"
    if found := re.fullmatch(rf"encoder\.(\d)\.1\.(\d)\.({_BLOCK})", name):
        return f"enc.{found[1]}.block{found[2]}.{_POINTCEPT[found[3]]}"
    if found := re.fullmatch(r"up\.(\d)\.(conv|norm)", name):
        return f"up.{3 - int(found[1])}.{_PLACE[found[2]]}"  # there the finest comes first
    if found := re.fullmatch(rf"decoder\.(\d)\.(\d)\.({_BLOCK})", name):
        return f"dec.{3 - int(found[1])}.block{found[2]}.{_POINTCEPT[found[3]]}"
    return "final" if name == "head.module" else None


def fcgf(name: str) -> str | None:
    """ResUNetBN2C of FCGF, written for MinkowskiEngine."""
    if found := re.fullmatch(r"(encoder|decoder)\.(\d)\.(.+)", name):
        up, number = found[1] == "decoder", int(found[2])
        level = f"{4 - number}_tr" if up else f"{number + 1}"
        if found[3] == "entry.conv":
            return f"conv{level}"
        if found[3] == "entry.norm":
            return f"norm{level}.bn"
        part = _FCGF.get(found[3].removeprefix("block."))
        return None if part is None else f"block{level}.{part}"
    return {"merge": "conv1_tr", "final": "final"}.get(name)


def openpcdet(name: str) -> str | None:
    """VoxelResBackBone8x of OpenPCDet, written for spconv."""
    if found := re.fullmatch(r"stages\.(\d)\.0\.(conv|norm)", name):
        stage, place = int(found[1]), _PLACE[found[2]]
        return f"conv{stage + 1}.0.{place}" if stage else f"conv_input.{place}"
    if found := re.fullmatch(rf"stages\.(\d)\.1\.(\d)\.({_BLOCK})", name):
        stage, block = int(found[1]), int(found[2])
        # behind the strided convolution, which the first stage has outside
        return f"conv{stage + 1}.{block + (stage > 0)}.{_POINTCEPT[found[3]]}"
    if found := re.fullmatch(r"stages\.4\.(conv|norm)", name):
        return f"conv_out.{_PLACE[found[1]]}"
    return None


def second(name: str) -> str | None:
    """VoxelBackBone8x of OpenPCDet, the backbone of SECOND, written for spconv."""
    if found := re.fullmatch(r"stages\.(\d)\.1\.(\d)\.(conv|norm)", name):
        stage, layer = int(found[1]), int(found[2])
        return f"conv{stage + 1}.{layer + (stage > 0)}.{_PLACE[found[3]]}"
    return openpcdet(name)  # entries and tail


def litept(name: str) -> str | None:
    """LitePT of its authors, with the head of their segmenter, written for spconv."""
    inside = "backbone."
    if found := re.fullmatch(r"stem\.(conv|norm)", name):
        return f"{inside}embedding.stem.{found[1]}"
    if found := re.fullmatch(r"down\.(\d)\.(linear\.module|norm)", name):
        part = "norm.0" if found[2] == "norm" else "proj"
        return f"{inside}enc.enc{int(found[1]) + 1}.down.{part}"
    if found := re.fullmatch(r"blocks\.(\d)\.(\d)\.(.+)", name):
        own = _LITEPT.get(found[3])
        return None if own is None else f"{inside}enc.enc{found[1]}.block{found[2]}.{own}"
    if found := re.fullmatch(r"(up|skip)\.(\d)\.(linear|norm)", name):
        part = "proj" if found[1] == "up" else "proj_skip"
        return f"{inside}dec.dec{found[2]}.up.{part}.{0 if found[3] == 'linear' else 1}"
    return "seg_head" if name == "head.module" else None
