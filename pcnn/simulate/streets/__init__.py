"""Simulated streets in the formats of SemanticKITTI and KITTI odometry.

A vehicle drives through procedural streets. There are roads with markings and islands, kerbs,
sidewalks, parking bays, side streets and traffic lights, gravel forecourts, land that slopes and
rolls. Beside them stand houses with recessed windows, fences, hedges, bushes, trees whose leaves
rays pass in part, lamps and signs. Cars, lorries, buses, caravans, bicycles, motorcycles, riders
and people park and move. Its 64-beam LiDAR sweeps while everything moves. The files carry the
official raw ids with instance numbers; the settings of every sequence and district are recorded.
"""
