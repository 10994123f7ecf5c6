"""Results as pictures and files that viewers open."""

from pcnn.visualize.palette import colourise, distinct_colours
from pcnn.visualize.ply import write_coloured_ply, write_coloured_ply_parts

__all__ = [
    "colourise",
    "distinct_colours",
    "write_coloured_ply",
    "write_coloured_ply_parts",
]
