"""Simulated streets in the formats of SemanticKITTI and KITTI odometry.

A vehicle drives through procedural streets: road with markings and islands, kerbs, sidewalks,
parking bays, side streets and traffic lights, gravel forecourts, land that slopes and rolls; houses
with recessed windows, fences, hedges, bushes and trees whose leaves rays pass in part; lamps and
signs; parked and moving cars, lorries, buses, caravans, bicycles, motorcycles, riders and people.
Its 64-beam LiDAR sweeps while everything moves. The files carry the official raw ids with instance
numbers; the settings of every sequence and district are recorded.
"""
