from pathlib import Path

import pytest
import torch

from pcnn.datasets.registration import ThreeDMatchSets
from pcnn.metrics.registration import protocol, summarize
from pcnn.registration.evaluation import evaluate_pairs
from pcnn.registration.fpfh import FPFH
from pcnn.registration.matching import match
from pcnn.registration.settings import EstimateSettings
from pcnn.registration.transforms import transform_points
from tests.registration.clouds import place
from tests.registration.poses import random_pose

pytest.importorskip("open3d")


def test_histograms_do_not_change_with_the_pose() -> None:
    world = place()
    descriptor = FPFH(0.1, sensor_at_origin=False)
    (one,) = descriptor([world])
    assert one.features.shape == (len(one.points), 33)
    pose = random_pose(3)
    (other,) = descriptor([transform_points(pose, world.double()).float()])
    ((rows, partners),) = match([one.features], [other.features], "mutual")
    gap = transform_points(pose, one.points[rows].double()) - other.points[partners]
    assert float((gap.norm(dim=1) < 0.15).double().mean()) > 0.1  # chance: below 0.01


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair_list", "fmr", "rr"), [("3DMatch", 0.59, 0.54), ("3DLoMatch", 0.18, 0.21)]
)
def test_known_figures_of_hotel3(data_root: Path, pair_list: str, fmr: float, rr: float) -> None:
    scenes = ["sun3d-hotel_umd-maryland_hotel3"]
    sets = ThreeDMatchSets(root=str(data_root / "threedmatch"), pair_list=pair_list, scenes=scenes)
    data = sets.find("test")
    rules = protocol("predator", "threedmatch")
    figures = []
    for seed in range(5):
        settings = EstimateSettings(rules.ransac, refine=False, seed=seed)
        done = evaluate_pairs(data, FPFH(0.05), rules, settings, [5000])
        summary = summarize(done[5000], rules)
        figures.append([summary.fmr, summary.rr])
    mean = torch.tensor(figures).mean(0).tolist()
    assert mean[0] == pytest.approx(fmr, abs=0.08)
    assert mean[1] == pytest.approx(rr, abs=0.08)
