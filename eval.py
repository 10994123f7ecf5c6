"""Evaluate a checkpoint: `python eval.py ckpt_path=logs/<task>/<run>/checkpoints/best.ckpt`."""

from pcnn.programs import CONF
from pcnn.programs.eval import main, run

__all__ = ["CONF", "main"]

if __name__ == "__main__":
    run()
