"""Figures of real scans: what every scan counted, in a file, and the tables of the page from it.

    python -m benchmarks.real_figures keep RESULTS ROOMS [key=value ...]
    python -m benchmarks.real_figures

The first line takes what trainings and predictions counted; the second fills the page anew.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parents[1] / "docs/results/real.json"
SLOT = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
HELD = ("01", "03", "05", "07", "08", "10")
KINDS = ("single", "turns")  # one pass, and the sum over turned and mirrored views
#: The run of `seg_streets` as it ships.
SHIPPED = "version_6"
DRAWS = 2000
SHORT = "{:.1f}".format


def per_class(counts: Any) -> list[list[int]]:
    """Points of every class: those that were right, those of the truth, those predicted."""
    table = np.array(counts)
    square = table[:, : len(table)]
    return [np.diag(square).tolist(), table.sum(1).tolist(), square.sum(0).tolist()]


def kept(results: Any, rooms: Any, about: dict[str, str], runs: dict[str, Any]) -> dict[str, Any]:
    jobs, facts = results["jobs"], results["facts"]
    first = next(iter(jobs.values()))
    classes = first["classes"]
    for name, job in sorted(jobs.items()):
        if not name.startswith(("warm", "develop")):
            (scans,) = job["sets"].values()
            given = [one for one in job["overrides"] or () if not one.startswith("dataset.root=")]
            more = {key: job.get(key) for key in ("seed", "steps", "seconds", "memory_gib")}
            run = {**job["facts"], **more, "overrides": given}
            for kind in KINDS if given else KINDS[:1]:
                counts = {scan: per_class(one[kind][0]) for scan, one in scans.items()}
                bins = {scan: np.round(one[kind][1], 1).tolist() for scan, one in scans.items()}
                run[kind] = {"counts": counts, "bins": bins}
                run[kind] |= figures(stacked(run, kind), stacked(run, kind, "bins"), classes)
            runs[name if given else "streets_0_0"] = run
    machine = {"device": first["device"], "gpus": facts["gpus"], **first["versions"]}
    scenes = {name: per_class(counts) for name, counts in rooms["scans"].items()}
    return {
        "about": {**machine, **about, "recorded_revision": first["revision"]},
        "develop": {"miou_present": facts["develop"], "chosen": facts["chosen"]},
        "classes": classes,
        "runs": runs,
        "rooms": {"classes": rooms["classes"], "counts": scenes},
    }


def ious(counts: Any) -> tuple[Any, Any]:
    """IoU [..., C] in % of counts [..., 3, C], and which classes the truth has."""
    right, truth, said = np.moveaxis(np.asarray(counts, float), -2, 0)
    return 100 * right / np.maximum(truth + said - right, 1), truth > 0


def present(counts: Any) -> Any:
    iou, there = ious(counts)
    return (iou * there).sum(-1) / there.sum(-1)


def stacked(run: dict[str, Any], kind: str, what: str = "counts", places: Any = None) -> Any:
    scans = run[kind][what].items()
    return np.array([one for name, one in scans if places is None or name[:2] in places])


def calibration(bins: Any) -> tuple[float, float]:
    """Expected calibration error and accuracy, of sums [S, B, 3]."""
    n, sure, right = bins.sum(0).T
    return float(np.abs(sure - right).sum() / n.sum()), float(100 * right.sum() / n.sum())


def figures(counts: Any, bins: Any, classes: list[str]) -> dict[str, Any]:
    iou, there = ious(counts.sum(0))
    known = zip(classes, iou.tolist(), there, strict=True)
    return {
        "miou_present": round(float(present(counts.sum(0))), 2),
        "miou_19": round(float(iou.mean()), 2),
        "calibration_error": round(calibration(bins)[0], 4),
        "iou": {name: round(one, 1) for name, one, is_there in known if is_there},
    }


def of(found: dict[str, Any], start: str) -> list[dict[str, Any]]:
    return [run for name, run in found["runs"].items() if name.startswith(start)]


def interval(values: Any) -> str:
    return "[{:.1f}, {:.1f}]".format(*np.percentile(values, (2.5, 97.5)))


def curve(found: dict[str, Any]) -> list[list[str]]:
    rows = [["real scans", "start", "one pass", "8 views", "95 %", "from `seg_streets` is ahead"]]
    generator = np.random.default_rng(0)
    draws = generator.integers(0, 10, (DRAWS, 10))  # the same scans for both sides
    for n in (0, 1, 5, 20, 100):
        means: list[Any] = []
        for start in ("streets", "nothing"):
            runs = of(found, f"{start}_{n}_")
            if not runs:
                continue
            kinds = KINDS if n else KINDS[:1]
            whole = [[stacked(run, kind, places=["08"]) for run in runs] for kind in kinds]
            own = [[present(one.sum(0)) for one in kind] for kind in whole]
            said = [SHORT(np.mean(one)) for one in own]
            drawn = np.stack([present(one[draws].sum(1)) for one in whole[-1]])
            seeds = generator.integers(0, len(runs), (len(runs), DRAWS))
            booted = np.take_along_axis(drawn, seeds, 0).mean(0)
            means.append((np.mean(own[-1]), booted))
            rows.append([str(n), start, said[0], said[-1] if n else "", interval(booted), ""])
        if len(means) > 1:
            (ours, booted), (other, beside) = means
            rows[-2][-1] = f"{ours - other:+.1f} {interval(booted - beside)}"
    return rows


def simulation(found: dict[str, Any]) -> list[list[str]]:
    rows = [["sequence", "points", "right", "mean IoU, 19", "over those present", "calibration"]]
    run = found["runs"][SHIPPED]
    names = sorted({name[:2] for name in run["single"]["counts"]})
    sets = [(name, [name]) for name in names]
    for title, places in [*sets, ("the six held", HELD), ("all", names)]:
        counts = stacked(run, "single", places=places).sum(0)
        error, accuracy = calibration(stacked(run, "single", "bins", places))
        shares = map(SHORT, (accuracy, ious(counts)[0].mean(), present(counts)))
        rows.append([title, f"{counts[1].sum():,}", *shares, f"{error:.3f}"])
    return rows


def classes(found: dict[str, Any]) -> list[list[str]]:
    rows = [["IoU %", "held six", "08", "08, 100 scans from `seg_streets`", "08, from nothing"]]
    alone = found["runs"][SHIPPED]
    columns = [[stacked(alone, "single", places=own).sum(0)] for own in (HELD, ["08"])]
    for start in ("streets_100", "nothing_100"):
        columns.append([stacked(run, "turns").sum(0) for run in of(found, start)])
    for row, name in enumerate(found["classes"]):
        cells = [(np.mean([ious(c)[0][row] for c in own]), own[0][1][row]) for own in columns]
        rows.append([name, *(SHORT(iou) if points else "-" for iou, points in cells)])
    means = [f"**{np.mean([present(c) for c in own]):.1f}**" for own in columns]
    return [*rows, ["**those present**", *means]]


def rooms(found: dict[str, Any]) -> list[list[str]]:
    own = found["rooms"]
    counts = np.array(list(own["counts"].values())).sum(0)
    iou, there = ious(counts)
    names = [name for name, known in zip(own["classes"], there, strict=True) if known]
    return [[*names, "mean"], [*map(SHORT, iou[there]), f"**{present(counts):.1f}**"]]


def sensors(found: dict[str, Any]) -> list[list[str]]:
    rows = [["set", "clouds", "points", "right", "mean IoU", "IoU % of every class"]]
    for name, own in found["sensors"].items():
        counts = np.array(list(own["counts"].values())).sum(0)
        iou, there = ious(counts)
        right, points, _ = counts.sum(1)
        known = zip(own["classes"], map(SHORT, iou), there, strict=True)
        said = ", ".join(f"{label} {one}" for label, one, is_there in known if is_there)
        shares = SHORT(100 * right / points), f"**{present(counts):.1f}**"
        rows.append([name, str(len(own["counts"])), f"{points:,}", *shares, said])
    return rows


def beside(found: dict[str, Any]) -> list[list[str]]:
    rows = [["steps", "ours [s]", "spconv-triton [s]", "ratio", "loss of both", "mIoU % of both"]]
    ours, theirs = (run["curve"] for run in found["beside"]["runs"].values())
    for one, other in zip(ours, theirs, strict=True):
        clocks = one["seconds"], other["seconds"]
        loss, miou = (f"{one[k]:.3g}, {other[k]:.3g}" for k in ("mean_loss", "miou_present"))
        said = *map(SHORT, clocks), f"{clocks[1] / clocks[0]:.2f}", loss, miou
        rows.append([str(one["step"]), *said])
    return rows


TABLES = {one.__name__: one for one in (curve, simulation, classes, rooms, sensors, beside)}


def table(rows: list[list[str]]) -> str:
    rows = [rows[0], [":--", *["--:"] * (len(rows[0]) - 1)], *rows[1:]]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main(words: list[str]) -> None:
    if words:
        results, spaces = (json.loads(Path(path).read_text()) for path in words[1:3])
        known = dict(word.split("=", 1) for word in words[3:])
        held = json.loads(FILE.read_text())
        made = held | kept(results, spaces, known, held["runs"])  # runs of others stay
        made["tables"] = {name: rows(made) for name, rows in TABLES.items()}
        FILE.write_text(re.sub(r"\n {4,}", "", json.dumps(made, indent=1)) + "\n")
    found = json.loads(FILE.read_text())
    page = FILE.with_suffix(".md")
    filled = SLOT.sub(lambda at: at[1] + table(TABLES[at[2]](found)) + at[3], page.read_text())
    page.write_text(filled)


if __name__ == "__main__":
    main(sys.argv[1:])
