"""Rows of measurements, and the files that hold them.

A row is a dict. Its key ``result`` holds what was measured (or ``left_out``: why there is nothing);
all other keys say what was measured, and with the machine they tell rows apart. A file groups rows
by machine: ``{"runs": [{"machine": {...}, "rows": [...]}, ...]}``.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from pcnn.errors import FileError
from pcnn.files.whole_file import whole_file

Row = dict[str, Any]

#: Published results; nothing is written there unless a file is named.
RESULTS = Path(__file__).parent / "results"
_NO_IDENTITY = ("result", "machine")  # keys that do not tell rows apart
_NO_MACHINE = ("date",)  # of a machine, what does not tell its rows apart either


def identity(row: Row) -> str:
    machine = {k: v for k, v in row.get("machine", {}).items() if k not in _NO_MACHINE}
    own = {key: value for key, value in row.items() if key not in _NO_IDENTITY}
    return json.dumps([own, machine], sort_keys=True)


def merged(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    again = {identity(row): row for row in new}
    return [*(row for row in old if identity(row) not in again), *again.values()]


def is_measured(row: Row) -> bool:
    return "left_out" not in row["result"]


def described(row: Row) -> str:
    said = [f"{k} {v}" for k, v in row.items() if k not in ("result", "figure", "machine")]
    result = [
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row["result"].items()
    ]
    return f"{row.get('figure', '')}: {', '.join(said)} | {', '.join(result)}"


def ratios(rows: Iterable[Row]) -> str:
    """Rows of two trees: the time of the first one over that of the other, smallest of all runs."""
    by: dict[str, dict[str, list[Row]]] = {}
    for row in filter(is_measured, rows):
        on = row["machine"]
        tree = f"{on['revision']}+{on.get('changes', '')}"
        place = identity({k: v for k, v in row.items() if k not in ("machine", "run")})
        by.setdefault(place, {}).setdefault(tree, []).append(row)
    lines = []
    for found in by.values():
        for clock in ("device_ms", "busy_ms", "wall_ms"):
            times = [[row["result"].get(clock) for row in own] for own in found.values()]
            if len(times) == 2 and all(map(all, times)):
                row = next(iter(found.values()))[0]
                said = described({**row, "result": {"of": clock}})
                lines.append(f"{min(times[0]) / min(times[1]):.3f}  {said}")
                break
    return "\n".join(lines)


def read(path: Path) -> list[Row]:
    try:
        runs = json.loads(path.read_text())["runs"]
        return [{**row, "machine": run["machine"]} for run in runs for row in run["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(path, f"must be a file of benchmark results ({error})") from error


def write(path: Path, rows: Iterable[Row]) -> None:
    runs: dict[str, tuple[dict[str, Any], list[Row]]] = {}
    for row in rows:
        machine = row.get("machine", {})
        kept = runs.setdefault(json.dumps(machine, sort_keys=True), (machine, []))[1]
        kept.append({key: value for key, value in row.items() if key != "machine"})
    lines = []
    for machine, own in runs.values():
        body = ",\n".join("  " + json.dumps(row) for row in own)
        lines.append(f'{{"machine": {json.dumps(machine)},\n "rows": [\n{body}\n]}}')
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(('{"runs": [\n' + ",\n".join(lines) + "\n]}\n").encode())


def new_file(device: torch.device, name: str) -> Path:
    folder = Path("benchmark-results")
    stem = f"{name}-{short_name(device)}"
    numbers = (f"-{number}" for number in range(2, 10_000))
    names = (f"{stem}{suffix}.json" for suffix in ("", *numbers))
    return next(folder / one for one in names if not (folder / one).exists())


def machine(device: torch.device, revision: str | None = None) -> dict[str, Any]:
    on_gpu = device.type == "cuda"
    cpu = f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if on_gpu else cpu,
        "driver": _answer("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "cuda": torch.version.cuda if on_gpu else None,
        **_tree(revision),
        "date": datetime.date.today().isoformat(),
    }
    return {key: value for key, value in found.items() if value not in (None, "")}


def short_name(device: torch.device) -> str:
    """Name of a device in file names: ``cpu``, or the GPU's model such as ``h200``."""
    if device.type != "cuda":
        return "cpu"
    words = torch.cuda.get_device_name(device).lower().split()
    return "-".join(word for word in words if word not in ("nvidia", "geforce", "tesla"))


def _tree(revision: str | None) -> dict[str, Any]:
    """Commit, and of a tree with changes their digest: two of them are never one."""
    import pcnn

    folder = Path(pcnn.__file__).resolve().parents[1]
    commit = _answer("git", "rev-parse", "--short=12", "HEAD", folder=folder)
    if not commit or revision:
        return {"revision": revision or f"pcnn {_version('pcnn3d')}", "clean": revision is not None}
    changes = _answer("git", "diff", "HEAD", "--", "pcnn", "csrc", "benchmarks", folder=folder)
    if not changes:
        return {"revision": commit, "clean": True}
    digest = hashlib.sha256(changes.encode()).hexdigest()[:12]
    return {"revision": commit, "clean": False, "changes": digest}


def _answer(*command: str, folder: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
