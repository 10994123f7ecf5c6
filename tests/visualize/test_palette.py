import numpy as np

from pcnn.visualize import SEMANTIC_KITTI, colourise, palette
from pcnn.visualize.palette import UNLABELLED


def test_semantic_kitti_names_get_their_colours():
    names = list(SEMANTIC_KITTI)
    assert len(names) == 19
    assert len(set(SEMANTIC_KITTI.values())) == 19
    colours = palette(names)
    assert colours[names.index("road")].tolist() == [255, 0, 255]
    assert palette(["road", "car"]).tolist() == [[255, 0, 255], [100, 150, 245]]


def test_colourise_greys_everything_outside():
    colours = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
    got = colourise(np.array([0, 1, 255, -1, 2], np.int16), colours)
    assert got.tolist() == [[1, 2, 3], [4, 5, 6], *[list(UNLABELLED)] * 3]
    assert colourise(np.zeros(0, np.uint8), colours).shape == (0, 3)
