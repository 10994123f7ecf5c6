"""Trackers of a run that never stop it."""

from pcnn.loggers.guarded import GuardedLogger, find, finish, guard
from pcnn.loggers.run_identity import stored_run_id
from pcnn.loggers.wandb import RunWandbLogger, resolve_mode

__all__ = [
    "GuardedLogger",
    "RunWandbLogger",
    "find",
    "finish",
    "guard",
    "resolve_mode",
    "stored_run_id",
]
