"""Names of layers in published networks, by those of ours: one table of rules per source.

A rule is a pattern of a whole name of ours, and what makes the name there of its groups, numbers
as `int`. A layer that no rule knows has no name there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Rule = tuple[str, Callable[..., str]]

_PLACE = {"conv": 0, "norm": 1, "linear": 0}
#: A part of a residual block of ours, and where each package keeps it.
_BLOCK = r"((?:first|second|shortcut)\.(?:conv|norm))"
_PARTS = [f"{half}.{part}" for half in ("first", "second", "shortcut") for part in ("conv", "norm")]
_SPVNAS = dict(
    zip(_PARTS, ("net.0", "net.1", "net.3", "net.4", "downsample.0", "downsample.1"), strict=True)
)
_POINTCEPT = dict(zip(_PARTS, ("conv1", "bn1", "conv2", "bn2", "proj.0", "proj.1"), strict=True))
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
#: SpUNet (v1m1) of Pointcept, written for spconv; its decoder begins with the finest level.
POINTCEPT: Sequence[Rule] = (
    (r"stem\.0\.(conv|norm)", lambda part: f"conv_input.{_PLACE[part]}"),
    (r"encoder\.(\d)\.0\.(conv|norm)", lambda n, part: f"down.{n}.{_PLACE[part]}"),
    (rf"encoder\.(\d)\.1\.(\d)\.{_BLOCK}", lambda n, k, p: f"enc.{n}.block{k}.{_POINTCEPT[p]}"),
    (r"up\.(\d)\.(conv|norm)", lambda n, part: f"up.{3 - n}.{_PLACE[part]}"),
    (rf"decoder\.(\d)\.(\d)\.{_BLOCK}", lambda n, k, p: f"dec.{3 - n}.block{k}.{_POINTCEPT[p]}"),
    (r"head\.module", lambda: "final"),
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
#: VoxelResBackBone8x of OpenPCDet, written for spconv; the first stage's entry lies outside of it.
OPENPCDET: Sequence[Rule] = (
    (r"stages\.0\.0\.(conv|norm)", lambda part: f"conv_input.{_PLACE[part]}"),
    (r"stages\.(\d)\.0\.(conv|norm)", lambda n, part: f"conv{n + 1}.0.{_PLACE[part]}"),
    (
        rf"stages\.(\d)\.1\.(\d)\.{_BLOCK}",
        lambda n, k, part: f"conv{n + 1}.{k + (n > 0)}.{_POINTCEPT[part]}",
    ),
    (r"stages\.4\.(conv|norm)", lambda part: f"conv_out.{_PLACE[part]}"),
)
#: VoxelBackBone8x of OpenPCDet, the backbone of SECOND: plain layers in place of blocks.
SECOND: Sequence[Rule] = (
    (
        r"stages\.(\d)\.1\.(\d)\.(conv|norm)",
        lambda n, k, part: f"conv{n + 1}.{k + (n > 0)}.{_PLACE[part]}",
    ),
    *OPENPCDET,
)


def renamed(rules: Sequence[Rule], name: str) -> str | None:
    """Name there of a layer of ours; ``None`` where there is none."""
    for pattern, there in rules:
        found = re.fullmatch(pattern, name)
        if found:
            return there(*(int(part) if part.isdigit() else part for part in found.groups()))
    return None
