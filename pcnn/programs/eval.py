"""Evaluate a checkpoint: `pcnn eval ckpt_path=logs/<task>/<run>/checkpoints/best.ckpt`."""

from __future__ import annotations

import sys

import hydra
from omegaconf import DictConfig

from pcnn.programs import CONF
from pcnn.programs.command_line import short_errors


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="eval")
def main(cfg: DictConfig) -> float | None:
    """Run one evaluation."""
    with short_errors():
        from pcnn.experiment.run import evaluate  # after Hydra, so that --help is quick

        return evaluate(cfg)


def run() -> None:
    """Run the command line of this process."""
    with short_errors():
        from pcnn.experiment.stored_options import with_stored_options

        # the network's own options are composed first, so that every key of them can be set
        sys.argv[1:] = with_stored_options(sys.argv[1:], CONF)
        main()


if __name__ == "__main__":  # processes of `ddp` start here
    run()
