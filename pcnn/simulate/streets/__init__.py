"""Simulated streets: settings, layout, ground, materials, site, furnish, traffic, drive, lidar.

Blocks of a `street` are built straight, one by one, then bent along the road that a vehicle drives;
`kitti` writes the scans of its LiDAR.
"""
