"""`train.py` and `eval.py` with their configuration, as the package brings them."""

from pathlib import Path

from pcnn.cores import spin_briefly

#: Folder of the configuration groups.
CONF = Path(__file__).resolve().parents[1] / "conf"

spin_briefly()  # before anything imports torch
