"""A picture of two methods on the same pairs: recall, right matches, differences."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from pcnn.metrics.registration.comparison import Comparison
from pcnn.plural import counted
from pcnn.visualize.page import FAINT, INK, checked_format, new_page, saved

COLOURS = FIRST, SECOND = "#1f58b2", "#e87010"
#: Characters of a method's name that fit beside others.
NAME = 28

#: Panels of differences: figures with their labels, what the axis says, factor, more is better.
DIFFERENCES = (
    ((("rr", "RR"), ("fmr", "FMR"), ("ir", "IR")), "shares [points], more is better", 100.0, True),
    ((("rre", "RRE"),), "RRE where both register [deg], less is better", 1.0, False),
    ((("rte", "RTE"),), "RTE where both register [cm], less is better", 100.0, False),
)


def comparison_picture(comparison: Comparison, path: str | Path, title: str) -> Path:
    """Draw recall over its threshold, inlier ratios pair by pair, and paired differences.

    Bands are the standard deviation over runs, absent for one run; intervals are 95 % over pairs,
    grey where they hold zero. Long names lose their middle.
    """
    kind = checked_format(Path(path))
    page = new_page(15.5, 5.8, layout="constrained")
    page.get_layout_engine().set(w_pad=0.12, h_pad=0.08, wspace=0.03)
    parts = page.add_gridspec(1, 3)
    recall, ratios = page.add_subplot(parts[0]), page.add_subplot(parts[1])
    names = short_names(comparison.names)
    _draw_recall(recall, comparison, names)
    _draw_ratios(ratios, comparison, names)
    entries: dict[str, Any] = {}
    for place in (recall, ratios, *_draw_differences(page, parts[2], comparison, names)):
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
    return saved(page, path, kind, dpi=120)


def short_names(names: tuple[str, str]) -> tuple[str, str]:
    """Both names, of about `NAME` characters: long ones lose their middle, and stay different."""
    half = NAME // 2
    first, second = (
        name if len(name) <= NAME else f"{name[:half].rstrip()}…{name[1 - half :].lstrip()}"
        for name in names
    )
    return (first, second) if first != second else (f"1: {first}", f"2: {second}")


def _draw_recall(place: Any, comparison: Comparison, names: tuple[str, str]) -> None:
    limits = comparison.limits
    for runs, name, colour in zip(comparison.recall, names, COLOURS, strict=True):
        recall = 100 * runs  # [S, L]
        mean, several = recall.mean(0), len(recall) > 1
        of = f"{name}, mean over runs" if several else f"{name}, one run"
        place.plot(limits, mean, color=colour, label=of)
        if several:
            spread = recall.std(0, ddof=1)
            low, high = np.clip([mean - spread, mean + spread], 0, 100)
            band = f"{name}, ± sd of {counted(len(recall), 'run')}"
            place.fill_between(limits, low, high, color=colour, alpha=0.2, lw=0, label=band)
    own = comparison.protocol.success.thresholds[comparison.error]
    place.axvline(own, color=FAINT, linestyle="--", linewidth=1, label="threshold of the protocol")
    error = "RMSE of true correspondences" if comparison.error == "rmse" else "RTE"
    _label(place, "a  recall", f"threshold of {error} alone [m]", "registration recall [%]")
    place.set_xlim(0, limits[-1])
    place.set_ylim(0, 101)


def _draw_ratios(place: Any, comparison: Comparison, names: tuple[str, str]) -> None:
    ratio, (one, other) = comparison.figures["ir"], names
    _label(
        place,
        f"b  right matches, {counted(ratio.difference.pairs, 'pair')}",
        f"inlier ratio of {other} [%]",
        f"inlier ratio of {one} [%]",
    )
    if not ratio.which.any():
        place.text(0.5, 0.5, "no pair with matches of both", ha="center", transform=place.transAxes)
        return
    first, second = 100 * ratio.pairs
    most = 1.05 * max(float(ratio.pairs[:, ratio.which].max()) * 100, 0.01)
    place.plot([0, most], [0, most], color=FAINT, linewidth=1, label="as many right matches")
    better = comparison.figures["rr"].gaps
    kinds = (
        (better == 0, FAINT, "o", "registered equally often"),
        (better > 0, FIRST, "^", f"registered more often by {one}"),
        (better < 0, SECOND, "v", f"registered more often by {other}"),
    )
    for which, colour, marker, label in kinds:
        shown = ratio.which & which
        if shown.any():
            style = {"s": 22, "alpha": 0.65, "linewidths": 0, "color": colour, "marker": marker}
            place.scatter(second[shown], first[shown], label=label, **style)
    place.set_xlim(0, most)
    place.set_ylim(0, most)
    place.set_aspect("equal")


def _draw_differences(
    page: Any, part: Any, comparison: Comparison, names: tuple[str, str]
) -> list[Any]:
    inner = part.subgridspec(len(DIFFERENCES), 1, height_ratios=[3, 1.4, 1.4])
    places = []
    for row, (figures, axis, factor, more) in enumerate(DIFFERENCES):
        place = page.add_subplot(inner[row])
        ticks, furthest = [], 0.0
        for height, (name, label) in enumerate(reversed(figures)):
            figure = comparison.figures[name].difference
            ticks.append(f"{label}\n{counted(figure.pairs, 'pair')}")
            if np.isnan(figure.value):
                place.text(0, height, " nothing to compare", va="center", color=FAINT)
                continue
            low, value, high = factor * np.array([figure.low, figure.value, figure.high])
            furthest = max(furthest, abs(low), abs(high), abs(value))
            colour, said = FAINT, "95 % interval holds zero"
            if low > 0 or high < 0:
                side = 0 if (value > 0) == more else 1
                colour, said = COLOURS[side], f"95 % interval in favour of {names[side]}"
            place.errorbar(
                value,
                height,
                xerr=np.maximum([[value - low], [high - value]], 0),
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
        place.set_yticks(range(len(ticks)), ticks)
        _label(place, "", axis, "")
        places.append(place)
    heading = f"{names[0]} minus {names[1]}"
    heading = heading if len(heading) < 46 else "the first minus the second method"
    places[0].set_title(f"c  {heading}", loc="left", fontsize=12, color=INK)
    return places


def _label(place: Any, title: str, x: str, y: str) -> None:
    if title:
        place.set_title(title, loc="left", fontsize=12, color=INK)
    place.set_xlabel(x, color=INK, fontsize=10)
    place.set_ylabel(y, color=INK, fontsize=10)
    place.tick_params(labelsize=9, colors=INK)
    place.grid(alpha=0.3)
    place.set_axisbelow(True)
