import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.image import imread

from pcnn.visualize import distinct_colours
from pcnn.visualize.page import from_above
from pcnn.visualize.segmentation import segmentation_picture

NAMES = ["road", "car", "building"]


def scene(count=3000, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.uniform([-20, -20, -1.7], [20, 20, 2], (count, 3))
    truth = rng.integers(0, 3, count)
    truth[: count // 10] = 255
    pred = np.where(rng.random(count) < 0.8, truth % 3, 1)
    return points, truth, pred


def colours_of(path, rows=slice(None), columns=slice(None)):
    image = (imread(path)[rows, columns, :3] * 255).round().astype(np.int64)
    codes = np.unique(image @ [1 << 16, 1 << 8, 1])  # rows are slow to sort
    return {(c >> 16, c >> 8 & 255, c & 255) for c in codes.tolist()}


def test_picture_shows_classes_errors_and_source(tmp_path):
    points, truth, pred = scene()
    path = tmp_path / "run" / "predictions.png"
    returned = segmentation_picture(
        points, truth, pred, NAMES, None, path, "scan 7", source="simulated"
    )
    assert returned == path
    assert [p.name for p in path.parent.iterdir()] == ["predictions.png"]
    image = imread(path)
    assert image.shape[1] > 1500
    assert image[0, 0].tolist() == [1, 1, 1, 1]  # dark on light
    colours = colours_of(path)
    for expected in (*map(tuple, distinct_colours(3).tolist()), (214, 39, 40)):
        assert expected in colours, expected
    assert (0xC2, 0x41, 0x0C) in colours  # the sign that says simulated
    segmentation_picture(points, truth, pred, NAMES, None, path, "scan 7", source="real")
    assert (0xC2, 0x41, 0x0C) not in colours_of(path)


def test_tiny_clouds_and_no_global_matplotlib_state(tmp_path):
    before = plt.get_fignums()
    for count in (0, 1):
        points, truth, pred = scene(count)
        path = segmentation_picture(points, truth, pred, NAMES, None, tmp_path / "p.png")
        assert path.stat().st_size > 1000
    assert plt.get_fignums() == before


@pytest.mark.parametrize("known", [True, False])
def test_a_ceiling_does_not_hide_its_room(tmp_path, known):
    room, _, _ = scene()
    room[:, 2] = 0
    points = np.concatenate([room, room + np.array([0, 0, 3])])
    labels = np.repeat([0, 1], len(room))  # below, above
    truth = labels if known else None
    below, above = (10, 20, 30), (40, 50, 60)
    for name, seen in (("ceiling", below), ("roof", above)):
        given = ["floor", name], [below, above]
        path = segmentation_picture(points, truth, labels, *given, tmp_path / "p.png")
        colours = colours_of(path, slice(150, 650), slice(50, 550))
        assert seen in colours, name
        assert (above in colours) == (seen == above), name


def test_above_puts_ahead_right_left_up_and_the_highest_on_top():
    points = np.array([[5.0, 0, 0], [0, 5, 0], [5, 0, 3], [99, 0, 0]])
    rgb = np.array([[1, 1, 1], [2, 2, 2], [3, 3, 3], [4, 4, 4]], np.uint8)
    image = from_above(points, rgb, 10.0, 20)
    assert image[10, 15].tolist() == [3, 3, 3]  # the higher of two
    assert image[5, 10].tolist() == [2, 2, 2]
    assert (image != 255).any(-1).sum() == 2
