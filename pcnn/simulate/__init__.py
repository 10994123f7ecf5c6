"""Simulated data sets in official formats, made by ray casting (trimesh's Embree) anywhere.

`streets`: a vehicle with a spinning LiDAR of 64 beams drives through procedural streets; files as
SemanticKITTI and KITTI odometry have them. `driver` writes a set by many processes, goes on where
one was interrupted, and gives it its name when it is whole; a `SIMULATED.json` says what it is.
"""

from pcnn.simulate.marker import MARKER, VERSION, is_simulated
from pcnn.simulate.streets.generate import simulate_kitti

__all__ = ["MARKER", "VERSION", "is_simulated", "simulate_kitti"]
