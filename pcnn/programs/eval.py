"""Evaluate a checkpoint: `pcnn eval ckpt_path=logs/<task>/<run>/checkpoints/best.ckpt`."""

from __future__ import annotations

import sys

import hydra
from omegaconf import DictConfig

from pcnn.programs import CONF
from pcnn.programs.command_line import readable_help, short_errors


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="eval")
def main(cfg: DictConfig) -> float | None:
    """Run one evaluation."""
    with short_errors():
        from pcnn.experiment.evaluate import evaluate

        return evaluate(cfg)


def run() -> None:
    """Run the command line of this process."""
    with short_errors(), readable_help():
        from pcnn.experiment.stored_options import needs_checkpoint, with_stored_options

        needs_checkpoint(sys.argv[1:], CONF)
        # the network's own options are composed first, so that every key of them can be set
        sys.argv[1:] = with_stored_options(sys.argv[1:], CONF)
        main()


if __name__ == "__main__":  # processes of `ddp` start here
    run()
