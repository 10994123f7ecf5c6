import pytest

from pcnn.registration.fpfh import FPFH
from pcnn.registration.matching import match
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
