"""`pcnn.register`: two clouds, from files or memory, by trained descriptors or by FPFH."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from pcnn.datasets.readers.fragments import local_points, read_local
from pcnn.datasets.readers.units import declared_unit, unit_doubt
from pcnn.experiment.descriptors import Choice, after, chosen
from pcnn.experiment.fitted_cells import CellRule
from pcnn.experiment.pair_options import PairOptions
from pcnn.files.bounded import LIMIT
from pcnn.plural import counted
from pcnn.registration.cloud_measures import CloudMeasures, measured
from pcnn.registration.local_frame import LocalCloud, to_given
from pcnn.registration.matching import BY_SCORES
from pcnn.registration.register import (
    AmbiguousError,
    NoOverlapError,
    NotRigidError,
    Registration,
)
from pcnn.registration.settings import Sampling, Solver
from pcnn.registration.verifier import read_verifier

log = logging.getLogger(__name__)

Cloud = str | Path | np.ndarray | Tensor | LocalCloud

#: Voxels across a cloud below which a failure is explained by its size, and those proposed then.
_FEW_VOXELS, _ENOUGH_VOXELS = 20, 50


def register(
    source: Cloud,
    target: Cloud,
    model: str | Path | None = None,
    *,
    voxel_size: float | None = None,
    sensor_at_origin: bool = True,
    solver: Solver | None = None,
    sampling: Sampling = "random_points",
    icp_distance: float | None = None,
    min_confidence: float | None = None,
    min_inliers: int | None = None,
    min_overlap: float = 0.05,
    allow_ambiguous: bool = False,
    seed: int = 0,
    device: str = "cpu",
    allow_targets: Sequence[str] = (),
    progress: Callable[[str], object] = str,
    cell: CellRule = "auto",
    verifier: str | Path | None = None,
    surfaces: bool = True,
) -> Registration:
    """Estimate the rigid transform of a source cloud onto a target cloud.

    The result names the descriptors, and says when they were trained on simulated data. Clouds with
    coordinates of a map are moved near zero before they are rounded to float32; the transform is
    that of the coordinates that were given, in float64. A warning is logged where a unit looks
    wrong.

    Args:
        source: file (.ply, .pcd, .bin, .npy, .npz, .pth), points [P, 3] [m], or what `points_of`
            gave.
        target: likewise.
        model: ``interiors``, ``turned``, ``streets`` (shipped weights; those of ``turned`` know
            clouds of rooms that lie any way), ``fpfh``, or a checkpoint of a run with
            task=registration. None goes by the span of the clouds
            (`pcnn.experiment.descriptors`); where the network finds no transform it asks
            ``turned``, of rooms, and then FPFH (Open3D).
        voxel_size: of FPFH [m]; asks for FPFH where no model is named.
        sensor_at_origin: whether the origin of each cloud is about its sensor's place. FPFH turns
            normals to it (of a cloud that was moved near zero, to its middle). The verifier asks
            whether a pose puts points where the other sensor saw through.
        solver: ``cliques``, ``ransac``, ``open3d`` or ``svd``; None: cliques of a network, ransac
            of FPFH, to which the verifier was not fitted.
        sampling: which points are matched: ``random_points``; of a network with a head of overlap
            ``scores`` or ``top_scores`` (`pcnn.registration.matching.sampled_matches`).
        icp_distance: refine by ICP within this distance [m]; None does not.
        min_confidence: probability of being right below which a transform is refused; None as the
            verifier has it (`Registration.confidence`). Poses of FPFH have no confidence.
        min_inliers: matches that must agree; None: 25 of FPFH, 3 of a network.
        min_overlap: share of the source that must then lie near the target.
        allow_ambiguous: return one of several poses that fit as well (`Registration.ambiguity`).
        seed: of samples and hypotheses.
        device: ``cpu`` or ``cuda``.
        allow_targets: packages of the user's own whose classes a checkpoint may name.
        progress: is told what begins.
        cell: ``auto``: cells of the training where the clouds are as wide and dense as those of the
            training, otherwise by the clouds (`pcnn.registration.cell_size.fitting_cell`);
            ``trained``; ``clouds``: always by the clouds, so that the pose of clouds in another
            unit is the same in that unit. A voxel size that is given stays.
        verifier: file of ``pcnn calibrate``, which chooses among poses and gives the confidence;
            None: the one of the package. FPFH has none.
        surfaces: move the pose that was chosen until the surfaces of both clouds lie on each other
            (`pcnn.registration.surface_fit`); false leaves it as the matches have it.

    Returns:
        The transform with its inliers and overlap.

    Raises:
        FileNotFoundError: no such file.
        FileError: no verifier, or one of another version.
        ValueError: an unreadable or empty cloud; `NoOverlapError` when no transform is supported.
            There is never an identity in place of an answer. Of `NoOverlapError` there are
            `AmbiguousError`, where other poses fit as well, and `NotRigidError`, where the clouds
            differ in scale or one is a mirror image.
    """
    options = PairOptions(
        sensor_at_origin=sensor_at_origin,
        solver=solver,
        sampling=sampling,
        icp_distance=icp_distance,
        min_confidence=min_confidence,
        min_inliers=min_inliers,
        min_overlap=min_overlap,
        allow_ambiguous=allow_ambiguous,
        seed=seed,
        device=device,
        allow_targets=allow_targets,
        cell=cell,
        verifier=None if verifier is None else read_verifier(Path(verifier)),
        surfaces=surfaces,
    )
    moving, fixed = points_of(source, "source"), points_of(target, "target")
    return register_two(moving, fixed, model, voxel_size, options, progress)


def register_two(
    source: LocalCloud,
    target: LocalCloud,
    model: str | Path | None = None,
    voxel_size: float | None = None,
    options: PairOptions | None = None,
    progress: Callable[[str], object] = str,
) -> Registration:
    """Register two clouds that were read; see `register`.

    Args:
        source: as `points_of` gives it.
        target: likewise.
        model: as of `register`.
        voxel_size: likewise.
        options: all others; None has their defaults.
        progress: is told what begins.
    """
    options = options or PairOptions()
    both = [source, target]
    measures = measured([cloud.points for cloud in both])
    tried: list[float] = []

    def estimated(choice: Choice, options: PairOptions) -> Registration:
        descriptor = options.descriptor(choice)
        if not tried:
            warn_of_units(both, measures, descriptor.voxel_size)
        descriptor, choice = options.fitted(descriptor, choice, measures)
        tried.append(descriptor.voxel_size)
        found = options.register(source, target, descriptor, choice, progress)
        given = to_given(found.transform, source, target)
        return replace(found, transform=given, measures=measures)

    def by_turns(first: Choice) -> Registration:
        every = [first]
        if model is None and first.weights is not None:
            every += after(first, measures)
        # FPFH has neither scores nor a verifier
        rule = "random_points" if options.sampling in BY_SCORES else options.sampling
        plain = replace(options, sampling=rule, verifier=None)
        refused: dict[str, ValueError] = {}
        for choice in every:
            network = choice.weights is not None
            scaled = [one for one in refused.values() if isinstance(one, NotRigidError)]
            if scaled and not network:
                raise scaled[0]  # true of the clouds, whatever describes them
            try:
                return estimated(choice, options if choice is first or network else plain)
            except AmbiguousError:  # likewise
                raise
            except ImportError:
                if not refused:
                    raise
            except ValueError as error:
                if not refused and (len(every) == 1 or not isinstance(error, NoOverlapError)):
                    raise
                refused[choice.weights.stem if choice.weights else "FPFH"] = error
        if len(refused) == 1:
            raise next(iter(refused.values()))
        raise NoOverlapError("; ".join(f"by {name}: {error}" for name, error in refused.items()))

    choice = chosen(model, measures, voxel_size)
    try:
        return by_turns(choice)
    except (AmbiguousError, NotRigidError):
        raise
    except ValueError as error:
        advice = advice_on_size(measures, tried[0]) if tried else ""
        if not advice:
            raise
        kind = NoOverlapError if isinstance(error, NoOverlapError) else ValueError
        raise kind(f"{error}. {advice}") from error


def points_of(
    cloud: Cloud, name: str, columns: tuple[str, ...] | None = None, max_gib: float = LIMIT
) -> LocalCloud:
    """Points of a file or an array, at least one, about an origin where float32 keeps them.

    The number of rows that were left out, as they hold no return, is logged.

    Args:
        cloud: file or points.
        name: what the points are called in messages; a file is called by its path.
        columns: of files, as of `pcnn.datasets.readers.channels.Reading`.
        max_gib: likewise.

    Raises:
        FileNotFoundError: no such file.
        ValueError: unreadable, empty, or too large for float32; the message names it.
    """
    if isinstance(cloud, LocalCloud):
        return cloud
    if isinstance(cloud, str | Path):
        read, name = read_local(Path(cloud), columns, max_gib), str(cloud)
        declared = declared_unit(Path(cloud))
        if declared is not None:
            log.warning("%s: %s; voxels and distances are taken in it", name, declared)
    else:
        read = local_points(cloud, name)
    if read.missing:
        rows = counted(read.missing, "row")
        log.warning("%s: %s without a return (NaN or zeros) left out", name, rows)
    return read


def warn_of_units(clouds: Sequence[LocalCloud], measures: CloudMeasures, voxel_size: float) -> None:
    """Log why the unit of clouds looks wrong, once; nothing where it does not.

    Clouds that are few voxels wide are left to `advice_on_size`.
    """
    if advice_on_size(measures, voxel_size):
        return
    for cloud in clouds:
        doubt = unit_doubt((cloud.points.double() + cloud.origin).numpy(), voxel_size)
        if doubt is not None:
            log.warning("The unit of the coordinates may not be the metre: %s.", doubt)
            return


def advice_on_size(clouds: CloudMeasures, voxel_size: float) -> str:
    """Advice on clouds that are few voxels wide; empty where they are not.

    A fiftieth of the width leaves an object enough voxels to be told from others.
    """
    width = clouds.width
    if not 0 < width < _FEW_VOXELS * voxel_size:
        return ""
    cell = width / _ENOUGH_VOXELS
    digits = -math.floor(math.log10(cell))
    return (
        f"The {clouds.subject} {width:.2g} m wide, "
        f"{width / voxel_size:.2g} voxels of {voxel_size:g} m. "
        f"If they are in metres, try model='fpfh', voxel_size={round(cell, digits):g}"
    )
