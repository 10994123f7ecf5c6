"""What happens around training steps: checkpoints, exact resume, figures and pictures."""

from pcnn.callbacks.checkpoint import Checkpoint, load_config
from pcnn.callbacks.rng_state import RngState

__all__ = ["Checkpoint", "RngState", "load_config"]
