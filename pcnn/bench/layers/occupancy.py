"""How many triplets the slots of a kernel have: figures without times."""

from __future__ import annotations

from collections.abc import Iterator

from pcnn.bench.layers.measured import Place
from pcnn.bench.layers.setting import Setting
from pcnn.bench.rows import Row
from pcnn.geometry import Kernel

#: Engine of rows that belong to none.
NO_ENGINE = "oracle"


def pairs_by_slot(setting: Setting, figure: str) -> Iterator[Row]:
    """TorchSparse Fig. 12: triplets of every slot of a 3^3 kernel, and of the strided 2^3 one."""
    for scene in setting.scenes:
        for size, stride in ((3, 1), (2, 2)):
            place = Place.of(scene, Kernel.of(size, stride), setting.device)
            for slot, (j, _) in enumerate(place.pairs):
                yield _row(place, figure, {"slot": slot, "pairs": len(j)})


def filled_by_norm(setting: Setting, figure: str) -> Iterator[Row]:
    """Spira Fig. 3b: share of the output rows that fill a slot, by its L1 norm, at K = 5."""
    for scene in setting.scenes:
        kernel = Kernel.of(5)
        place = Place.of(scene, kernel, setting.device)
        counts: dict[int, list[int]] = {}
        for offset, (j, _) in zip(kernel.offsets, place.pairs, strict=True):
            counts.setdefault(sum(map(abs, offset)), []).append(len(j))
        for norm, found in sorted(counts.items()):
            share = 100 * sum(found) / (len(found) * max(1, place.n_out))
            yield _row(place, figure, {"norm": norm, "filled_percent": round(share, 3)})


def _row(place: Place, figure: str, params: dict[str, int | float | str]) -> Row:
    return Row(
        "map",
        place.workload,
        NO_ENGINE,
        n=place.grid.rows,
        triplets=place.triplets,
        k=place.kernel.size[0],
        stride=place.kernel.stride[0],
        figure=figure,
        params=params,
    )
