"""What happens around training steps: checkpoints, exact resume, figures and pictures."""

from pcnn.callbacks.checkpoint import Checkpoint, load_config
from pcnn.callbacks.prediction_picture import PredictionPicture
from pcnn.callbacks.progress import TrainingProgress
from pcnn.callbacks.rng_state import RngState
from pcnn.callbacks.throughput import Throughput
from pcnn.callbacks.wandb_media import WandbMedia

__all__ = [
    "Checkpoint",
    "PredictionPicture",
    "RngState",
    "Throughput",
    "TrainingProgress",
    "WandbMedia",
    "load_config",
]
