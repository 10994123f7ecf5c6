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
from pcnn.ranges import Length, Share

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
class MakeGtOptions:
    folder: Annotated[Path, ARGUMENT, "Numbered clouds, NAME.pose.txt beside each."]
    out: Annotated[Path | None, "Folder to write to; that of the clouds unless given."] = None
    voxel_size: Annotated[Length, "Voxel size that clouds are thinned to, in metres."] = 0.025
    min_overlap: Annotated[Share, "Least overlap of a pair."] = 0.3
    max_overlap: Annotated[Share, "Largest overlap of a pair."] = 1.0
    replace: Annotated[bool, "--replace", "Replace existing ground truth."] = False


def make_gt(options: MakeGtOptions) -> None:
    """Write gt.log, gt.info and gt_overlap.log for a scene of your own.

    A pose is a 4 x 4 matrix, the cloud's frame to the scene's, in NAME.pose.txt or NAME.info.txt.
    """
    from rich.progress import track

    from pcnn.datasets.registration.gt_files import make_ground_truth

    with refusing():
        pairs = make_ground_truth(
            options.folder,
            options.out,
            options.voxel_size,
            (options.min_overlap, options.max_overlap),
            partial(track, description="overlaps", transient=True),
            options.replace,
        )
    say(f"{counted(pairs, 'pair')} in {(options.out or options.folder) / 'gt.log'}")


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
app.add(make_gt, "pcnn registration make-gt FOLDER/SCENE --min-overlap 0.3")
app.add(kitti_gt, "pcnn registration kitti-gt data/kitti --split test")
