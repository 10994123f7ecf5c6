"""Evaluation protocols by name: thresholds, which pairs count, and over what errors are averaged.

Published figures of one method differ by several points with nothing but these settings, so a
number is only as good as the name of its protocol. Every protocol says where it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pcnn.registration.settings import Matching, RansacSettings, Sampling

#: Numbers of samples at which tables quote RR, FMR and IR.
SAMPLES = (5000, 2500, 1000, 500, 250)


@dataclass(frozen=True)
class Success:
    """When a pair counts as registered: every given threshold holds."""

    rre: float | None = None  # largest rotation error [deg]
    rte: float | None = None  # largest translation error [m]
    rmse: float | None = None  # largest RMSE of the true correspondences [m]
    inclusive: bool = False  # whether the threshold itself passes

    def __post_init__(self) -> None:
        if not self.thresholds:
            raise ValueError("a rule of success needs a threshold: rre, rte or rmse")

    @property
    def thresholds(self) -> dict[str, float]:
        """Those that are given, by name of the error."""
        given = {"rre": self.rre, "rte": self.rte, "rmse": self.rmse}
        return {name: limit for name, limit in given.items() if limit is not None}

    def __str__(self) -> str:
        """The rule as a table's heading has it."""
        sign = "<=" if self.inclusive else "<"
        return " and ".join(
            f"{name.upper()} {sign} {limit:g} {'deg' if name == 'rre' else 'm'}"
            for name, limit in self.thresholds.items()
        )


@dataclass(frozen=True)
class Protocol:
    """Everything that a figure depends on besides descriptors and pairs."""

    name: str  # one of NAMES, or validation
    benchmark: str  # threedmatch or kitti, whose thresholds these are
    success: Success  # when a pair is registered
    inlier_distance: float  # a match is right below this residual under the truth [m]
    ransac: RansacSettings  # the solver
    inlier_share: float = 0.05  # share of right matches above which a pair counts for FMR
    share_inclusive: bool = False  # whether the share itself counts
    skip_consecutive: bool = False  # pairs (i, i + 1) do not count for RR, RRE and RTE
    average: Literal["scenes", "pairs"] = "pairs"  # scenes, a mean of scene means, or pairs
    errors_over: Literal["accepted", "each", "all"] = "accepted"
    matching: Matching = "one_way"  # how putative matches are made
    sampling: Sampling = "random_points"  # how a number of samples is drawn
    source: str = ""  # where the settings were read


_PREDATOR = Protocol(
    name="predator",
    benchmark="threedmatch",
    success=Success(rmse=0.2, inclusive=True),
    inlier_distance=0.1,
    skip_consecutive=True,
    average="scenes",
    ransac=RansacSettings(distance=0.05, points=3),
    source="OverlapPredator, lib/benchmark.py, lib/benchmark_utils.py, "
    "scripts/evaluate_predator.py, which samples points by predicted overlap",
)
_FCGF_KITTI = Protocol(
    name="fcgf",
    benchmark="kitti",
    success=Success(rre=5.0, rte=2.0),
    inlier_distance=0.3,
    errors_over="each",
    ransac=RansacSettings(distance=0.3, points=4),
    source="FCGF, scripts/test_kitti.py: one voxel of 0.3 m, there 4,000,000 hypotheses; matches "
    "as in lib/trainer.py and scripts/train_fcgf_kitti.sh",
)
_PROTOCOLS: tuple[Protocol, ...] = (
    replace(
        _PREDATOR,
        name="fcgf",
        success=Success(rmse=0.2),
        share_inclusive=True,
        ransac=RansacSettings(distance=0.0375, points=4),
        source="FCGF, scripts/benchmark_3dmatch.py, benchmark_util.py: 1.5 voxels of 0.025 m, "
        "there 4,000,000 hypotheses; RR by the 3DMatch benchmark's RMSE",
    ),
    _PREDATOR,
    replace(
        _PREDATOR,
        name="geotransformer",
        success=Success(rmse=0.2),
        share_inclusive=True,
        ransac=RansacSettings(distance=0.05, points=3, edge_length=0.0),
        source="GeoTransformer, experiments/geotransformer.3dmatch*/config.py, eval.py; 50,000 "
        "hypotheses as in its paper, where config.py has 1,000",
    ),
    replace(
        _PREDATOR,
        name="pointcnnpp",
        inlier_distance=0.3,
        skip_consecutive=False,
        matching="mutual",
        sampling="random_matches",
        ransac=RansacSettings(distance=0.0375, points=3, edge_length=0.0, confidence=0.999),
        source="PointCNN++'s official code, scripts/eval_table2.py at the settings of its "
        "reproduction: 1.5 voxels of 0.025 m; there RMSE is over all points of the source",
    ),
    replace(
        _PREDATOR,
        name="strict",
        success=Success(rre=5.0, rte=0.1),
        share_inclusive=True,
        skip_consecutive=False,
        errors_over="all",
        source="own: no published counterpart; every pair counts, both errors are bounded",
    ),
    _FCGF_KITTI,
    replace(
        _FCGF_KITTI,
        name="predator",
        source="OverlapPredator, lib/tester.py; it counts no right matches: as FCGF does",
    ),
    replace(
        _FCGF_KITTI,
        name="geotransformer",
        inlier_distance=1.0,
        share_inclusive=True,
        errors_over="accepted",
        ransac=RansacSettings(distance=0.3, points=4, edge_length=0.0),
        source="GeoTransformer, experiments/geotransformer.kitti*/config.py, eval.py",
    ),
    replace(
        _FCGF_KITTI,
        name="pointcnnpp",
        success=Success(rre=1.0, rmse=0.2),
        errors_over="accepted",
        sampling="random_matches",
        ransac=RansacSettings(distance=0.45, points=4, confidence=0.999),
        source="PointCNN++, supplement: RRE < 1 deg and RMSE < 0.2 m, errors as accepted; RANSAC "
        "as in its official code, test.py: 1.5 voxels of 0.3 m",
    ),
    replace(
        _FCGF_KITTI,
        name="strict",
        success=Success(rre=1.0, rte=0.1),
        share_inclusive=True,
        errors_over="all",
        source="UMERegRobust, strict: 1 deg and 0.1 m, errors over all pairs",
    ),
)

NAMES = ("fcgf", "predator", "geotransformer", "pointcnnpp", "strict")


def protocol(name: str, benchmark: str) -> Protocol:
    """The protocol of that name for a benchmark."""
    for one in _PROTOCOLS:
        if (one.name, one.benchmark) == (name, benchmark):
            return one
    raise ValueError(
        f"no protocol {name!r} for {benchmark!r}; possible: {', '.join(NAMES)} "
        "for threedmatch or kitti"
    )


def validation_protocol(
    benchmark: str,
    hit_distance: float | None = None,  # [m]
    success_rre: float | None = None,  # [deg]
    success_rte: float | None = None,  # [m]
    ransac_distance: float | None = None,  # [m]
    hypotheses: int = 1000,
    inlier_share: float = 0.05,
) -> Protocol:
    """Cheap rules for every validation.

    Where an argument is None, matches are right within 0.1 m (``kitti`` 0.3 m), success is 15 deg
    and 0.3 m as in DGR (5 deg and 2 m as in FCGF), and RANSAC's distance 0.05 m (0.3 m).
    """
    usual = {"threedmatch": (0.1, 15.0, 0.3, 0.05), "kitti": (0.3, 5.0, 2.0, 0.3)}
    if benchmark not in usual:
        raise ValueError(f"benchmark must be one of {', '.join(usual)}, got {benchmark!r}")
    given = (hit_distance, success_rre, success_rte, ransac_distance)
    hit, rre, rte, distance = (
        own if value is None else value for value, own in zip(given, usual[benchmark], strict=True)
    )
    return Protocol(
        name="validation",
        benchmark=benchmark,
        success=Success(rre=rre, rte=rte),
        inlier_distance=hit,
        ransac=RansacSettings(distance, hypotheses=hypotheses),
        inlier_share=inlier_share,
        source="own: thresholds of DGR and FCGF, 1000 hypotheses",
    )
