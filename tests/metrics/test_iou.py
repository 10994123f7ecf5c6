"""The figures equal an independent statement of the official evaluator, in its own label space.

There, id 0 is "unlabelled" and the classes are 1..19. The matrix is 20 x 20 with rows prediction
and columns truth. The column of id 0 is zeroed; the row of id 0 stays, as predictions of nothing
are missed points.
"""

import numpy as np
import pytest
import torch

from pcnn.metrics import (
    accuracy,
    best_constant,
    iou,
    mean_class_accuracy,
    miou_official,
    miou_present,
)
from pcnn.metrics.confusion import ConfusionMatrix

CLASSES = 19


def official(pred, truth):
    matrix = np.zeros((CLASSES + 1, CLASSES + 1), dtype=np.int64)
    for p, t in zip(pred, truth, strict=True):
        matrix[p, t] += 1
    matrix[:, 0] = 0
    tp = np.array([matrix[c, c] for c in range(CLASSES + 1)])
    fp = np.array([matrix[c, :].sum() - matrix[c, c] for c in range(CLASSES + 1)])
    fn = np.array([matrix[:, c].sum() - matrix[c, c] for c in range(CLASSES + 1)])
    classes = np.arange(1, CLASSES + 1)
    union = tp + fp + fn + 1e-15
    figures = tp[classes] / union[classes]
    right = tp.sum() / (tp[classes].sum() + fp[classes].sum() + 1e-15)
    return figures, figures.mean(), right


CASES = {
    "dense": {"classes": range(20), "skill": 0.7, "points": 5000},
    "absent classes": {"classes": [0, 1, 4, 9, 10], "skill": 0.6, "points": 3000},
    "unlabelled predictions": {"classes": range(20), "skill": 0.3, "points": 2000, "silent": 0.3},
    "all wrong": {"classes": range(1, 20), "skill": 0.0, "points": 500},
    "all right": {"classes": range(20), "skill": 1.0, "points": 500},
    "nothing labelled": {"classes": [0], "skill": 0.5, "points": 100},
    "one point": {"classes": [7], "skill": 1.0, "points": 1},
    "empty": {"classes": [7], "skill": 1.0, "points": 0},
}


def draw(seed, classes, skill, points, silent=0.0):
    rng = np.random.default_rng(seed)
    truth = rng.choice(np.array(list(classes)), points)
    pred = np.where(rng.random(points) < skill, truth, rng.integers(0, CLASSES + 1, points))
    return np.where(rng.random(points) < silent, 0, pred), truth


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_equals_the_official_evaluator(case):
    pred, truth = draw(0, **case)
    expected_iou, expected_mean, expected_accuracy = official(pred, truth)
    metric = ConfusionMatrix(CLASSES)
    # official id 0 is our 255, official 1..19 are our 0..18
    ours = [torch.from_numpy(np.where(x == 0, 255, x - 1)) for x in (pred, truth)]
    half = len(pred) // 2
    metric.update(ours[0][:half], ours[1][:half])
    metric.update(ours[0][half:], ours[1][half:])
    counts = metric.compute()
    np.testing.assert_allclose(iou(counts).numpy(), expected_iou, rtol=0, atol=1e-9)
    assert abs(float(miou_official(counts)) - expected_mean) < 1e-9
    assert abs(float(accuracy(counts)) - expected_accuracy) < 1e-9
    here = np.isin(np.arange(1, 20), truth)
    mean_here = expected_iou[here].mean() if here.any() else 0.0
    assert abs(float(miou_present(counts)) - mean_here) < 1e-9


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_best_constant_is_the_best_of_all_constants(case):
    _, truth = draw(5, **case)
    target = torch.from_numpy(np.where(truth == 0, 255, truth - 1))
    scores = []
    for constant in range(CLASSES):
        metric = ConfusionMatrix(CLASSES)
        metric.update(torch.full_like(target, constant), target)
        scores.append(float(miou_present(metric.compute())))
    # it depends on the truth alone, so any prediction's matrix gives it
    assert float(best_constant(metric.compute())) == pytest.approx(max(scores), abs=1e-12)


def test_mean_class_accuracy_leaves_absent_classes_out():
    # class 2 occurs in the predictions alone, class 3 nowhere; the last column is "no class"
    counts = torch.tensor([[6, 0, 2, 0, 0], [1, 2, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    assert float(mean_class_accuracy(counts)) == pytest.approx((6 / 8 + 2 / 4) / 2)
    assert float(mean_class_accuracy(torch.zeros(3, 4, dtype=torch.int64))) == 0
