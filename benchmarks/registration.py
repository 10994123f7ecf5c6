"""Registration of the same pairs by `pcnn.register` and by other packages, each if it is there.

    OMP_NUM_THREADS=1 python -m benchmarks.registration kitti open3d root=FOLDER sequences=[8]

Words name methods: modules of `METHODS`, or others with a `register(source, target, benchmark)`.
Keys are those of the data set, and `every=N` takes every Nth of the pairs that count. A pair is a
line; seconds are of the processor, from two clouds in memory to a transform.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

import pcnn
from benchmarks.rows import machine
from pcnn.datasets.registration import KITTISets, ThreeDMatchSets
from pcnn.metrics.registration import information_rmse, rotation_error, translation_error
from pcnn.registration.fpfh import FPFH
from pcnn.registration.open3d_tools import cloud_of, open3d
from pcnn.registration.register import NoOverlapError

#: The network that comes with the package, and the voxel of the others [m].
PLACES = {"threedmatch": ("reg_rooms", 0.05), "kitti": ("reg_streets", 0.3)}


def ours(source: Tensor, target: Tensor, benchmark: str) -> Any:
    """At any confidence: the others refuse nothing."""
    options: Any = {"min_confidence": 0.0, "allow_ambiguous": True, "device": "cpu"}
    return pcnn.register(source, target, PLACES[benchmark][0], **options).transform


def fpfh(source: Tensor, target: Tensor, benchmark: str) -> Any:
    """Mutual matches and Open3D's RANSAC; normals point to the sensor."""
    size, of = PLACES[benchmark][1], open3d().pipelines.registration
    described, features = FPFH(size, sensor_at_origin=True)([source, target]), []
    for one in described:
        features.append(of.Feature())
        features[-1].data = one.features.double().numpy().T
    clouds, near = [cloud_of(one.points) for one in described], 1.5 * size
    edges = of.CorrespondenceCheckerBasedOnEdgeLength(0.9)
    rules = [edges, of.CorrespondenceCheckerBasedOnDistance(near)]
    fit, end = of.TransformationEstimationPointToPoint(), of.RANSACConvergenceCriteria()
    solve = of.registration_ransac_based_on_feature_matching  # 100,000 hypotheses, 99.9 % sure
    return solve(*clouds, *features, True, near, fit, 3, rules, end).transformation


def kiss_matcher(source: Tensor, target: Tensor, benchmark: str) -> Any:
    matcher = import_module("kiss_matcher").KISSMatcher(PLACES[benchmark][1])
    found = matcher.estimate(source.numpy(), target.numpy())
    return np.vstack([np.column_stack([found.rotation, found.translation]), [0, 0, 0, 1]])


METHODS: dict[str, Any] = {"pcnn": ours, "open3d": fpfh, "kiss_matcher": kiss_matcher}


def main(benchmark: str, *words: str) -> None:
    given = [word.split("=", 1) for word in words if "=" in word]
    keys: dict[str, Any] = {"every": 1} | {key: yaml.safe_load(value) for key, value in given}
    sets: Any = KITTISets if benchmark == "kitti" else ThreeDMatchSets
    every, data = keys.pop("every"), sets(**keys).find("test")
    # of fragments those that follow each other do not count
    pairs = [one for one in data.pairs if benchmark == "kitti" or one.source != one.target + 1]
    print(json.dumps({"pairs": len(pairs), "every": every, **machine(torch.device("cpu"))}))
    for name in [word for word in words if "=" not in word] or METHODS:
        method = METHODS.get(name) or import_module(name).register if find_spec(name) else None
        for pair in pairs[::every] if method else ():
            clouds = [data.cloud(pair.scene, end) for end in (pair.source, pair.target)]
            row, begun = {"method": name, **pair.id._asdict()}, time.process_time()
            with suppress(NoOverlapError):
                found = torch.tensor(np.array(method(*clouds, benchmark)), dtype=torch.float64)
                row["rre"] = float(rotation_error(found, pair.transform))
                row["rte"] = float(translation_error(found, pair.transform))
                if pair.information is not None:
                    row["rmse"] = float(information_rmse(found, pair.transform, pair.information))
            print(json.dumps(row | {"seconds": time.process_time() - begun}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
