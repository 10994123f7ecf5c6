"""`pcnn registration`: descriptors of a cloud, and ground truth, made once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import ARGUMENT, App, refusing
from pcnn.cli.options import Columns, chosen_reading
from pcnn.experiment.register_options import DescriptorOptions
from pcnn.messages import counted, say

app = App(help="Descriptors of a cloud, and ground truth for sets of your own.")


@dataclass(frozen=True, kw_only=True)
class DescribeOptions(DescriptorOptions):
    cloud: Annotated[Path, ARGUMENT, "Cloud (.ply, .pcd, .bin, .npy, ...)."]
    out: Annotated[Path | None, "File; CLOUD_descriptors.npz beside it unless given."] = None
    columns: Columns = None


def describe(options: DescribeOptions) -> None:
    """Write descriptors of a cloud: an .npz with points [N, 3], features [N, C] and their name.

    Points are in the coordinates of the file; in float64 where these are those of a map.
    """
    import numpy as np

    from pcnn.datasets.readers.clouds import Reading
    from pcnn.experiment.register import described_cloud, points_of
    from pcnn.files.whole_file import whole_file

    cloud = options.cloud
    path = options.out or cloud.with_name(f"{cloud.stem}_descriptors.npz")
    if path.resolve() == cloud.resolve():
        raise typer.BadParameter(f"--out {path} would replace the cloud; name another file")
    reading = chosen_reading(Reading(), options.columns)
    with refusing():
        read = points_of(cloud, str(cloud), reading.columns)
        described, descriptor, reason = described_cloud(read, str(cloud), options)
    with whole_file(path) as file:
        np.savez(
            file,
            points=read.given(described.points).numpy(),
            features=described.features.numpy(),
            descriptor=np.array(descriptor.name),
        )
    say(
        f"{path}: {counted(len(described.points), 'point')}, descriptors of length "
        f"{described.features.shape[1]} by {descriptor.name}; {reason}"
    )


@dataclass(frozen=True, kw_only=True)
class KittiGtOptions:
    root: Annotated[Path, ARGUMENT, "KITTI odometry: sequences/ and poses/."]
    split: Annotated[str, "train, val or test."] = "test"
    ground_truth: Annotated[str, "legacy (as published) or fixed (calibrated right)."] = "legacy"


def kitti_gt(options: KittiGtOptions) -> None:
    """Refine the poses of KITTI pairs by ICP, once, and keep them below the root.

    It may be stopped at any time; the next run continues where it was.
    """
    from rich.progress import track

    from pcnn.datasets.registration import KITTIOdometry

    split, ground_truth = options.split, options.ground_truth
    with refusing():
        data = KITTIOdometry(options.root, split, ground_truth, make_missing=True)
        title = f"{ground_truth} ground truth"
        made = data.make(partial(track, description=title, transient=True))
    say(
        f"{counted(len(data.pairs), f'{split} pair')}, {made} of them made now: "
        f"{data.kept(0, 0, 0).parent}"
    )


app.add(describe, "pcnn registration describe scan.ply --model fpfh --out scan.npz")
app.add(kitti_gt, "pcnn registration kitti-gt data/kitti --split test")
