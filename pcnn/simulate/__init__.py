"""Simulated data sets in official formats, made by ray casting (Embree) anywhere.

* `simulator`: writes a set by many processes, goes on where one was interrupted, and gives it its
  name when it is whole; a `SIMULATED.json` marks it. `KITTI`, `S3DIS` and `THREEDMATCH` are
  simulators, in the modules of their files.
* `mesh` and `shapes`: triangles and rays; `catalogue`: objects that YAML describes.
* `streets`: a vehicle with a spinning LiDAR drives through procedural streets (SemanticKITTI).
* `rooms`: furnished rooms as fragments of a depth camera (3DMatch), or as labelled clouds (S3DIS).
"""
