"""The words that start a program, for messages that show a command."""

from __future__ import annotations

import sys
from pathlib import Path

import pcnn


def program(name: str) -> str:
    """`pcnn train` where this process runs the package's own program, else `python train.py`."""
    own = Path(pcnn.__file__).with_name("programs")
    return f"pcnn {name}" if Path(sys.argv[0]).parent == own else f"python {name}.py"
