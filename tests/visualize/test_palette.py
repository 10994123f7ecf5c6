import numpy as np

from pcnn.visualize import colourise
from pcnn.visualize.palette import UNLABELLED


def test_colourise_greys_everything_outside():
    colours = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
    got = colourise(np.array([0, 1, 255, -1, 2], np.int16), colours)
    assert got.tolist() == [[1, 2, 3], [4, 5, 6], *[list(UNLABELLED)] * 3]
    assert colourise(np.zeros(0, np.uint8), colours).shape == (0, 3)
