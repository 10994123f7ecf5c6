"""`pcnn make-gt` and `pcnn kitti-gt`: ground truth of registration, made once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from pcnn.cli.app import refusing
from pcnn.escaping import say
from pcnn.plural import counted
from pcnn.ranges import Length, Share

Item = TypeVar("Item")


def make_gt(
    folder: Annotated[
        Path, typer.Argument(help="Clouds with numbers in their names, NAME.pose.txt beside each.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to. Default: the folder of the clouds.")
    ] = None,
    voxel_size: Annotated[
        Length, typer.Option(help="Voxel size that clouds are thinned to, in metres.")
    ] = 0.025,
    min_overlap: Annotated[Share, typer.Option(help="Least overlap of a pair.")] = 0.3,
    max_overlap: Annotated[Share, typer.Option(help="Largest overlap of a pair.")] = 1.0,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace existing ground truth.")
    ] = False,
) -> None:
    """Write gt.log, gt.info and gt_overlap.log for a scene of your own.

    A pose is a 4 x 4 matrix, the cloud's frame to the scene's, in NAME.pose.txt or NAME.info.txt.
    """
    from pcnn.datasets.registration.make_gt import make_ground_truth

    with refusing():
        pairs = make_ground_truth(
            folder,
            out,
            voxel_size,
            (min_overlap, max_overlap),
            partial(tracked, title="overlaps"),
            replace,
        )
    say(f"{counted(pairs, 'pair')} in {(out or folder) / 'gt.log'}")


def kitti_gt(
    root: Annotated[Path, typer.Argument(help="KITTI odometry: sequences/ and poses/.")],
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    ground_truth: Annotated[
        str, typer.Option(help="legacy (as published) or fixed (composed and calibrated right).")
    ] = "legacy",
    poses: Annotated[
        str, typer.Option(help="odometry (poses/XX.txt) or semantic (sequences/XX/poses.txt).")
    ] = "odometry",
    solver: Annotated[str, typer.Option(help="Solver of ICP: auto, torch or open3d.")] = "auto",
) -> None:
    """Refine the poses of KITTI pairs by ICP, once, and keep them below the root.

    It may be stopped at any time; the next run continues where it was.
    """
    from pcnn.datasets.registration import KITTIOdometry

    with refusing():
        data = KITTIOdometry(root, split, ground_truth, poses, make_missing=True)
        made = data.fill_cache(solver, partial(tracked, title=f"{ground_truth} ground truth"))
    say(
        f"{counted(len(data.pairs), f'{split} pair')}, {made} of them made now: "
        f"{data.cache.path(0, 0, 0).parent}"
    )


def tracked(items: Sequence[Item], title: str) -> Iterable[Item]:
    """The items, one after the other, with a bar that shows how far it is."""
    from rich.progress import track

    return track(items, title, transient=True)
