"""Weights & Biases: a run lives in a folder, under one id, and training never waits for it."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only, rank_zero_warn

from pcnn.errors import first_line
from pcnn.files.whole_file import whole_file
from pcnn.messages import say
from pcnn.ranges import Positive

Mode = Literal["online", "offline", "disabled"]
MODES: tuple[Mode, ...] = get_args(Mode)
ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"

# what the run's summary keeps of a figure, instead of its last value
SUMMARIES = {
    "val/miou": "max",
    "val/miou_present": "max",
    "val/accuracy": "max",
    "val/loss": "min",
    "train/loss": "min",
}


class RunWandbLogger(WandbLogger):
    """Lightning's W&B logger for a run that lives in a folder.

    The id is kept in ``<run folder>/run_id.txt`` and used again whenever the folder is: a resumed
    run stays one run. A start that fails or takes longer than `init_timeout` online is repeated
    offline, one that fails offline switches W&B off; each with one warning.
    """

    def __init__(
        self,
        run_folder: str | Path,
        project: str = "pcnn",
        name: str | None = None,
        mode: Mode | None = None,
        config: Mapping[str, Any] | None = None,
        init_timeout: Positive = 20.0,
        finish_timeout: Positive = 300.0,
        log_model: bool = False,
        **kwargs: Any,
    ) -> None:
        folder = Path(run_folder)
        run_id = stored_run_id(folder)
        # a run that W&B knows keeps its name, which may have been changed on the site
        known = any(folder.glob("wandb/*run-*"))
        init = {
            "name": None if known else name or run_name(folder, config),
            "id": run_id,
            "project": project,
            "dir": os.fspath(folder),
            "config": config,
            **kwargs,
        }
        run = None
        if getattr(rank_zero_only, "rank", 0) == 0:
            run = started(resolve_mode(mode), init_timeout, init)
        super().__init__(
            save_dir=os.fspath(folder),
            id=run_id,
            project=project,
            log_model=log_model,
            experiment=run,
        )
        self._finish_timeout = finish_timeout

    @rank_zero_only
    def finish(self) -> None:
        """End the run: flush everything and free the process for another one."""
        run: Any = self.experiment
        # W&B tries again for days where its server is gone
        thread = threading.Thread(target=run.finish, daemon=True, name="wandb-finish")
        thread.start()
        thread.join(self._finish_timeout)
        if thread.is_alive():
            rank_zero_warn(f"W&B does not end; to upload later: wandb sync {Path(run.dir).parent}")


def finish(loggers: Iterable[Logger]) -> None:
    """End every run that has an end; call it when a job is over, also after an error."""
    for logger in loggers:
        if isinstance(logger, RunWandbLogger):
            logger.finish()


def send_media(
    loggers: Iterable[Logger], media: Callable[[], Mapping[str, Any]], step: int | None = None
) -> None:
    """Send media to W&B where it is among the loggers; a failure costs the media, no more."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            try:
                logger.log_metrics(dict(media()), step)
            except Exception as error:  # of W&B, which has many kinds
                rank_zero_warn(f"W&B did not take the media: {first_line(error)}")


def started(mode: Mode, timeout: float, init: Mapping[str, Any]) -> Any:
    """A run of W&B, in the mode or in a lesser one."""
    import wandb

    if wandb.run is not None and wandb.run.id != init["id"]:
        wandb.run.finish()  # of another training in this process: two runs would be mixed
    for attempt in MODES[MODES.index(mode) :]:
        # W&B's closing summary would bury what the run itself says at its end
        settings = wandb.Settings(init_timeout=timeout, quiet=True, silent=attempt == "offline")
        try:
            run = wandb.init(
                mode=attempt, resume="allow", allow_val_change=True, settings=settings, **init
            )
        except Exception as error:  # whatever it is, training goes on
            if attempt == "disabled":
                raise
            rank_zero_warn(f"W&B did not start {attempt}: {first_line(error)}")
            continue
        if attempt != "disabled":
            to_upload = f"offline. To upload: wandb sync {Path(run.dir).parent}"
            say(f"W&B: {run.url if attempt == 'online' else to_upload}")
        run.define_metric("trainer/global_step")
        for metric, summary in {"*": None, **SUMMARIES}.items():
            run.define_metric(
                metric, step_metric="trainer/global_step", step_sync=True, summary=summary
            )
        return run
    return None


def stored_run_id(run_folder: str | Path) -> str | None:
    """The id in ``<run folder>/run_id.txt``, made on rank 0 before training when there is none."""
    path = Path(run_folder) / "run_id.txt"
    if not path.exists():
        if getattr(rank_zero_only, "rank", 0) != 0:
            return None  # only rank 0 talks to a tracker
        with whole_file(path) as file:
            file.write("".join(secrets.choice(ALPHABET) for _ in range(8)).encode() + b"\n")
    run_id = path.read_text().strip()
    if not run_id or not all(c.isalnum() or c in "-_" for c in run_id):
        raise ValueError(f"{path} holds {run_id!r}, which is no run id (letters, digits, - and _)")
    return run_id


def run_name(folder: Path, config: Mapping[str, Any] | None) -> str:
    """Model, data set and the folder's name: ``minkunet-kitti-2026-03-01_12-30-00``."""
    groups = [(config or {}).get(key) for key in ("model", "dataset")]
    names = [str(group["name"]) for group in groups if isinstance(group, dict)]
    return "-".join([*names, folder.resolve().name])


def resolve_mode(mode: Mode | None = None) -> Mode:
    """The mode of a run: as given, by `WANDB_MODE`, online where there are credentials, offline.

    Online without credentials becomes offline too, because W&B would prompt.
    """
    import wandb

    given = mode or os.environ.get("WANDB_MODE") or None
    if given is not None and given not in MODES:
        raise ValueError(f"mode of W&B is {given!r}; possible: {', '.join(MODES)}")
    found = next((one for one in MODES if one == given), None)
    if found in ("offline", "disabled"):
        return found
    try:
        known = bool(wandb.login(prompt=False))
    except Exception as error:  # W&B's own errors share no base with those of the network
        rank_zero_warn(f"W&B login failed, logging offline: {first_line(error)}")
        return "offline"
    if found == "online" and not known:
        rank_zero_warn("W&B has no credentials (`wandb login` makes some): logging offline")
    return "online" if known else "offline"
