"""Colours and markers of charts: one method has one colour in every chart.

A method is an engine, the map builder of its paper, and the authors' code of it. Colours are those
of Okabe and Ito and of Tol, which people with any kind of colour vision tell apart; markers differ
too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle

#: Follows the name of an engine whose authors' code was measured, not ours.
AUTHORS = ", authors' code, recorded"
#: Follows the name of an engine that finds the cache empty.
COLD = ", cold cache"

BLUE, SKY, BLACK, GREY = "#0072B2", "#56B4E9", "#000000", "#8C8C8C"
ORANGE, RED, PINK = "#E69F00", "#D55E00", "#CC79A7"
GREEN, TEAL, OLIVE, WINE, PURPLE, INDIGO = (
    *("#117733", "#44AA99", "#999933", "#882255", "#AA4499", "#332288"),
)


@dataclass(frozen=True)
class Look:
    """How a series is drawn.

    Args:
        color: as matplotlib takes it.
        marker: matplotlib's letter.
        line: matplotlib's style of a line.
    """

    color: str
    marker: str
    line: str = "-"


#: Engines, lines, map builders and other engines' own code.
METHODS = {
    "auto": Look(BLUE, "o"),
    "graph": Look(BLUE, "o"),
    "native": Look(BLUE, "o"),
    "windowed": Look(SKY, "o"),
    "row_stationary": Look(BLUE, "o"),
    "eager": Look(SKY, "s"),
    "voxel": Look(SKY, "s"),
    "pack_and_sort": Look(INDIGO, "s"),
    "spira": Look(RED, "s"),
    "z_delta": Look(RED, "s"),
    "minuet": Look(ORANGE, "D"),
    "double_traversed": Look(ORANGE, "D"),
    "torchsparse": Look(GREEN, "^"),
    "hash_table": Look(GREEN, "^"),
    "torchsparse++": Look(TEAL, "v"),
    "hash_runs": Look(TEAL, "v"),
    "pointcnnpp": Look(PINK, "P"),
    "pointelligence": Look(PINK, "P"),
    "triplets_k": Look(PINK, "P"),
    "triplets_i": Look(PURPLE, "<"),
    "triplets_j": Look(WINE, ">"),
    "binary_search": Look(PURPLE, "v"),
    "weight_stationary": Look(ORANGE, "D"),
    "spconv": Look(WINE, "<"),
    "flexgemm": Look(OLIVE, ">"),
    "warpconvnet": Look(PURPLE, "p"),
    "degraded": Look(GREY, "X"),
    "reference": Look(GREY, "X"),
}
#: Markers of recorded times: strokes, never filled.
STROKES = {
    "spira": "x",
    "minuet": "1",
    "torchsparse": "2",
    "spconv": "3",
    "flexgemm": "4",
    "warpconvnet": "*",
    "pointelligence": "x",
}
#: Markers of the dataflows of one engine, which share its colour.
DATAFLOWS = {
    "output-stationary": "<",
    "weight-stationary": ">",
    "hybrid": "p",
    "gather-scatter": "h",
}
#: Colours and markers of all other series, in their order.
SEQUENCE = (*(BLUE, ORANGE, GREEN, RED, SKY, PURPLE, OLIVE, WINE, TEAL, PINK, INDIGO, GREY),)
MARKERS = "osD^vP<>pXhd"


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """Look of every series of a chart.

    Args:
        labels: of its series, each once. Names of `METHODS` have their own look; others, as steps
            and settings, take `SEQUENCE` in their order, from dark to light where it is too short.
    """
    found = {label: known(label) for label in labels}
    others = [label for label, look in found.items() if look is None]
    named = {look.color for look in found.values() if look}
    free = [place for place, color in enumerate(SEQUENCE) if color not in named]
    if len(others) > len(free):
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        last = len(others) - 1
        shades = [to_hex(colormaps["viridis"](0.95 * n / last)) for n in range(last + 1)]
    else:
        shades = [SEQUENCE[place] for place in free]
    taken = {look.marker for look in found.values() if look}
    marks = cycle([marker for marker in MARKERS if marker not in taken])
    plain = {label: Look(*how) for label, *how in zip(others, shades, marks, strict=False)}
    return {label: look or plain[label] for label, look in found.items()}


def known(label: str) -> Look | None:
    """Look of a method; ``None`` if the label names none."""
    words = label.partition(",")[0].split()
    method = METHODS.get(words[0]) if words else None
    if method is None:
        return None
    if label.endswith(AUTHORS):
        return Look(method.color, STROKES.get(words[0], "x"), ":")
    marker = DATAFLOWS.get(words[1], method.marker) if len(words) > 1 else method.marker
    return Look(method.color, marker, "--" if label.endswith(COLD) else "-")
