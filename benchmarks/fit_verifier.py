"""Fit how sure `pcnn register` is of a pose, to simulated pairs of one and of two places.

    pcnn simulate fragments rooms --scenes 0 --test-scenes 0 --val-scenes 8
    python -m benchmarks.fit_verifier rooms --out verifier.json

Prints the calibration error, false answers and answers kept, each of places that the model did not
see.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor

from pcnn.datasets.registration import KITTISets, PairDataset, ThreeDMatchSets
from pcnn.experiment.descriptors import of_checkpoint
from pcnn.experiment.weights import weights_file
from pcnn.files.whole_file import whole_file
from pcnn.metrics.registration.errors import point_rmse
from pcnn.registration.descriptor import Described, Descriptor, TurnedAtRandom
from pcnn.registration.estimate import estimate_all
from pcnn.registration.evidence import MEET, NAMES, SIGNS, VERSION
from pcnn.registration.nearest import nearest_within
from pcnn.registration.register import SAMPLES, default_settings
from pcnn.registration.settings import AGREE, EstimateSettings
from pcnn.registration.surface_fit import fit_surfaces
from pcnn.registration.transforms import transform_points
from pcnn.registration.verifier import Verifier, standard, worth_a_look

#: Voxels: root mean square distance of the overlap from where it belongs, below which a pose is
#: right. Of 5 cm they are 0.2 m, as in 3DMatch.
RIGHT = 4.0
FOLDS = 4  # of scenes: a pair is judged by a model that never saw its places
#: Evidence that is weighed. With the others, poses of rooms that a model did not see are told apart
#: no better.
WEIGHED = ("share", "alike", "gap", "through", "spread", "rank", "plane", "fits")
_COLUMNS = [NAMES.index(name) for name in WEIGHED]
DECAY = 3e-3  # of squared coefficients, against chance in some hundred pairs
FALSE = 0.01  # share of pairs of different places that may get an answer
APART = (5.0, 25.0)  # metres between the scans of a drive


@dataclass(frozen=True, eq=False)
class JudgedPair:
    fold: int  # of both clouds
    overlaps: bool  # false of clouds of different places: no pose is right
    evidence: Tensor  # [K, E] of the poses that best_pose chooses from, as the solver found them
    fitted: Tensor
    right: Tensor  # [K] bool, of the fitted poses


def judged_pairs(
    data: PairDataset,
    descriptor: Descriptor,
    settings: EstimateSettings,
    samples: int,
    a_scene: int,
    device: str = "cpu",
    seed: int = 0,
    track: Callable[[Sequence[str]], Iterable[str]] = iter,
) -> list[JudgedPair]:
    """Poses of overlapping pairs, and of pairs of clouds of different scenes of one fold."""
    if settings.solver != "cliques":
        raise ValueError("poses are judged of solver=cliques, which finds several")
    scenes = list(dict.fromkeys(pair.scene for pair in data.pairs))
    if len(scenes) < 3:
        raise ValueError(
            f"{data.name}: {len(scenes)} scenes; three or more are needed, better {2 * FOLDS}: "
            "pairs of different places take two, and a model is judged on others"
        )
    generator = torch.Generator().manual_seed(seed)
    found: list[JudgedPair | None] = []
    last: dict[int, list[Described]] = {}  # by fold: clouds of the scene before
    for number, scene in enumerate(track(scenes)):
        fold = number // 2 % FOLDS  # two scenes that follow each other share one
        pairs = [pair for pair in data.pairs if pair.scene == scene]
        drawn = torch.randperm(len(pairs), generator=generator)[:a_scene].tolist()
        pairs = [pairs[row] for row in drawn]
        clouds = sorted({at for pair in pairs for at in (pair.source, pair.target)})
        held = {at: descriptor([data.cloud(scene, at)])[0] for at in clouds}
        own = list(held.values())
        chosen: list[tuple[Described, Described, Tensor | None]] = [
            (held[pair.source], held[pair.target], pair.transform) for pair in pairs
        ]
        if others := last.get(fold):
            ends = torch.randint(1 << 30, (len(pairs), 2), generator=generator).tolist()
            chosen += [(own[a % len(own)], others[b % len(others)], None) for a, b in ends]
        last[fold] = own
        found += [_judged(fold, *one, settings, samples, device) for one in chosen]
    return [one for one in found if one is not None]


def _judged(
    fold: int,
    source: Described,
    target: Described,
    truth: Tensor | None,
    settings: EstimateSettings,
    samples: int,
    device: str,
) -> JudgedPair | None:
    # all poses are fitted below, so the one that is chosen here need not be
    unfitted = replace(settings, surfaces=False)
    (estimate,) = estimate_all([source], [target], unfitted, samples, device)
    poses = estimate.solution.candidates
    if poses is None or estimate.pairs is None:
        return None
    found = poses.transforms[: worth_a_look(poses)]
    seen = fitted = estimate.evidence(found)
    if settings.surfaces:
        found = torch.stack([fit_surfaces(pose[None], estimate.pairs)[0] for pose in found])
        fitted = estimate.evidence(found)
    right = torch.zeros(len(found), dtype=torch.bool)
    if truth is not None:  # right puts the part that both clouds hold where it belongs
        voxel_size = settings.ransac.distance / AGREE
        points = source.points.double().cpu()
        placed = transform_points(truth, points)
        _, near = nearest_within(placed, target.points.cpu(), MEET * voxel_size)
        errors = [float(point_rmse(pose, truth, points[near >= 0])) for pose in found]
        right = torch.tensor(errors) < RIGHT * voxel_size
    return JudgedPair(fold, truth is not None, seen, fitted, right)


@dataclass(frozen=True, eq=False)
class Calibration:
    """A fitted verifier and what it says of pairs that it was not fitted to."""

    verifier: Verifier  # fitted to all pairs
    confidence: Tensor  # [P] of every pair in the pose that is taken
    right: Tensor  # [P] whether that pose is right
    overlaps: Tensor  # [P] false of pairs of different places


def confidence_error(confidence: Tensor, right: Tensor, bins: int = 10) -> float:
    """Expected calibration error of confidences [P] (Guo et al. 2017, eq. 3)."""
    place = (confidence * bins).long().clamp(0, bins - 1)
    gaps = confidence.double() - right.double()
    sums = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, gaps)
    return float(sums.abs().sum()) / max(len(gaps), 1)


def calibrated(pairs: Sequence[JudgedPair], made: str, threshold: float) -> Calibration:
    """Fit the choice among poses and the confidence in the one that was taken."""
    confidence = torch.zeros(len(pairs), dtype=torch.float64)
    right = torch.zeros(len(pairs), dtype=torch.bool)
    for fold in {pair.fold for pair in pairs}:
        model = _fitted([pair for pair in pairs if pair.fold != fold], made, threshold)
        for place, pair in enumerate(pairs):
            if pair.fold == fold:
                row = model.best(pair.evidence)
                confidence[place] = model.confidence(pair.fitted[row])
                right[place] = pair.right[row]
    overlaps = torch.tensor([pair.overlaps for pair in pairs])
    return Calibration(_fitted(pairs, made, threshold), confidence, right, overlaps)


def _fitted(pairs: Sequence[JudgedPair], made: str, threshold: float) -> Verifier:
    signs = [SIGNS[column] for column in _COLUMNS]
    poses = [pair.evidence[:, _COLUMNS] for pair in pairs]
    centre, spread = _scale(torch.cat(poses))
    right = torch.cat([pair.right for pair in pairs])
    choice = fitted_logistic(standard(torch.cat(poses), centre, spread), right, signs)[:-1]
    taken = [int((standard(looks, centre, spread) @ choice).argmax()) for looks in poses]
    both = list(zip(pairs, taken, strict=True))
    seen = torch.stack([pair.fitted[row, _COLUMNS] for pair, row in both])
    about, width = _scale(seen)
    right = torch.stack([pair.right[row] for pair, row in both])
    found = fitted_logistic(standard(seen, about, width), right, signs)
    return Verifier(
        WEIGHED,
        about.tolist(),
        width.tolist(),
        (choice * width / spread).tolist(),
        found[:-1].tolist(),
        float(found[-1]),
        threshold,
        made,
        VERSION,
    )


def threshold_of(confidence: Tensor) -> float:
    """Smallest threshold, in hundredths, that few of the pairs [P] of different places reach."""
    hundredths = (one / 100 for one in range(100))
    return next((t for t in hundredths if float((confidence >= t).double().mean()) <= FALSE), 1.0)


def _scale(seen: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [F] of evidence [K, F]; 0 and 1 where nothing is known."""
    known = torch.isfinite(seen)
    number = known.sum(0).clamp(min=1)
    centre = torch.where(known, seen, 0).sum(0) / number
    off = torch.where(known, seen - centre, 0).square().sum(0) / number
    return centre, torch.where(off > 0, off.sqrt(), 1)


def fitted_logistic(columns: Tensor, right: Tensor, signs: Sequence[int]) -> Tensor:
    """Coefficients that make right rows probable, each of the sign that its number has."""
    speaks = torch.tensor(signs, dtype=torch.float64)
    root = torch.full((len(signs) + 1,), 0.5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([root], max_iter=300, line_search_fn="strong_wolfe")

    def coefficients() -> Tensor:
        return torch.cat([speaks * root[:-1].square(), root[-1:]])

    def loss() -> float:
        optimizer.zero_grad()
        found = coefficients()
        logits = columns @ found[:-1] + found[-1]
        value = torch.nn.functional.binary_cross_entropy_with_logits(logits, right.double())
        value = value + DECAY * found[:-1].square().sum()
        value.backward()
        return float(value.detach())

    optimizer.step(loss)
    return coefficients().detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="folder of pcnn simulate fragments or kitti")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="reg_rooms", help="whose poses are judged")
    parser.add_argument("--turn-clouds", type=int, help="turn clouds at random, by this seed")
    parser.add_argument("--pairs", type=int, default=25, help="overlapping pairs of a scene")
    parser.add_argument("--threshold", type=float, default=0.75, help="confidence of an answer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    network = of_checkpoint(weights_file(given.model), given.device)
    descriptor: Descriptor = network
    drives = (given.root / "sequences").is_dir()
    if drives:
        sets = KITTISets(root=str(given.root), ground_truth="odometry", distances=APART)
        data: PairDataset = sets.find("train")
    else:
        data, descriptor = ThreeDMatchSets(root=str(given.root)).find("val"), network
    if given.turn_clouds is not None:
        descriptor = TurnedAtRandom(descriptor, given.turn_clouds)
    settings = default_settings(descriptor.voxel_size, given.seed, "cliques")
    judged = judged_pairs(
        data, descriptor, settings, SAMPLES, given.pairs, given.device, given.seed, track
    )
    overlapping = sum(pair.overlaps for pair in judged)
    made = f"{overlapping} pairs that overlap, {len(judged) - overlapping} of two places"
    words = f"fit_verifier {' '.join(sys.argv[2:])}, on simulated data: {made}"
    found = calibrated(judged, words, given.threshold)
    with whole_file(given.out) as file:
        file.write((json.dumps(asdict(found.verifier), indent=1) + "\n").encode())
    print(f"{words}; right poses taken: {int(found.right.sum())} of {overlapping}")
    print(f"calibration error {confidence_error(found.confidence, found.right):.3f}")
    strict = threshold_of(found.confidence[~found.overlaps])  # one answer in a hundred
    for at in dict.fromkeys((given.threshold, strict)):
        answered = found.confidence >= at
        shares = (answered[~found.overlaps], answered[found.right], ~found.right[answered])
        told = [f"{100 * float(share.double().mean()):.1f} %" for share in shares]
        print(f"at {at:.2f}: of two places {told[0]}, of right poses {told[1]}, wrong {told[2]}")


if __name__ == "__main__":
    main()
