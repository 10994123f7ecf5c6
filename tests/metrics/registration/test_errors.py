import math

import pytest
import torch

from pcnn.metrics.registration import (
    information_rmse,
    inlier_ratio,
    point_rmse,
    rotation_error,
    translation_error,
)
from pcnn.registration.transforms import transform_points
from tests.registration.poses import random_pose, shifted, turned


def test_errors_of_a_known_deviation() -> None:
    truth = random_pose(0)
    estimate = truth @ shifted(0.3, 0.4, 0) @ turned((0, 1, 0), 7)
    assert float(rotation_error(estimate, truth)) == pytest.approx(7)
    assert float(translation_error(estimate, truth)) == pytest.approx(0.5)


def test_rmse_of_hand_made_information() -> None:
    # 100 correspondences; a shift of (1, 2, 2) dm costs its length, a quarter turn about z costs
    # sin(45 deg)^2 of entry (5, 5); off-diagonal entries couple the two
    information = torch.diag(torch.tensor([100.0, 100, 100, 50, 60, 400], dtype=torch.float64))
    truth = random_pose(2)
    shift = truth @ shifted(0.1, 0.2, 0.2)
    assert float(information_rmse(shift, truth, information)) == pytest.approx(0.3)
    turn = truth @ turned((0, 0, 1), 90)
    assert float(information_rmse(turn, truth, information)) == pytest.approx(math.sqrt(0.5 * 4))
    information[0, 5] = information[5, 0] = 30.0
    both = truth @ shifted(0.1, 0, 0) @ turned((0, 0, 1), 90)
    expected = 0.01 + 4 * 0.5 + 2 * 0.3 * 0.1 * math.sqrt(0.5)
    assert float(information_rmse(both, truth, information)) == pytest.approx(math.sqrt(expected))


def test_what_cannot_be_judged_is_nan() -> None:
    truth = torch.stack([random_pose(3)] * 3)
    estimate = truth.clone()
    estimate[1] = torch.nan
    information = 5.0 * torch.eye(6, dtype=torch.float64).repeat(3, 1, 1)
    information[2] = 0
    rmse = information_rmse(estimate, truth, information)
    assert rmse.isnan().tolist() == [False, True, True]
    assert rotation_error(estimate, truth).isnan().tolist() == [False, True, False]


def test_point_rmse_is_the_displacement() -> None:
    truth, points = random_pose(4), torch.randn(50, 3, dtype=torch.float64)
    estimate = turned((1, 2, 3), 4) @ truth
    moved = transform_points(estimate, points) - transform_points(truth, points)
    expected = math.sqrt(sum(float(row @ row) for row in moved) / 50)
    assert float(point_rmse(estimate, truth, points)) == pytest.approx(expected)


def test_inlier_ratio_counts_under_the_truth() -> None:
    truth, source = random_pose(5), torch.randn(8, 3)
    target = transform_points(truth, source.double())
    target[:3, 2] += 0.11
    target[3, 0] += 0.09
    assert inlier_ratio(source, target, truth, 0.1) == pytest.approx(5 / 8)
    assert inlier_ratio(source[:0], target[:0], truth, 0.1) == 0
