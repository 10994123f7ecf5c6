"""Results as pictures and files that viewers open."""

from pcnn.visualize.palette import SEMANTIC_KITTI, colourise, distinct_colours, palette
from pcnn.visualize.ply import write_coloured_ply, write_coloured_ply_parts

__all__ = [
    "SEMANTIC_KITTI",
    "colourise",
    "distinct_colours",
    "palette",
    "write_coloured_ply",
    "write_coloured_ply_parts",
]
