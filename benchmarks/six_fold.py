"""6-fold figures of S3DIS: runs that tested on different areas, joined by their counts.

Every area is tested by a network that was trained on the others. The figures come from the sum of
the confusion matrices, which is not the mean of the figures (Pointcept, test_s3dis_6fold.py).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torch import Tensor

from pcnn.experiment.run_folder import read_counts
from pcnn.metrics import accuracy, mean_class_accuracy, miou_official


def joined(folders: list[Path]) -> dict[str, Tensor]:
    """Counts [C, C + 1] of all runs together, by the passes that every run has."""
    runs = [read_counts(folder) for folder in folders]
    names = {names for names, _ in runs}
    if len(names) != 1:
        raise ValueError(f"runs count {len(names)} sets of classes: {', '.join(map(str, folders))}")
    every = [name for name in runs[0][1] if all(name in passes for _, passes in runs)]
    return {name: sum(passes[name] for _, passes in runs) for name in every}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, one a test area")
    for name, counts in joined(parser.parse_args().runs).items():
        figures = (miou_official(counts), mean_class_accuracy(counts), accuracy(counts))
        print(name, *(f"{100 * float(value):.2f} %" for value in figures))


if __name__ == "__main__":
    main()
