"""Minuet: its figures."""

from __future__ import annotations

from pcnn.bench.engines import MINUET_STEPS
from pcnn.bench.papers.claims import Claim, Paper
from pcnn.bench.papers.readings import AHEAD, Best, Mean, Ratio

_AHEAD = {"engine": "torchsparse"}, {"engine": "minuet"}
_STEPS = [str(name) for name, *_ in MINUET_STEPS]


def _step(number: int) -> Ratio:
    before, after = _STEPS[number - 1], _STEPS[number]
    return Ratio(f"before / {after}", {"step": before}, {"step": after})


PAPER = Paper(
    "minuet",
    "Minuet: Accelerating 3D Sparse Convolutions on GPUs (EuroSys 2024)",
    "RTX 2070 Super, RTX 2080 Ti, RTX 3090, A100; all in float32",
    (
        Claim(
            part="Fig. 1, 2, 6 to 11",
            claim="drawings of the method",
            absent="nothing is measured in them",
        ),
        Claim(
            part="Fig. 3",
            claim="look-ups in hash tables hit the L2 cache in 19 to 41 % of cases, Minuet's "
            "search in 93 % and more",
            figure="minuet_fig16",
            readings=tuple(
                Mean(name, "l2_hit_percent", {"engine": engine}, "%")
                for name, engine in (
                    ("hash table", "hash_table"),
                    ("double-traversed", "double_traversed"),
                )
            ),
            why="A scan's table lies whole in this device's cache of 60 MB, ten times that of an "
            "RTX 3090; the tables of MinkowskiEngine and Open3D are not here.",
        ),
        Claim(
            part="Fig. 4",
            claim="the best tile of gather and scatter depends on layer, data and GPU",
            figure="minuet_fig4",
            readings=(
                Best("gather", "tile", {"part": "gather"}),
                Best("scatter", "tile", {"part": "scatter"}),
            ),
            why="Wide tiles read the indices fewer times; rows of few channels are one tile.",
        ),
        Claim(
            part="Fig. 5",
            claim="sorted slots need less padding: 8.2 % in 7.8 products, in place of 11 % in 11.1",
            figure="minuet_fig5",
            readings=(
                Ratio(
                    "products, adaptive / sorted",
                    {"grouping": "adaptive"},
                    {"grouping": "sorted"},
                    None,
                    {"part": "products"},
                ),
                Ratio(
                    "all parts",
                    {"grouping": "adaptive"},
                    {"grouping": "sorted"},
                    None,
                    summed="part",
                ),
            ),
            why="The paper draws an example; ours are times of two layers.",
        ),
        Claim(
            part="Fig. 12",
            claim="1.74 times as fast as TorchSparse and as MinkowskiEngine, up to 2.22 times",
            figure="minuet_fig12",
            readings=(
                Ratio("torchsparse / minuet", *_AHEAD, 1.74),
                Ratio("minuet / auto", {"engine": "minuet"}, {"engine": "auto"}),
            ),
            why="Maps are a smaller part of a network here than on the paper's devices, and the "
            "stand-in for TorchSparse has its kernels from the same hands.",
        ),
        Claim(
            part="Fig. 13",
            claim="1.68 times as fast over the densities of a random scene, up to 1.90 times",
            figure="minuet_fig13",
            readings=(Ratio("torchsparse / minuet", *_AHEAD, 1.68),),
            why="Both move and multiply the same rows by the same kernels, which takes most of the "
            "time; a hash table that lies in the L2 cache leaves little to gain (Fig. 16).",
        ),
        Claim(
            part="Fig. 14",
            claim="all four ideas contribute, sorted queries most",
            figure="minuet_fig14",
            readings=(
                Ratio("baseline / all", {"step": _STEPS[0]}, {"step": _STEPS[-1]}),
                *(_step(number) for number in range(1, len(_STEPS))),
            ),
            why="Steps are cumulative; the paper prints bars without numbers. Tiles gain most "
            "here; searches take so small a part of a network that sorted queries cannot show.",
        ),
        Claim(
            part="Fig. 15",
            claim="map and layer: 1.67 times as fast as TorchSparse, up to 2.10 times",
            figure="minuet_fig15",
            readings=(Ratio("torchsparse / minuet", *_AHEAD, 1.67, apart=("variant",)),),
            why="Both wait for the host to group their slots, which takes most of these times; the "
            "hash table, in the L2 cache, leaves little to gain.",
        ),
        Claim(
            part="Fig. 16",
            claim="the search alone: 13 times as fast as TorchSparse's table, up to 24.6 times",
            figure="minuet_fig16",
            readings=(
                Ratio(
                    "hash table / double-traversed",
                    {"engine": "hash_table"},
                    {"engine": "double_traversed"},
                    13.0,
                ),
            ),
            why="Look-ups that hit the L2 cache are cheap, and the stand-in probes all slots of a "
            "voxel in one kernel; the paper's clouds have up to 5 million points.",
        ),
        Claim(
            part="Fig. 17",
            claim="sorting coordinates takes less time than filling a hash table",
            figure="minuet_fig17",
            readings=(
                Ratio(
                    "hash table / sort",
                    {"engine": "hash_table"},
                    {"engine": "pack_and_sort"},
                    AHEAD,
                    {},
                    ("product", "k", "stride"),
                ),
            ),
            why="Our table is filled by one kernel; a radix sort of 64-bit keys takes some "
            "thirty launches, however few the keys.",
        ),
        Claim(
            part="Fig. 18",
            claim="blocks of 256 source and 512 query keys are the best on all GPUs",
            figure="minuet_fig18",
            readings=(Best("quickest", "B C"),),
            why="Differences between large blocks are a few percent.",
        ),
        Claim(
            part="Fig. 19",
            claim="gather, products and scatter: 1.37 times as fast as TorchSparse, up to 1.59",
            figure="minuet_fig19",
            readings=(Ratio("torchsparse / minuet", *_AHEAD, 1.37, apart=("variant",)),),
            why="Both gather and scatter by the same kernels here; what differs is the order of "
            "slots, the tiles and the streams.",
        ),
        Claim(
            part="Fig. 20",
            claim="the best tile differs from layer to layer of MinkUNet42",
            figure="minuet_fig20",
            readings=(Mean("gather", "gather"), Mean("scatter", "scatter")),
            why="Tiles are channels of a program; layers have 32 to 256 channels.",
        ),
    ),
)
