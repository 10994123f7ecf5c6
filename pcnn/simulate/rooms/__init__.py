"""Simulated furnished rooms: room, paint, site, shell and furnish build one.

A hand-held `depth_camera` takes a `walk` through it (`threedmatch`), or a `scanner` on a tripod
sees it in colour from several places (`s3dis`).
"""
