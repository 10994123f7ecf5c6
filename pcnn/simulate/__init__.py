"""Simulated data sets in official formats, made by ray casting (Embree) anywhere.

`streets`: a vehicle with a spinning LiDAR of 64 beams drives through procedural streets; files as
SemanticKITTI and KITTI odometry have them. `rooms`: furnished rooms as fragments of a depth camera
(3DMatch) and as labelled, coloured clouds (S3DIS). `simulator` writes a set by many processes, goes
on where one was interrupted, and gives it its name when it is whole; a `SIMULATED.json` marks it.
The simulators `KITTI`, `THREEDMATCH` and `S3DIS` are in the modules of their files.
"""
