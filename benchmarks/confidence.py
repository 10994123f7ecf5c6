"""How sure a network is of real scans, and the temperature that all places but one ask for.

    python -m benchmarks.confidence FOLDER --sequences 00,02 --scans 0,4,9 --out FILE

FOLDER has SemanticKITTI's layout. Neighbouring points are wrong together, so 20,000 random points
of a scan are kept. The error of a place is that at the temperature of the other places.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from benchmarks.fit_verifier import confidence_error
from benchmarks.rows import machine
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.semantic_kitti import read_scan
from pcnn.experiment.catalogue import weights_file
from pcnn.experiment.predictor import Predictor

KEPT = 20_000

Place = tuple[Tensor, Tensor]


def scores(predictor: Predictor, root: Path, sequence: str, scan: int) -> Place:
    path = root / "sequences" / sequence / "velodyne" / f"{scan:06d}.bin"
    points, remission, rows, _ = read_scan(path)
    raw = np.fromfile(path.parents[1] / "labels" / f"{path.stem}.label", "<u4")[rows] & 0xFFFF
    labels = torch.from_numpy(predictor.label_map.encode(raw, str(path)))
    cloud = Cloud(torch.from_numpy(points), torch.from_numpy(remission), None, path.stem, str(path))
    scored = replace(predictor, temperature=1.0).scored(cloud)
    logits = scored.scores.double().clamp_min(1e-30).log().float()[scored.inverse]
    known = labels != IGNORE
    return logits[known], labels[known]


def joined(places: list[Place]) -> Place:
    return torch.cat([logits for logits, _ in places]), torch.cat([labels for _, labels in places])


def fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The number to divide logits by at which labels are most likely (Guo et al. 2017, 4.2)."""
    wide = logits.double()

    def loss(log: float) -> float:  # convex in 1 / T, so it has one minimum in log T
        return float(torch.nn.functional.cross_entropy(wide * math.exp(-log), labels))

    return math.exp(minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="seg_streets")
    parser.add_argument("--sequences", default="00,02,04,06,09")
    parser.add_argument("--scans", default="0,4,9")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    predictor = Predictor.load(weights_file(given.model), torch.device("cpu"))
    drawn = torch.Generator().manual_seed(0)
    kept: dict[str, Place] = {}
    shares: dict[str, dict[str, float]] = {}
    for sequence in given.sequences.split(","):
        scans = [scores(predictor, given.folder, sequence, int(n)) for n in given.scans.split(",")]
        logits, labels = joined(scans)
        shares[sequence] = {
            "points": len(labels),
            "accuracy": round(float((logits.argmax(1) == labels).float().mean()), 4),
        }
        few = [torch.randperm(len(known), generator=drawn)[:KEPT] for _, known in scans]
        kept[sequence] = joined([(a[n], b[n]) for (a, b), n in zip(scans, few, strict=True)])
    rows = []
    for sequence, (logits, labels) in kept.items():
        others = fitted_temperature(*joined([kept[one] for one in kept if one != sequence]))
        at = {"shipped": predictor.temperature, "others": others}
        row = {"sequence": sequence, **shares[sequence], "temperature_of_others": others}
        for name, temperature in at.items():
            sure = (logits / temperature).softmax(1)
            confidence, classes = sure.double().max(1)
            row[f"error_{name}"] = confidence_error(confidence, classes == labels, 15)
            row[f"confidence_{name}"] = sure.amax(1).mean().item()
        rows.append(row)
    found = {
        "machine": machine(torch.device("cpu")),
        "model": given.model,
        "scans": given.scans,
        "temperature": fitted_temperature(*joined(list(kept.values()))),
        "rows": rows,
    }
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(given.out.read_text())


if __name__ == "__main__":
    main()
