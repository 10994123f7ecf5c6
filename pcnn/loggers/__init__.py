"""Loggers of a run: `csv` files, and Weights & Biases (`wandb`) under one id for all its parts."""

from pcnn.loggers.csv import RunCSVLogger
from pcnn.loggers.wandb import RunWandbLogger, finish, send_media, stored_run_id

__all__ = ["RunCSVLogger", "RunWandbLogger", "finish", "send_media", "stored_run_id"]
