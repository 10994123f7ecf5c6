"""Train a network: `python train.py model=minkunet dataset=kitti` (`--help` lists the groups)."""

from __future__ import annotations

from pathlib import Path

import hydra
from omegaconf import DictConfig

from pcnn.experiment.errors import short_errors

CONF = Path(__file__).parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def main(cfg: DictConfig) -> float | None:
    """Run one job; returns the figure that a sweep compares."""
    with short_errors(CONF):
        from pcnn.experiment.run import train  # after Hydra, so that --help is quick

        return train(cfg)


if __name__ == "__main__":
    with short_errors(CONF):
        main()
