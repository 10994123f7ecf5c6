"""A comparison of two methods as plain values, for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from pcnn.metrics.registration.gain import Gain, Method
from pcnn.metrics.registration.pair_values import ERRORS, FIGURES


def gain_content(
    gains: Mapping[int | None, Gain], tables: tuple[Sequence[str], Sequence[str]]
) -> dict[str, Any]:
    """Everything that was found; what does not exist is None, since JSON knows no NaN.

    Shares are 0..1, RRE in degrees, RTE in metres. ``gain`` holds differences by number of samples
    and figure (value, low, high, pairs, effect), ``methods`` both methods with their tables and,
    by number of samples, their figures over runs (mean, sd, values) and RRE and RTE over the pairs
    that both register (mean, median).

    Args:
        gains: by number of samples; None when all points were used.
        tables: files of either method's runs.
    """
    first = next(iter(gains.values()))
    rule = first.protocol
    names = [first.first.name, first.second.name]
    return {
        "names": names,
        "number_of_runs": [len(paths) for paths in tables],
        "runs": list(tables[0]),
        "over": list(tables[1]),
        "protocol": rule.name,
        "benchmark": rule.benchmark,
        "registered_if": str(rule.success),
        "average": rule.average,
        "errors_over": rule.errors_over,
        "gain": {_at(samples): _differences(gain) for samples, gain in gains.items()},
        "methods": [
            {
                "name": name,
                "tables": list(paths),
                "figures": {
                    _at(samples): _figures(getattr(gain, side)) for samples, gain in gains.items()
                },
            }
            for name, paths, side in zip(names, tables, ("first", "second"), strict=True)
        ],
    }


def _differences(gain: Gain) -> dict[str, Any]:
    found = {}
    for name, effect in zip(FIGURES, gain.comparison.effects, strict=True):
        figure = getattr(gain.comparison, name)
        found[name] = {
            "value": known(figure.value),
            "low": known(figure.low),
            "high": known(figure.high),
            "pairs": figure.pairs,
            "effect": known(effect),
        }
    return found


def _figures(method: Method) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: {
            "mean": known(spread.mean),
            "sd": known(spread.deviation),
            "values": [known(value) for value in spread.values],
        }
        for name, spread in method.runs.items()
    }
    for name in ERRORS:
        centre = method.common[name]
        found[f"{name}_both"] = {"mean": known(centre.mean), "median": known(centre.median)}
    return found


def _at(samples: int | None) -> str:
    return "all" if samples is None else str(samples)


def known(figure: float) -> float | None:
    """A figure, None where it does not exist."""
    return None if isnan(figure) else figure
