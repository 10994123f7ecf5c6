"""Weights & Biases: a run lives in a folder, under one id, and training never waits for it."""

from __future__ import annotations

import inspect
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only, rank_zero_warn

from pcnn.errors import first_line
from pcnn.files.whole_file import whole_file
from pcnn.messages import say
from pcnn.ranges import Positive

Mode = Literal["online", "offline", "disabled"]
MODES: tuple[Mode, ...] = ("online", "offline", "disabled")
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
        mode: str | None = None,
        config: Mapping[str, Any] | None = None,
        init_timeout: Positive = 20.0,
        login_timeout: Positive = 15.0,
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
            run = started(resolve_mode(mode, login_timeout), init_timeout, init)
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
            rank_zero_warn(
                f"W&B has not taken the rest of the run within {self._finish_timeout:g} s. "
                f"To upload later: wandb sync {Path(run.dir).parent}"
            )


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
        # W&B's closing summary would bury what the run itself says at its end; offline it has
        # nothing to tell but hints
        settings = wandb.Settings(init_timeout=timeout, quiet=True, silent=attempt == "offline")
        try:
            run = wandb.init(
                mode=attempt, resume="allow", allow_val_change=True, settings=settings, **init
            )
        except Exception as error:  # whatever it is, training goes on
            if attempt == "disabled":
                raise
            remedy = "it logs offline" if attempt == "online" else "the run goes on without W&B"
            rank_zero_warn(f"W&B did not start {attempt} ({first_line(error)}): {remedy}")
            continue
        if attempt == "online":
            say(f"W&B: {run.url}")
        elif attempt == "offline":
            say(f"W&B: offline. To upload: wandb sync {Path(run.dir).parent}")
        run.define_metric("trainer/global_step")
        run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
        for metric, summary in SUMMARIES.items():
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
        raise ValueError(
            f"{path} holds {run_id!r}, which is no run id (letters, digits, - and _); "
            "delete the file to start a new id"
        )
    return run_id


def run_name(folder: Path, config: Mapping[str, Any] | None) -> str:
    """Model, data set, voxel size, points where they are native, and the folder's name (a date).

    For example ``minkunet-kitti-0.1m-2026-03-01_12-30-00``. A job of a sweep has a number for its
    folder, so the sweep's name stands before that.
    """
    groups = {key: value for key, value in (config or {}).items() if isinstance(value, dict)}
    name = {key: group.get("name") for key, group in groups.items()}
    data = groups.get("dataset", {})
    edge = data.get("voxel_size")
    place = folder.resolve()
    parts = [
        name.get("model"),
        name.get("dataset"),
        None if edge is None else f"{edge:g}m",
        "point" if name.get("geometry") == "point" else None,
        place.parent.name if place.name.isdigit() else None,
        place.name,
    ]
    return "-".join(str(part) for part in parts if part)


def login_problem(timeout: float = 15.0) -> str | None:
    """Why W&B does not know who we are, or None when it does; never prompts."""
    answer: list[str | None] = []

    def ask() -> None:
        import wandb

        missing = "no credentials, `wandb login` makes some"
        try:
            # W&B before 0.22 cannot be kept from prompting; there, credentials are only looked up
            if "prompt" in inspect.signature(wandb.login).parameters:
                known = wandb.login(prompt=False)
            else:
                known = wandb.api.api_key is not None
        except Exception as error:  # W&B's own errors share no base with those of the network
            answer.append(first_line(error))
        else:
            answer.append(None if known else missing)

    # a daemon thread: an answer that never comes must not keep the process alive either
    thread = threading.Thread(target=ask, daemon=True, name="wandb-login")
    thread.start()
    thread.join(timeout)
    return answer[0] if answer else f"no answer within {timeout:g} s"


def resolve_mode(mode: str | None = None, login_timeout: float = 15.0) -> Mode:
    """The mode of a run: as given, by `WANDB_MODE`, online when the login succeeds, or offline.

    Online without a login becomes offline as well, because W&B would prompt. One warning says so,
    unless online was not asked for and there are no credentials.
    """
    given = mode or os.environ.get("WANDB_MODE") or None
    given = {"dryrun": "offline", "run": "online"}.get(given or "", given)  # older names
    if given is not None and given not in MODES:
        source = "logger mode" if mode else "WANDB_MODE"
        raise ValueError(f"{source} is {given!r}; possible: {', '.join(MODES)}")
    if given in ("offline", "disabled"):
        return cast("Mode", given)
    problem = login_problem(login_timeout)
    if problem is None:
        return "online"
    if given == "online" or "no credentials" not in problem:
        rank_zero_warn(f"W&B login failed ({problem}): logging offline, `wandb sync` uploads later")
    return "offline"
