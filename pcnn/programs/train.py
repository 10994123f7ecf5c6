"""Train a network: `pcnn train model=minkunet dataset=kitti` (`--help` lists the groups)."""

from __future__ import annotations

from functools import partial

import hydra
from omegaconf import DictConfig

from pcnn.programs import CONF
from pcnn.programs.command_line import run_with_stored_options, short_errors


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def main(cfg: DictConfig) -> float | None:
    """Run one job; returns the figure that a sweep compares."""
    with short_errors():
        from pcnn.experiment.run import train  # after Hydra, so that --help is quick

        return train(cfg)


run = partial(run_with_stored_options, main)

if __name__ == "__main__":  # processes of `ddp` start here
    run()
