from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pcnn.datasets.placement import OnPoints, OnVoxels, Placement
from pcnn.datasets.registration import RegistrationPair
from pcnn.datasets.registration.gt_files import scene_pairs
from pcnn.metrics.registration import protocol, summarize
from pcnn.models import ResUNetBN2C
from pcnn.registration import evaluation
from pcnn.registration.descriptor import Described, TurnedAtRandom, described_all
from pcnn.registration.evaluation import evaluate_pairs
from pcnn.registration.network_descriptor import NetworkDescriptor
from pcnn.registration.settings import EstimateSettings, RansacSettings
from pcnn.registration.transforms import transform_points
from tests.datasets.registration.scenes import fragments
from tests.registration.clouds import place


class Scenes:
    """Two scenes of the same fragments, their truth as made from poses."""

    name, ground_truth, source_kind = "scenes", "gt.log", "real"

    def __init__(self, benchmark: str = "threedmatch") -> None:
        self.benchmark = benchmark
        self.clouds, self.poses = fragments(3)
        made = scene_pairs(self.clouds, self.poses, overlaps=(0.2, 1.0))
        self.asked: list[tuple[str, int]] = []
        # fragment numbers doubled, or every pair would be a consecutive one
        self.pairs = [
            RegistrationPair(
                scene,
                2 * pair.target,
                2 * pair.source,
                pair.transform,
                pair.information if benchmark == "threedmatch" else None,
                index=pair.index,
            )
            for scene in ("a", "b")
            for pair in made
        ]

    def cloud(self, scene: str, index: int) -> Tensor:
        self.asked.append((scene, index))
        return self.clouds[index // 2].float()


class Places:
    """Descriptors that are the places themselves, with noise for the last cloud of a scene."""

    name, voxel_size = "places", 0.05

    def __init__(self, scenes: Scenes, noise: float = 0.0) -> None:
        self.scenes, self.noise = scenes, noise

    def __call__(self, clouds: Sequence[Tensor]) -> list[Described]:
        return [self.described(points) for points in clouds]

    def described(self, points: Tensor) -> Described:
        for number, cloud in self.scenes.clouds.items():
            if len(cloud) == len(points) and torch.equal(cloud.float(), points):
                world = transform_points(self.scenes.poses[number], cloud).float()
                if number == 2:
                    world = world + self.noise * torch.randn(world.shape)
                return Described(points, world)
        raise ValueError("an unknown cloud")


SETTINGS = EstimateSettings(RansacSettings(0.05, hypotheses=3000))


def test_right_descriptors_register_everything_and_each_cloud_is_described_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation, "BATCH", 1)
    monkeypatch.setattr(evaluation, "CLOUDS", 2)
    scenes = Scenes()
    rules = protocol("predator", "threedmatch")
    done = evaluate_pairs(scenes, Places(scenes), rules, SETTINGS, [1500, 900])
    assert list(done) == [1500, 900]
    for number, results in done.items():
        summary = summarize(results, rules)
        assert (summary.rr, summary.counted) == (1, 4)
        assert summary.rre < 5  # the nearest of a few hundred samples is not the same point
        assert all(result.matches == number for result in results)
        assert all(0 < result.inliers <= number for result in results)
    assert sorted(scenes.asked) == [(s, i) for s in "ab" for i in (0, 2, 4)]


def test_without_gt_info_rmse_is_that_of_shared_points() -> None:
    scenes = Scenes("kitti")
    rules = protocol("pointcnnpp", "kitti")  # RRE < 1 deg and RMSE < 0.2 m
    settings = EstimateSettings(RansacSettings(0.01, hypotheses=3000), sampling="random_matches")
    done = evaluate_pairs(scenes, Places(scenes), rules, settings, [None])
    assert all(0 < result.rmse < 0.05 for result in done[None])
    assert summarize(done[None], rules).rr == 1
    plain = protocol("fcgf", "kitti")
    unjudged = evaluate_pairs(scenes, Places(scenes), plain, settings, [200])
    assert all(torch.tensor(result.rmse).isnan() for result in unjudged[200])


@pytest.mark.parametrize("placement", [OnVoxels(), OnPoints(thin=0.05)])
def test_clouds_together_are_described_as_each_alone(placement: Placement) -> None:
    torch.manual_seed(0)
    net = ResUNetBN2C(out_channels=16, width=0.25).eval()
    descriptor = NetworkDescriptor(net, 0.1, "net", placement)
    clouds = [place(seed)[:: 9 + seed] for seed in range(3)]
    turned = TurnedAtRandom(replace(descriptor, factor=1.5))
    for one in (descriptor, turned):
        together = described_all(one, clouds, ["a", "b", "c"])
        for found, points in zip(together, clouds, strict=True):
            (alone,) = one([points])
            torch.testing.assert_close(found.points, alone.points)
            torch.testing.assert_close(found.features, alone.features, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match=r"^b: "):
        described_all(turned, [clouds[0], clouds[0][:0], clouds[1]], ["a", "b", "c"])
