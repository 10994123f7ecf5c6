"""A picture of two methods on the same pairs: recall, right matches, differences."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from pcnn.files.whole_file import whole_file
from pcnn.metrics.registration.bootstrap import Figure
from pcnn.metrics.registration.gain import Gain
from pcnn.plural import counted

FIRST, SECOND = "#1f58b2", "#e87010"
INK, FAINT = "#1c2430", "#6b7482"
FORMATS = ("png", "svg")
#: Characters of a method's name that fit beside others.
NAME = 28

#: Panels of differences: figures with their labels, what the axis says, factor, more is better.
DIFFERENCES = (
    ((("rr", "RR"), ("fmr", "FMR"), ("ir", "IR")), "shares [points], more is better", 100.0, True),
    ((("rre", "RRE"),), "RRE where both register [deg], less is better", 1.0, False),
    ((("rte", "RTE"),), "RTE where both register [cm], less is better", 100.0, False),
)


def checked_format(path: Path) -> str:
    """The format that the name of a picture asks for, one of `FORMATS`.

    Raises:
        ValueError: another one.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise ValueError(f"{path}: a chart is written as .png or .svg")
    return suffix


def gain_picture(gain: Gain, path: str | Path, title: str) -> Path:
    """Draw recall over its threshold, inlier ratios pair by pair, and paired differences.

    Bands are the standard deviation over runs, absent for one run; intervals are 95 % over pairs,
    grey where they hold zero. Long names lose their middle.

    Args:
        gain: what to draw.
        path: PNG or SVG to write, whole; its folder is created.
        title: heading.

    Returns:
        `path`.

    Raises:
        ValueError: neither of these formats.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Page

    path = Path(path)
    kind = checked_format(path)
    page: Any = Page(figsize=(15.5, 5.8), facecolor="white", layout="constrained")
    FigureCanvasAgg(page)
    page.get_layout_engine().set(w_pad=0.12, h_pad=0.08, wspace=0.03)
    parts = page.add_gridspec(1, 3)
    recall, ratios = page.add_subplot(parts[0]), page.add_subplot(parts[1])
    _draw_recall(recall, gain)
    _draw_ratios(ratios, gain)
    entries: dict[str, Any] = {}
    for place in (recall, ratios, *_draw_differences(page, parts[2], gain)):
        handles, labels = place.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    page.legend(
        entries.values(),
        entries,
        loc="outside lower center",
        ncols=4 if max(map(len, entries)) < 48 else 3,
        fontsize=10,
        frameon=False,
    )
    page.suptitle(fill(title, 120), x=0.01, ha="left", fontsize=13, color=INK, weight="bold")
    # SVG: the same figures give the same file
    with rc_context({"svg.hashsalt": "pcnn"}), whole_file(path) as file:
        metadata = {"Date": None} if kind == "svg" else None
        page.savefig(file, format=kind, dpi=120, metadata=metadata)
    return path


def _draw_recall(place: Any, gain: Gain) -> None:
    methods = zip((gain.first, gain.second), short_names(gain), (FIRST, SECOND), strict=True)
    for method, name, colour in methods:
        recall = 100 * method.recall  # [S, L]
        mean, several = recall.mean(0), len(recall) > 1
        of = f"{name}, mean over runs" if several else f"{name}, one run"
        place.plot(gain.limits, mean, color=colour, label=of)
        if several:
            spread = recall.std(0, ddof=1)
            low, high = np.clip([mean - spread, mean + spread], 0, 100)
            band = f"{name}, ± sd of {counted(len(recall), 'run')}"
            place.fill_between(gain.limits, low, high, color=colour, alpha=0.2, lw=0, label=band)
    rule = gain.protocol.success
    own = getattr(rule, gain.error)
    place.axvline(own, color=FAINT, linestyle="--", linewidth=1, label="threshold of the protocol")
    what = "RMSE of true correspondences" if gain.error == "rmse" else "RTE"
    _label(place, "a  recall", f"threshold of {what} alone [m]", "registration recall [%]")
    place.set_xlim(0, gain.limits[-1])
    place.set_ylim(0, 101)


def _draw_ratios(place: Any, gain: Gain) -> None:
    ratio, success = gain.values["ir"], gain.values["rr"]
    one, other = short_names(gain)
    _label(
        place,
        f"b  right matches, {counted(gain.comparison.ir.pairs, 'pair')}",
        f"inlier ratio of {other} [%]",
        f"inlier ratio of {one} [%]",
    )
    known = ratio.compared
    if not known.any():
        place.text(0.5, 0.5, "no pair with matches of both", ha="center", transform=place.transAxes)
        return
    most = 105 * max(float(ratio.first[known].max()), float(ratio.second[known].max()), 1e-4)
    place.plot([0, most], [0, most], color=FAINT, linewidth=1, label="as many right matches")
    better = success.difference
    kinds = (
        (better == 0, FAINT, "o", "registered equally often"),
        (better > 0, FIRST, "^", f"registered more often by {one}"),
        (better < 0, SECOND, "v", f"registered more often by {other}"),
    )
    for which, colour, marker, label in kinds:
        shown = known & which
        if not shown.any():
            continue
        place.scatter(
            100 * ratio.second[shown],
            100 * ratio.first[shown],
            s=22,
            color=colour,
            marker=marker,
            alpha=0.65,
            linewidths=0,
            label=label,
        )
    place.set_xlim(0, most)
    place.set_ylim(0, most)
    place.set_aspect("equal")


def _draw_differences(page: Any, part: Any, gain: Gain) -> list[Any]:
    one, other = short_names(gain)
    inner = part.subgridspec(len(DIFFERENCES), 1, height_ratios=[3, 1.4, 1.4])
    places = []
    for row, (figures, axis, factor, more) in enumerate(DIFFERENCES):
        place = page.add_subplot(inner[row])
        names = []
        furthest = 0.0
        for height, (name, label) in enumerate(reversed(figures)):
            figure: Figure = getattr(gain.comparison, name)
            names.append(f"{label}\n{counted(figure.pairs, 'pair')}")
            if np.isnan(figure.value):
                place.text(0, height, " nothing to compare", va="center", color=FAINT)
                continue
            ends = np.array([figure.low, figure.high]) * factor
            value = figure.value * factor
            furthest = max(furthest, *np.abs(ends), abs(value))
            colour, said = FAINT, "95 % interval holds zero"
            if ends[0] > 0 or ends[1] < 0:
                first = (value > 0) == more
                colour = FIRST if first else SECOND
                said = f"95 % interval in favour of {one if first else other}"
            place.errorbar(
                value,
                height,
                xerr=np.maximum([[value - ends[0]], [ends[1] - value]], 0),
                fmt="s",
                color=colour,
                markersize=4.5,
                capsize=5,
                linewidth=2,
                label=said,
            )
        reach = 1.15 * furthest or 1.0
        place.axvline(0, color=INK, linewidth=1)
        place.set_xlim(-reach, reach)
        place.set_ylim(-0.6, len(figures) - 0.4)
        place.set_yticks(range(len(names)), names)
        _label(place, "", axis, "")
        places.append(place)
    heading = f"{one} minus {other}"
    heading = heading if len(heading) < 46 else "the first minus the second method"
    places[0].set_title(f"c  {heading}", loc="left", fontsize=12, color=INK)
    return places


def short_names(gain: Gain) -> tuple[str, str]:
    """Both names, of `NAME` characters or so: long ones lose their middle, and stay two."""
    half = NAME // 2
    first, second = (
        name if len(name) <= NAME else f"{name[:half].rstrip()}…{name[1 - half :].lstrip()}"
        for name in (gain.first.name, gain.second.name)
    )
    return (first, second) if first != second else (f"1: {first}", f"2: {second}")


def _label(place: Any, title: str, x: str, y: str) -> None:
    if title:
        place.set_title(title, loc="left", fontsize=12, color=INK)
    place.set_xlabel(x, color=INK, fontsize=10)
    place.set_ylabel(y, color=INK, fontsize=10)
    place.tick_params(labelsize=9, colors=INK)
    place.grid(alpha=0.3)
    place.set_axisbelow(True)
