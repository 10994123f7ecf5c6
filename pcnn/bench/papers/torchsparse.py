"""TorchSparse: its figures and tables."""

from __future__ import annotations

from pcnn.bench.engines import MOVEMENT
from pcnn.bench.papers.claims import Claim, Paper
from pcnn.bench.papers.readings import Best, Mean, Ratio, Share

_STEPS = list(MOVEMENT)


def _movement(part: str, printed: float) -> Ratio:
    ends = {"step": _STEPS[0]}, {"step": _STEPS[-1]}
    where = {"part": part}
    return Ratio(f"{part}, first / last step", *ends, printed, where, apart=("dtype",))


def _grouping(name: str, printed: float | None) -> Ratio:
    return Ratio(f"separate / {name}", {"grouping": "separate"}, {"grouping": name}, printed)


PAPER = Paper(
    "torchsparse",
    "TorchSparse: Efficient Point Cloud Inference Engine (MLSys 2022)",
    "GTX 1080 Ti, RTX 2080 Ti, RTX 3090",
    (
        Claim(
            part="Fig. 1, 2, 3, 5, 6, 8, 9, 10",
            claim="drawings of the method",
            absent="nothing is measured in them",
        ),
        Claim(
            part="Fig. 4",
            claim="data movement takes 40 to 50 % of a network, matrix products 20 to 50 %",
            figure="torchsparse_fig4",
            readings=(
                Share("MinkUNet42", {"engine": "torchsparse", "model": "minkunet"}),
                Share("SparseResNet21", {"engine": "torchsparse", "model": "sparse_resnet"}),
            ),
            why="The paper's shares are those before its optimisations, ours are of its method.",
        ),
        Claim(
            part="Fig. 7",
            claim="products of a layer in batches are up to 1.5 times as fast, in pairs 1.2 times",
            figure="torchsparse_fig7",
            readings=(
                Ratio("one by one / all in one call", {"batch": 1}, {"batch": 26}, 1.5),
                Ratio("one by one / in pairs", {"batch": 1}, {"batch": 2}, 1.2),
            ),
            why="A larger device is filled less by one product, so that batches gain more.",
        ),
        Claim(
            part="Fig. 11, 14",
            claim="1.5 to 1.6 times as fast as MinkowskiEngine and SpConv 1.2, 1.7 times as fast "
            "as its own float32 baseline; MinkUNet at full width runs 36 times a second on an "
            "RTX 3090",
            figure="torchsparse_fig11",
            readings=(
                Ratio(
                    "baseline / torchsparse",
                    {"engine": "baseline"},
                    {"engine": "torchsparse"},
                    1.7,
                ),
                Ratio("torchsparse / auto", {"engine": "torchsparse"}, {"engine": "auto"}),
                Mean(
                    "MinkUNet42 by torchsparse, a call",
                    "wall_ms",
                    {"engine": "torchsparse", "model": "minkunet"},
                    "ms",
                    1,
                ),
            ),
            why="Our baseline moves one channel a thread, which this device punishes more "
            "(Table 3). Backbones alone are timed: the detectors, CenterPoint on nuScenes and "
            "Waymo, are absent with their heads, and aggregated scans are moved copies of one.",
        ),
        Claim(
            part="Fig. 12",
            claim="maps of different slots differ in size by an order of magnitude",
            figure="torchsparse_fig12",
            readings=(
                Mean("triplets of a slot, K = 3", "pairs", {"k": 3}),
                Mean("K = 2, stride 2", "pairs", {"k": 2}),
            ),
            why="The largest is the centre, which holds every voxel; slots along the rings of a "
            "lidar hold several times those across them.",
        ),
        Claim(
            part="Fig. 13",
            claim="grid, fused kernels, simpler control and symmetry make mapping 4.6 times as "
            "fast",
            figure="torchsparse_fig13",
            readings=(
                Ratio(
                    "first / last step, K = 3, stride 2",
                    {"step": "baseline"},
                    {"step": "+ symmetry"},
                    4.6,
                    {"k": 3, "stride": 2},
                    ("search",),
                    "part",
                ),
                Ratio(
                    "submanifold",
                    {"step": "baseline"},
                    {"step": "+ symmetry"},
                    None,
                    {"stride": 1},
                    ("search",),
                    "part",
                ),
            ),
            why="Our baseline already looks up all slots of a voxel in one kernel, and on scans "
            "the grid is too large for memory, so that its step is left out there.",
        ),
        Claim(
            part="Table 1a",
            claim="a grouping searched on another data set costs up to 13.5 %",
            figure="torchsparse_table1",
            readings=(Best("quickest", "searched_on grouping"),),
            why="A place prefers the grouping that was searched on it wherever maps differ enough "
            "in size.",
        ),
        Claim(
            part="Table 1b",
            claim="a grouping searched for another width of MinkUNet costs up to 13.8 %",
            figure="torchsparse_table1_models",
            readings=(Best("quickest", "searched_for grouping"),),
            why="Sizes of maps do not depend on the width, so only the rate of products can tell.",
        ),
        Claim(
            part="Table 1c",
            claim="a grouping searched on another GPU costs up to 6.7 %",
            absent="it needs two kinds of GPU",
        ),
        Claim(
            part="Table 2",
            claim="adaptive grouping makes products 1.39 and 1.54 times as fast, symmetric 1.02 "
            "and 1.39, fixed 0.87 and 1.50 times",
            figure="torchsparse_table2",
            readings=(
                _grouping("adaptive", 1.46),
                _grouping("symmetric", None),
                _grouping("fixed", None),
            ),
            why="A device with more multiprocessors is filled less by the product of one slot, so "
            "that every grouping gains more.",
        ),
        Claim(
            part="Table 3",
            claim="half precision, vectors, fusion and locality make gather 2.86 and scatter 2.61 "
            "times as fast",
            figure="torchsparse_table3",
            readings=(_movement("gather", 2.86), _movement("scatter", 2.61)),
            why="Vectors gain most: one channel a thread is bound by instructions on this device, "
            "so that half precision alone gains nothing and 16 bytes a thread much.",
        ),
    ),
)
