"""Write the tables of measurements into the pages: `python docs/site/tables.py`.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``. Its numbers are read
from the JSON files that the line below it names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
GRAPHS = "benchmarks/results/latency-h200.json"
OURS, PEERS = "benchmarks/results/networks-h200.json", "benchmarks/peers/h200.json"
SOLVERS = "docs/results/solvers-simulated.json"
VERIFIER = "docs/results/verifier-simulated.json"
SOLVER_TIMES = "benchmarks/results/solvers-cpu.json"
SOLVER_NAMES = {
    "cliques": "**cliques**",
    "most_support": "cliques, most support",
    "ransac": "RANSAC, 99.9 % sure",
    "open3d": "Open3D's RANSAC, likewise",
}
#: Variants of other packages that compute other outputs than ours.
OTHER_WORK = ("keeps more outputs", "NOT the same work")
#: Spira on wide keys is Spira.
CODE = {"spira64": "spira"}
MODELS = ("sparse_resnet", "sparse_resnet_large", "minkunet")
SCENES = ("kitti0_005", "kitti0_010", "indoor_150k")
PACKAGES = {
    "spira": "Spira",
    "torchsparse": "TorchSparse++",
    "minuet": "Minuet",
    "spconv": "spconv",
    "warpconvnet": "WarpConvNet",
}


def rows_of(path: str) -> list[dict[str, Any]]:
    """The rows of a result file."""
    rows: list[dict[str, Any]] = json.loads((ROOT / path).read_text())["rows"]
    return rows


def best(rows: list[dict[str, Any]]) -> float | None:
    """The shortest of the median times [ms]."""
    return min((row["wall_ms"] for row in rows), default=None)


def networks() -> str:
    """Inference of networks: `auto` beside the authors' code of other engines."""
    graphs = [
        row
        for row in rows_of(GRAPHS)
        if (row["figure"], row["engine"], row["dtype"]) == ("latency", "graph", "float16")
        and row["params"].get("mode") == "device"
    ]
    ours = [row for row in rows_of(OURS) if row["params"]["mode"] == "infer"]
    theirs = [
        row
        for row in rows_of(PEERS)
        if row["what"] == "network"
        and row["dtype"] in ("fp16", "float16")
        and not any(words in row.get("variant", "") for words in OTHER_WORK)
    ]
    lines = [f"| network | scan | `auto`, graph | `auto` | {' | '.join(PACKAGES.values())} |"]
    lines.append("|---|---|" + "--:|" * (2 + len(PACKAGES)))
    for model in MODELS:
        for scene in SCENES:
            here: Callable[[dict[str, Any]], bool] = lambda row, m=model, s=scene: (  # noqa: E731
                (row["model"], row["workload"]) == (m, s)
            )
            times = [best([row for row in rows if here(row)]) for rows in (graphs, ours)]
            for package in PACKAGES:
                own = [
                    r for r in theirs if here(r) and CODE.get(r["engine"], r["engine"]) == package
                ]
                times.append(best(own))
            least = min(time for time in times if time is not None)
            shown = [
                "-" if t is None else f"**{t:.1f}**" if t == least else f"{t:.1f}" for t in times
            ]
            lines.append(f"| {model} | {scene} | {' | '.join(shown)} |")
    files = f"`{GRAPHS}`, `{OURS}`, `{PEERS}`"
    return "\n".join([*lines, "", f"Median wall times [ms]: {files}.", ""])


def share(rows: list[dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> float:
    """Rows that hold, in 100."""
    return 100 * sum(map(holds, rows)) / len(rows)


def solvers() -> str:
    """Registration recall of the solvers on the same matches."""
    content = json.loads((ROOT / SOLVERS).read_text())
    pairs = [row for row in content["rows"] if row["overlap"] > 0]
    parts = [pairs, *([row for row in pairs if (row["overlap"] > 0.3) == far] for far in (1, 0))]
    lines = ["| | RR % | overlap above 0.3 | below | cliques minus it |", "|:--|--:|--:|--:|--:|"]
    for name, shown in SOLVER_NAMES.items():
        recall = " | ".join(f"{share(part, lambda row, n=name: row[n]):.1f}" for part in parts)
        gain = content["header"]["cliques_minus"].get(name)
        lines.append(
            f"| {shown} | {recall} | {'{:+.1f} [{:+.1f}, {:+.1f}]'.format(*gain) if gain else ''} |"
        )
    return "\n".join([*lines, "", f"Simulated rooms: `{SOLVERS}`.", ""])


def solver_times() -> str:
    """Recall of solvers on a CPU, and the time of its cores for a pair."""
    lists: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(SOLVER_TIMES):
        lists.setdefault(row["engine"], []).append(row)
    names = [row["workload"] for row in next(iter(lists.values()))]
    heads = [f"{name.rpartition(', ')[2]}: RR %, interval over rooms" for name in names]
    lines = [f"| | {' | '.join(f'{head} | ms: median, mean, p95' for head in heads)} |"]
    lines.append("|:--|" + "--:|--:|" * len(names))
    for engine, rows in lists.items():
        cells = []
        for row in rows:
            said = row["params"]
            cells.append(f"{said['rr']:.1f} [{said['rr_low']:.1f}, {said['rr_high']:.1f}]")
            times = row["host_ms"], said["host_mean_ms"], said["host_p95_ms"]
            cells.append(", ".join(f"{time:.1f}" for time in times))
        lines.append(f"| `{engine}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Simulated rooms: `{SOLVER_TIMES}`.", ""])


def verifier() -> str:
    """Answers of the verifiers by the confidence that is asked for."""
    networks: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(VERIFIER):
        networks.setdefault(row["network"], []).append(row)
    heads = [
        f"`{name}`: two rooms, answered | right poses, answered | answers that are wrong"
        for name in networks
    ]
    lines = [
        f"| answers from a confidence of | {' | '.join(heads)} |",
        "|--:|" + "--:|--:|--:|" * len(networks),
    ]
    for least in (0.5, 0.75, 0.9):
        answered: Callable[[dict[str, Any]], bool] = lambda row, t=least: (  # noqa: E731
            row["confidence"] >= t
        )
        cells = []
        for rows in networks.values():
            told = [row for row in rows if answered(row)]
            cells += [
                share([row for row in rows if not row["overlaps"]], answered),
                share([row for row in rows if row["right"]], answered),
                share(told, lambda row: not row["right"]),
            ]
        shown = f"**{least}** (default)" if least == 0.75 else str(least)
        lines.append(f"| {shown} | {' | '.join(f'{cell:.1f} %' for cell in cells)} |")
    return "\n".join([*lines, "", f"Simulated rooms: `{VERIFIER}`.", ""])


TABLES: dict[str, Callable[[], str]] = {
    "networks": networks,
    "solvers": solvers,
    "solver_times": solver_times,
    "verifier": verifier,
}


def written(text: str) -> str:
    """A page with its tables written."""
    return MARKED.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


if __name__ == "__main__":
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        before = path.read_text()
        if (after := written(before)) != before:
            path.write_text(after)
            print(f"written: {path}")
