import numpy as np

from pcnn.visualize import SEMANTIC_KITTI, colourise, distinct_colours, palette
from pcnn.visualize.palette import UNLABELLED


def test_semantic_kitti_names_get_their_colours():
    names = list(SEMANTIC_KITTI)
    assert len(names) == 19
    assert len(set(SEMANTIC_KITTI.values())) == 19
    colours = palette(names)
    assert colours[names.index("road")].tolist() == [255, 0, 255]
    assert palette(["road", "car"]).tolist() == [[255, 0, 255], [100, 150, 245]]


def test_other_names_get_distinct_colours_that_do_not_depend_on_the_count():
    colours = palette(["road", "sofa"])
    assert np.array_equal(colours, distinct_colours(2))
    many = distinct_colours(24).astype(int)
    assert np.array_equal(many[:2], colours)
    apart = np.abs(many[:, None] - many[None]).sum(-1) + 999 * np.eye(24, dtype=int)
    assert apart.min() > 50
    assert np.linalg.norm(255 - many, axis=1).min() > 60  # seen on white
    assert distinct_colours(0).shape == (0, 3)


def test_colourise_greys_everything_outside():
    colours = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
    got = colourise(np.array([0, 1, 255, -1, 2], np.int16), colours)
    assert got.tolist() == [[1, 2, 3], [4, 5, 6], *[list(UNLABELLED)] * 3]
    assert colourise(np.zeros(0, np.uint8), colours).shape == (0, 3)
