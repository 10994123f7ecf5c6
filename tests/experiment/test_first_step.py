"""What a training on real data imports up to its first step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.experiment.command import REPOSITORY, TINY, VARIABLES
from tests.experiment.tiny_kitti import write_tiny_kitti

#: Lines of the package; it may fall alone.
LINES = 24_800
#: Rooms that a segmentation of real scans has no use for.
ABSENT = ("pcnn.simulate", "pcnn.registration", "pcnn.visualize", "pcnn.metrics.registration")
#: Runs train.py, then writes the modules of the package that it imported.
PROGRAM = """
import json, sys
from pcnn.programs.train import run
run()
files = {n: m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "pcnn" and m.__file__}
json.dump(files, open("modules.json", "w"))
"""


def test_a_training_on_real_data_imports_what_it_needs(tmp_path: Path) -> None:
    write_tiny_kitti(tmp_path / "kitti", {0: 2, 8: 1}, points=150)
    words = (*TINY, "dataset.root=kitti", "trainer.max_steps=1", "trainer.limit_val_batches=0")
    subprocess.run(
        [sys.executable, "-c", PROGRAM, *words, "hydra.run.dir=run"],
        cwd=tmp_path,
        env={**os.environ, **VARIABLES, "PYTHONPATH": str(REPOSITORY)},
        check=True,
        capture_output=True,
    )
    files: dict[str, str] = json.loads((tmp_path / "modules.json").read_text())
    assert [name for name in files if name.startswith(ABSENT)] == []
    assert sum(len(Path(file).read_text().splitlines()) for file in files.values()) < LINES
