"""Simulated streets in the formats of SemanticKITTI and KITTI odometry.

A vehicle with a spinning 64-beam LiDAR drives through procedural streets: road with markings and
islands, kerbs, sidewalks, parking bays, gravel forecourts and gently rolling terrain; houses with
recessed windows, fences, hedges, bushes and trees of loose leaves; lamps and signs; parked and
moving cars, lorries, buses, caravans, bicycles, motorcycles, riders and people. Rays are cast with
Embree; ranges get noise, returns get lost. The files carry the official raw ids with instance
numbers, and a `SIMULATED.json` says what they are.
"""

from pcnn.datasets.simulate.marker import MARKER, VERSION, is_simulated
from pcnn.datasets.simulate.streets.generate import simulate_kitti

__all__ = ["MARKER", "VERSION", "is_simulated", "simulate_kitti"]
