"""Evidence of right and wrong poses, the model that weighs it, and how far it is from the truth."""

from dataclasses import replace

import pytest
import torch

from pcnn.experiment.descriptors import VERIFIED
from pcnn.registration.cloud_measures import voxel_means
from pcnn.registration.descriptor import Described
from pcnn.registration.evidence import NAMES, VERSION, PairEvidence
from pcnn.registration.register import NoOverlapError, default_settings
from pcnn.registration.transforms import inverse, transform_points
from pcnn.registration.verifier import shipped_verifier
from tests.registration.clouds import known, place, register_points
from tests.registration.poses import random_pose, shifted


def pair() -> tuple[Described, Described, torch.Tensor]:
    """A place seen twice, with its own coordinates for descriptors."""
    world = voxel_means(place(), 0.05)
    target, source = world[world[:, 0] < 3.2], world[world[:, 0] > 1.0]
    truth = random_pose(3)
    moved = transform_points(inverse(truth), source.double()).float()
    return Described(moved, source), Described(target, target), truth


def test_evidence_tells_a_right_pose_from_a_wrong_one() -> None:
    source, target, truth = pair()
    poses = torch.stack([truth, shifted(0.5, 0, 0) @ truth])
    ends = source.points[::40], transform_points(truth, source.points[::40].double()).float()
    looks = PairEvidence([source], [target], [ends], 0.075, 0.05)
    seen = looks([poses])[0]
    # poses together as each alone, and of what was computed once
    torch.testing.assert_close(
        torch.cat([looks([one[None]])[0] for one in poses]), seen, atol=1e-12, rtol=0
    )
    assert seen.shape == (2, len(NAMES))
    right, wrong = (dict(zip(NAMES, row.tolist(), strict=True)) for row in seen)
    support = torch.log1p(torch.tensor(float(len(ends[0]))))
    assert right["support"] == pytest.approx(float(support), abs=1e-5)
    assert (right["share"], wrong["support"]) == pytest.approx((0, 0), abs=1e-5)
    # matches along one plane hold a pose less
    flat = ends[0].clone()
    flat[:, 2] = 0
    ends_flat = flat, transform_points(truth, flat.double()).float()
    thin = PairEvidence([source], [target], [ends_flat], 0.075, 0.05)([poses[:1]])[0][0]
    assert float(thin[NAMES.index("spread")]) < right["spread"] - 1
    assert right["alike"] < 0.01 < wrong["alike"]
    assert right["gap"] < 0.01 < wrong["gap"]
    assert right["overlap"] > wrong["overlap"]
    assert right["rank"] < wrong["rank"] - 1
    assert right["plane"] < 0.01 < wrong["plane"]
    assert right["fits"] > wrong["fits"]
    unknown = PairEvidence([source], [target], [ends], 0.075, 0.05, False)([poses])[0]
    names = [NAMES.index(name) for name in ("through", "fits")]
    assert bool(unknown[:, names].isnan().all())
    assert shipped_verifier().best(seen) == 0
    assert shipped_verifier().confidence(seen[0]) > shipped_verifier().confidence(seen[1])


def test_points_that_the_other_sensor_saw_through_are_counted() -> None:
    grid = torch.cartesian_prod(torch.linspace(-1, 1, 40), torch.linspace(-1, 1, 40))
    wall = torch.cat([grid, torch.full((1600, 1), 3.0)], 1)
    both = Described(wall, wall)
    poses = torch.stack([shifted(0, 0, 0), shifted(0, 0, -1.0), shifted(0, 0, 1.0)])
    seen = PairEvidence([both], [both], [(wall[:9], wall[:9])], 0.075, 0.05)([poses])[0]
    through, fits = seen[:, NAMES.index("through")], seen[:, NAMES.index("fits")]
    # in front of the wall, of either of them, half of both clouds lie in free space
    torch.testing.assert_close(through, torch.tensor([0.0, 0.5, 0.5]).double(), atol=0.02, rtol=0)
    assert float(fits[0]) > 3
    assert float(fits[1:].max()) < -1  # behind the wall nothing can be seen: a half of one cloud


def test_a_pose_that_is_not_sure_enough_is_refused() -> None:
    source, target, _, descriptor = known()
    found = register_points(source, target, descriptor)
    assert 0.5 < found.confidence < 1
    with pytest.raises(NoOverlapError, match=r"1\.00 required"):
        register_points(source, target, descriptor, min_confidence=1.0)
    # another verifier: its confidence, and its threshold
    own = replace(shipped_verifier(), offset=shipped_verifier().offset - 1)
    settings = replace(default_settings(descriptor.voxel_size), verifier=own)
    less = register_points(source, target, descriptor, settings, min_confidence=0)
    assert less.confidence < found.confidence
    sure = replace(settings, verifier=replace(own, threshold=1.0))
    with pytest.raises(NoOverlapError, match=r"1\.00 required"):
        register_points(source, target, descriptor, sure)


@pytest.mark.parametrize("network", VERIFIED)
def test_shipped_verifiers_fit_the_evidence_of_today(network: str) -> None:
    one = shipped_verifier(network)
    assert one.evidence == VERSION
    assert set(one.names) <= set(NAMES)
    for numbers in (one.centre, one.spread, one.choice, one.certainty):
        assert len(numbers) == len(one.names)
    # a model reads its own columns
    row = torch.zeros(len(NAMES), dtype=torch.float64)
    sure = one.confidence(row)
    row[[NAMES.index(name) for name in NAMES if name not in one.names]] = 9
    assert one.confidence(row) == sure
    row[NAMES.index(one.names[0])] = 9
    assert one.confidence(row) != sure
