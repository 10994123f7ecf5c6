"""PointCNN++: its figures and tables."""

from __future__ import annotations

from pcnn.bench.papers.claims import Claim, Paper
from pcnn.bench.papers.readings import Mean, Ratio, Reading, Wanted

_LINES = ("native", "voxel", "pointcnnpp", "torchsparse")


def _memory(what: str) -> tuple[Reading, ...]:
    most: Wanted = {"what": what, "points": 200_000}
    return tuple(
        Mean(line, "memory_mb", {**most, "engine": line}, "MiB") for line in (*_LINES, "minuet")
    )


def _over(label: str, slow: str, printed: float | None = None, **where: str) -> Ratio:
    ends = {"engine": slow}, {"engine": "native"}
    return Ratio(label, *ends, printed, dict(where), ("geometry", "n", "checked_on"))


PAPER = Paper(
    "pointcnnpp",
    "PointCNN++: Performant Convolution on Native Points (CVPR 2026)",
    "RTX 4090; A800, L20 and V100 in the supplement",
    (
        Claim(
            part="Fig. 1, 2, 6, K",
            claim="drawings of the method, and pictures of registered pairs",
            absent="nothing is measured in them; `eval.py` draws pairs of its own",
        ),
        Claim(
            part="Fig. 3",
            claim="one layer takes less than half of the memory of voxel libraries, and almost "
            "none beyond its operands",
            figure="pointcnnpp_fig3",
            readings=_memory("map+layer"),
            why="Native points take 5 times less than engines that gather; they take more than "
            "voxels by implicit GEMM, as they hold their triplets in two orders and lists of steps "
            "whose number the host does not wait for "
            "([counted](../engines_compared.md#native-points)).",
        ),
        Claim(
            part="Fig. 4",
            claim="one layer is the quickest forwards and backwards, on native points and moved "
            "to voxels alike",
            figure="pointcnnpp_fig4",
            readings=(
                _over("torchsparse / native, forward", "torchsparse", what="layer"),
                _over("backward", "torchsparse", what="backward"),
                _over("pointcnnpp / native, forward", "pointcnnpp", what="layer"),
                _over("voxel / native, forward", "voxel", what="layer"),
            ),
            why="`pointcnnpp` is the kernel as printed, one triplet at a time; `native` computes "
            "the same sum on tensor cores.",
        ),
        Claim(
            part="Fig. 5",
            claim="ResNet18: 60.4 ms and 0.37 GB for inference, 75.5 ms backwards, 0.59 GB for "
            "training; less than half of the memory of voxel libraries",
            figure="pointcnnpp_fig5",
            readings=(
                _over("torchsparse / native, inference", "torchsparse", mode="infer"),
                _over("backward", "torchsparse", mode="backward"),
                _over("pointcnnpp / native, inference", "pointcnnpp", mode="infer"),
                _over("backward", "pointcnnpp", mode="backward"),
                *(
                    Mean(
                        f"{line}, {mode}",
                        "memory_mb",
                        {"engine": line, "mode": mode, "points": 200_000},
                        "MiB",
                    )
                    for line in ("native", "torchsparse")
                    for mode in ("infer", "train")
                ),
            ),
            why="Rooms are simulated and of another size than the paper's, so that ratios can be "
            "compared and milliseconds cannot; fVDB, KPConv and O-CNN are not here.",
        ),
        Claim(
            part="Fig. G, H, I",
            claim="figure 4 on A800, L20 and V100",
            absent="they need other GPUs",
        ),
        Claim(
            part="Fig. J",
            claim="training takes about 100 million points on 80 GB, more than twice the next best",
            figure="pointcnnpp_figJ",
            readings=tuple(
                Mean(
                    f"{line}, {mode}",
                    "points",
                    {"engine": line, "mode": mode, "fits": 1},
                    "points",
                    largest=True,
                )
                for mode in ("infer", "train")
                for line in ("native", "pointcnnpp", "voxel", "torchsparse")
            ),
            why="Within 24 GB; points in proportion, native points hold more than voxels, which "
            "keep a table of all slots for every level.",
        ),
        Claim(
            part="Table 1",
            claim="KITTI: RTE 0.19 m (std 0.03), RRE 0.060 deg (std 0.10), recall 99.8 %",
            page="registration.md",
            why="Our descriptors are trained on simulated drives alone; standard deviations are "
            "reported by `eval.py`, protocol `pointcnnpp_printed`.",
        ),
        Claim(
            part="Table 2",
            claim="3DMatch: RR 90.3 %, FMR 98.9 %, IR 58.2 % at 5000 samples",
            page="registration.md",
            why="Ours are trained on simulated rooms and judged on one real scene; the paper "
            "prints 0.1 m for a right match, its official code takes 0.3 m.",
        ),
        Claim(
            part="Table C",
            claim="versions of the compared libraries",
            absent="nothing is measured in it",
        ),
    ),
)
