"""Interactive pages of clouds, which a browser shows without a network."""

from pcnn.visualize.view.cloud import ViewedCloud
from pcnn.visualize.view.page import POINTS, View

__all__ = ["POINTS", "View", "ViewedCloud"]
