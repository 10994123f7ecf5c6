"""`pcnn.register`: two clouds, from files or memory, by trained descriptors or by FPFH."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from pcnn.datasets.readers.fragments import local_points, read_local
from pcnn.experiment.descriptors import Choice, chosen, descriptor_of, verifier_of
from pcnn.experiment.devices import device_of
from pcnn.experiment.options import RegisterOptions
from pcnn.messages import counted
from pcnn.registration.cloud_measures import measured
from pcnn.registration.descriptor import Described, Descriptor, described_all
from pcnn.registration.register import (
    AmbiguousError,
    NoOverlapError,
    NotRigidError,
    Registration,
    default_settings,
    register_described,
)
from pcnn.registration.settings import Solver
from pcnn.registration.transforms import LocalCloud, to_given

log = logging.getLogger(__name__)

Cloud = str | Path | np.ndarray | Tensor | LocalCloud

#: Matches of FPFH that agree by chance: of 58 wrong transforms of indoor fragments without much
#: overlap none had more than 23; of 58 right ones two had fewer than this.
FPFH_MIN_INLIERS = 25


def register(
    source: Cloud,
    target: Cloud,
    model: str | Path | None = None,
    *,
    progress: Callable[[str], object] = str,
    **options: Any,
) -> Registration:
    """Estimate the rigid transform of a source cloud onto a target cloud.

    The result names the descriptors, and says when they were trained on simulated data. Clouds with
    coordinates of a map are moved near zero before they are rounded to float32; the transform is
    that of the coordinates that were given, in float64. A warning is logged where a unit looks
    wrong.

    Args:
        source: file (.ply, .pcd, .bin, .npy, .pth), points [P, 3] [m], or what `points_of`
            gave.
        target: likewise.
        model: ``reg_rooms``, ``reg_turned``, ``reg_streets`` (shipped weights), ``fpfh``, or a
            checkpoint; by the span of the clouds unless given.
        progress: is told what begins.
        **options: fields of `RegisterOptions`, as ``voxel_size=0.1`` or ``min_confidence=0.9``.

    Returns:
        The transform with its inliers and overlap.

    Raises:
        FileError: a file that cannot be read.
        ValueError: an option out of its range, or an empty cloud; `NoOverlapError` when no
            transform is supported. There is never an identity in place of an answer. Of
            `NoOverlapError` there are `AmbiguousError`, where other poses fit as well, and
            `NotRigidError`, where the clouds differ in scale or one is a mirror image.
    """
    given = RegisterOptions(model=None if model is None else str(model), **options)
    moving, fixed = points_of(source, "source"), points_of(target, "target")
    names = [
        str(cloud) if isinstance(cloud, str | Path) else side
        for cloud, side in ((source, "source"), (target, "target"))
    ]
    return register_two(moving, fixed, given, progress, (names[0], names[1]))


def register_two(
    source: LocalCloud,
    target: LocalCloud,
    options: RegisterOptions,
    progress: Callable[[str], object] = str,
    names: tuple[str, str] = ("source", "target"),
) -> Registration:
    """Register two clouds that were read; see `register`."""
    clouds = [cloud.to(device_of(options.device)) for cloud in (source, target)]
    points = [cloud.points for cloud in clouds]
    measures = measured(points)
    refused: dict[str, ValueError] = {}
    for choice in chosen(options, measures):
        for error in refused.values() if choice.weights is None else ():
            if isinstance(error, NotRigidError):
                raise error  # true of the clouds, whatever describes them
        try:
            descriptor, choice = descriptor_of(options, choice, measures)
            if not refused and (doubt := measures.doubt(descriptor.voxel_size)):
                log.warning("%s", doubt)
            progress("describing both clouds")
            one, other = described_all(descriptor, points, names)
            found = register_pair(clouds, (one, other), descriptor, choice, options, progress)
        except AmbiguousError:  # likewise
            raise
        except ImportError:
            if not refused:
                raise
        except ValueError as error:
            if not refused and not isinstance(error, NoOverlapError):
                raise
            refused[choice.name] = error
        else:
            moved = to_given(found.transform, source, target)
            return replace(found, transform=moved, measures=measures)
    if len(refused) == 1:
        raise next(iter(refused.values()))
    reasons = [f"  {name}: {reason_of(error)}" for name, error in refused.items()]
    raise NoOverlapError("\n".join(["no transform found", *reasons]))


def reason_of(error: ValueError) -> str:
    """Why there is no transform, in a line."""
    return str(error).removeprefix("no transform found: ")


def register_pair(
    clouds: Sequence[LocalCloud],
    described: tuple[Described, Described],
    descriptor: Descriptor,
    choice: Choice,
    options: RegisterOptions,
    progress: Callable[[str], object] = str,
) -> Registration:
    """Register a pair, in the local frames of both, by what was chosen to describe it."""
    network = choice.weights is not None
    # of a cloud that was moved near zero the sensor's place is not known
    seen = options.sensor_at_origin and not any(cloud.moved for cloud in clouds)
    solver: Solver = "cliques" if network else "ransac"
    settings = default_settings(descriptor.voxel_size, options.seed, solver, seen)
    found = register_described(
        *described,
        descriptor,
        replace(settings, verifier=verifier_of(choice.weights)),
        min_confidence=options.min_confidence if network else 0.0,
        min_inliers=options.min_inliers or (3 if network else FPFH_MIN_INLIERS),
        allow_ambiguous=options.allow_ambiguous,
        device=device_of(options.device),
        progress=progress,
    )
    confidence = found.confidence if network else math.nan
    return replace(found, reason=choice.reason, confidence=confidence)


def points_of(cloud: Cloud, name: str, columns: tuple[str, ...] | None = None) -> LocalCloud:
    """Points of a file or an array, at least one, about an origin where float32 keeps them."""
    if isinstance(cloud, LocalCloud):
        return cloud
    if isinstance(cloud, str | Path):
        read, name = read_local(Path(cloud), columns), str(cloud)
    else:
        read = local_points(cloud, name)
    if read.missing:
        rows = counted(read.missing, "row")
        log.warning("%s: %s without a return (NaN or zeros) left out", name, rows)
    return read
