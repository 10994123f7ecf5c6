"""Spira: its figures and tables."""

from __future__ import annotations

from pcnn.bench.engines import SPIRA_STEPS
from pcnn.bench.papers.claims import Claim, Paper
from pcnn.bench.papers.readings import Best, Counts, Mean, Ratio, Share

_STEPS = [str(name) for name, *_ in SPIRA_STEPS]


def _over(engine: str, printed: float | None = None, **other: str) -> Ratio:
    fast = {"engine": "spira"}
    return Ratio(f"{engine} / spira", {"engine": engine}, fast, printed, dict(other), ("variant",))


def _builder(name: str, engine: str, printed: float) -> Ratio:
    where = {"product": "table"}
    return Ratio(f"{name} / z-delta", {"engine": engine}, {"engine": "z_delta"}, printed, where)


def _step(number: int, printed: float | None) -> Ratio:
    before, after = _STEPS[number - 1], _STEPS[number]
    return Ratio(f"before / {after}", {"step": before}, {"step": after}, printed)


def _table(number: int, model: str, title: str) -> Claim:
    printed = {
        1: "on KITTI 16 of 21 layers are output-stationary and 5 weight-stationary; indoors 4 "
        "hybrid and none weight-stationary",
        2: "9 of 20 layers take t = 3; indoors 6 are output-stationary, on KITTI 2",
        3: "28 of 42 layers are weight-stationary on KITTI, 22 indoors; none is hybrid",
    }
    return Claim(
        part=f"Table {number}",
        claim=f"{title}: {printed[number]}",
        figure="spira_table1",
        readings=(Counts("t", "layers", {"model": model}),),
        why="Products alone decide here, as a map's layout is built once for all its layers; "
        "output-stationary rows are sorted by their slots, which the paper's are not.",
    )


PAPER = Paper(
    "spira",
    "Spira: Exploiting Voxel Data Structural Properties for Efficient Sparse Convolution "
    "(MLSys 2026)",
    "RTX 3090, A100; H100 and three others in the appendix",
    (
        Claim(
            part="Fig. 1, 3a, 4 to 7",
            claim="drawings of the method",
            absent="nothing is measured in them",
        ),
        Claim(
            part="Fig. 2",
            claim="search 7.83 times as fast as TorchSparse++ and 1.82 times as fast as Minuet, "
            "without preparation",
            figure="spira_fig2",
            readings=(
                Ratio(
                    "torchsparse++ / spira, search",
                    {"engine": "torchsparse++"},
                    {"engine": "spira"},
                    7.83,
                    {"part": "search"},
                    ("variant",),
                ),
                Ratio(
                    "minuet / spira, search",
                    {"engine": "minuet"},
                    {"engine": "spira"},
                    1.82,
                    {"part": "search"},
                    ("variant",),
                ),
                Share("spira hybrid", {"variant": "spira\nhybrid"}),
                Share("torchsparse++", {"variant": "torchsparse++\noutput-stationary"}),
            ),
            why="The stand-in's table is probed by one kernel and lies in the L2 cache, so that a "
            "look-up costs little more than a step of the search.",
        ),
        Claim(
            part="Fig. 3b",
            claim="at K = 5 slots of L1 norm 1 are filled by 39.4 %, those of norm 6 by 5.4 %",
            figure="spira_fig3b",
            readings=tuple(
                Mean(f"norm {norm}", "filled_percent", {"norm": norm}, "%") for norm in (1, 3, 6)
            ),
            why="Surfaces fill near slots; indoor scenes are several times as dense as scans.",
        ),
        Claim(
            part="Fig. 8, 20",
            claim="on an RTX 3090 1.62 times as fast as TorchSparse++ and 1.70 times as fast as "
            "Minuet; on an H100 1.71 times as fast as both on average",
            figure="spira_fig8",
            readings=(
                _over("torchsparse++", 1.71),
                _over("minuet", 1.71),
                Ratio("spira / auto", {"engine": "spira"}, {"engine": "auto"}),
            ),
            why="`torchsparse++` here is its table under our masked implicit GEMM; its authors' "
            "dataflows, which rows of --peers hold, are slower.",
        ),
        Claim(
            part="Fig. 9, 18, 19, 21",
            claim="the same on A100, GTX 1060, Quadro RTX 5000 and Jetson Orin AGX",
            absent="they need other GPUs",
        ),
        _table(1, "sparse_resnet", "SparseResNet21"),
        _table(2, "sparse_resnet_large", "SparseResNetLarge"),
        _table(3, "minkunet", "MinkUNet42"),
        Claim(
            part="Fig. 10",
            claim="map and layer: 2.03 times as fast as TorchSparse++, 2.19 times as Minuet",
            figure="spira_fig10",
            readings=(_over("torchsparse++", 2.03), _over("minuet", 2.19)),
            why="The map takes most of the time of a small layer, and our table costs less than "
            "the paper's.",
        ),
        Claim(
            part="Fig. 11",
            claim="at K = 5 t = 3 is up to 1.13 times as fast as output-stationary alone and 1.11 "
            "times as weight-stationary alone; small layers prefer output-stationary",
            figure="spira_fig11",
            readings=(
                Ratio("output-stationary / t = 3", {"t": 7}, {"t": 3}, 1.13, {"k": 5}),
                Ratio("weight-stationary / t = 3", {"t": 0}, {"t": 3}, 1.11, {"k": 5}),
                Best("quickest at K = 3", "t", {"k": 3}),
                Best("quickest at K = 5", "t", {"k": 5}),
            ),
            why="Our output-stationary rows are sorted by their slots and skip most empty ones, "
            "which leaves the hybrid less to save.",
        ),
        Claim(
            part="Fig. 12",
            claim="z-delta search is up to 2.85 times as fast as Minuet, 9.49 times as "
            "TorchSparse++, 3.45 times as binary search",
            figure="spira_fig12",
            readings=(
                _builder("double-traversed", "double_traversed", 2.85),
                _builder("hash table", "hash_table", 9.49),
                _builder("binary search", "binary_search", 3.45),
            ),
            why="The paper's are the largest ratios, ours means over scenes and kernels; a cache "
            "of 60 MB helps the random look-ups of the others most.",
        ),
        Claim(
            part="Fig. 13",
            claim="MinkUNet42: z-delta search makes it 1.18 times as fast, the hybrid 1.07, "
            "packing 1.02 and planning the network 1.05 times",
            figure="spira_fig13",
            readings=(_step(1, 1.18), *(_step(number, None) for number in range(2, len(_STEPS)))),
            why="The first two steps multiply sorted tiles that skip empty slots; Spira's own rows "
            "are not sorted. Its hybrid is to be held against these, all slots by output row "
            "(t = 7): fewer products cost two launches and atomics.",
        ),
        Claim(
            part="Fig. 14",
            claim="32 to 32 channels at K = 5 with its map: z-delta search 1.75 times as fast as "
            "TorchSparse++",
            figure="spira_fig14",
            readings=(
                Ratio(
                    "hash table / z-delta",
                    {"step": "hash table, output-stationary"},
                    {"step": "+ z-delta search"},
                    1.75,
                ),
                Ratio(
                    "z-delta / hybrid",
                    {"step": "+ z-delta search"},
                    {"step": "+ hybrid, t = 3"},
                ),
            ),
            why="The hybrid pays two launches and atomics against tiles that skip empty slots.",
        ),
        Claim(
            part="Fig. 15",
            claim="all maps of a network on streams: up to 1.72 times as fast as one by one",
            figure="spira_fig15",
            readings=(
                Ratio(
                    "one by one / streams",
                    {"schedule": "sequential", "engine": "z_delta"},
                    {"schedule": "streams", "engine": "z_delta"},
                    1.72,
                    clock="wall",
                ),
                Ratio(
                    "z-delta on streams / our plan",
                    {"schedule": "streams", "engine": "z_delta"},
                    {"schedule": "pcnn.plan", "engine": "auto"},
                ),
            ),
            why="The kernels take microseconds here, so that what streams overlap is less than "
            "what the host spends on issuing and joining them.",
        ),
        Claim(
            part="Fig. 16",
            claim="random scenes of growing density: 1.59 times as fast as TorchSparse++, 1.80 "
            "times as Minuet",
            figure="spira_fig16",
            readings=(_over("torchsparse++", 1.59), _over("minuet", 1.80)),
            why="Our `torchsparse++` multiplies by masked implicit GEMM, which skips empty slots; "
            "untuned, `spira` multiplies all of them, and random scenes fill few.",
        ),
        Claim(
            part="Fig. 17",
            claim="random scenes of growing size: 2.05 times as fast beyond a million voxels",
            figure="spira_fig17",
            readings=(_over("torchsparse++", 2.05), _over("minuet", 2.05)),
            why="As in Fig. 16; beyond a million voxels products take most of the time, whatever "
            "finds the maps.",
        ),
        Claim(
            part="Table 4",
            claim="MinkUNet42 on Waymo at K = 3, 7, 13: 360 MB, 1.4 GB, 9 GB at B = 1, much as the "
            "others; 1.3 to 2.2 times as fast as TorchSparse++",
            figure="spira_table4",
            readings=(
                *(
                    Mean(f"spira, K = {size}", "memory_mb", {"engine": "spira", "K": size}, "MiB")
                    for size in (3, 7, 13)
                ),
                _over("torchsparse", None),
            ),
            why="Peaks are of torch's allocator above weights and input; the paper's hold both.",
        ),
    ),
)
