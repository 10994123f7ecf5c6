"""Train a network: `python train.py model=minkunet dataset=kitti` (`--help` lists the groups)."""

from pcnn.programs import CONF
from pcnn.programs.train import main, run

__all__ = ["CONF", "main"]

if __name__ == "__main__":
    run()
