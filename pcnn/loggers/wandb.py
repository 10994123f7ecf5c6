"""Weights & Biases, which training never waits for, never stops for, and resumes under one id."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities import rank_zero_only, rank_zero_warn

from pcnn.escaping import say
from pcnn.lightning_internals import forget_run, is_attached, start_wandb, wandb_run
from pcnn.loggers.run_identity import StepMark, run_name, stored_run_id
from pcnn.ranges import Positive

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

    * **Identity.** The id is made and stored in ``<run folder>/run_id.txt`` here, before training,
      and reused with ``resume="allow"`` whenever the folder is: a resumed run stays one run.
    * **Mode.** See `pcnn.loggers.wandb.resolve_mode`; decided when the run starts. A start
      that fails or takes longer than `init_timeout` online is repeated offline with one warning,
      one that fails offline switches W&B off with one warning.
    * **Steps** only increase: those that a resumed run repeats are not reported again.

    W&B itself is imported when the run starts.
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
        if config is not None and type(config) is not dict:
            raise TypeError(
                f"config must be a plain dict, got {type(config).__name__}; "
                "pass OmegaConf.to_container(config, resolve=True)"
            )
        folder = Path(run_folder)
        run_id = stored_run_id(folder)
        # a run that W&B knows keeps its name, which may have been changed on the site
        known = any(folder.glob("wandb/*run-*"))
        super().__init__(
            name=None if known else name or run_name(folder, config),
            save_dir=os.fspath(folder),
            id=run_id,
            project=project,
            log_model=log_model,
            config=config,
            **kwargs,
        )
        self._run_id = run_id
        self._mode = mode
        self._init_timeout = init_timeout
        self._login_timeout = login_timeout
        self._finish_timeout = finish_timeout
        self._mark = StepMark(folder / "wandb" / "logged_step.txt")

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The W&B run, started at first use."""
        if wandb_run(self) is None:
            self._start()
        return wandb_run(self)

    def _start(self) -> None:
        import wandb

        if is_attached(self):
            start_wandb(self)
            return
        if wandb.run is not None and wandb.run.id != self._run_id:
            wandb.run.finish()  # of another training in this process: two runs would be mixed
        mode = resolve_mode(self._mode, self._login_timeout)
        fallbacks = {"online": ["offline", "disabled"], "offline": ["disabled"], "disabled": []}
        for attempt in (mode, *fallbacks[mode]):
            # W&B's closing summary would bury what the run itself says at its end; offline it has
            # nothing to tell but hints
            settings = wandb.Settings(
                init_timeout=self._init_timeout, quiet=True, silent=attempt == "offline"
            )
            try:
                run = start_wandb(self, mode=attempt, settings=settings, allow_val_change=True)
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
            for metric, summary in SUMMARIES.items():
                run.define_metric(
                    metric, step_metric="trainer/global_step", step_sync=True, summary=summary
                )
            return

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log figures, unless a run resumed behind an interruption repeats their step."""
        if step is None or self._mark.admits(step):
            super().log_metrics(metrics, step)

    @rank_zero_only
    def finish(self) -> None:
        """End the run: flush everything and free the process for another one."""
        run = wandb_run(self)
        if run is None:
            return
        forget_run(self)
        errors: list[Exception] = []

        def end() -> None:
            try:
                run.finish()
            except Exception as error:  # for the caller, who decides
                errors.append(error)

        # W&B tries again for days where its server is gone
        thread = threading.Thread(target=end, daemon=True, name="wandb-finish")
        thread.start()
        thread.join(self._finish_timeout)
        if errors:
            raise errors[0]
        if thread.is_alive():
            rank_zero_warn(
                f"W&B has not taken the rest of the run within {self._finish_timeout:g} s. "
                f"To upload later: wandb sync {Path(run.dir).parent}"
            )


Mode = Literal["online", "offline", "disabled"]
MODES = ("online", "offline", "disabled")


def login_problem(timeout: float = 15.0) -> str | None:
    """Return why W&B does not know who we are, or None when it does; never prompts.

    Credentials come from where W&B looks for them (`WANDB_API_KEY`, its settings, .netrc) and are
    verified with its server.
    """
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
    """Choose the mode of a run.

    The first that applies: `mode`; W&B's own variable `WANDB_MODE`; online when the login
    succeeds; offline. Online without a login becomes offline as well, because W&B would prompt. One
    warning says so, unless online was not asked for and there are no credentials.
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


def first_line(error: Any) -> str:
    """Return the first line of an error's message, with its type."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"
