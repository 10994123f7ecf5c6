"""Whether W&B runs online, offline or not at all, decided without asking anybody."""

from __future__ import annotations

import inspect
import os
import threading
from typing import Any, Literal, cast

from lightning.pytorch.utilities import rank_zero_warn

Mode = Literal["online", "offline", "disabled"]
MODES = ("online", "offline", "disabled")


def logged_in(timeout: float = 15.0) -> bool:
    """Whether W&B knows who we are, answered within `timeout` seconds and without a prompt.

    Credentials come from where W&B looks for them (`WANDB_API_KEY`, its settings, .netrc) and are
    verified with its server. No credentials, refused ones, no network and no answer in time all
    mean False.

    Args:
        timeout: seconds to wait.
    """
    answer: list[bool] = []

    def ask() -> None:
        import wandb

        # W&B before 0.22 cannot be kept from prompting; there, credentials are only looked up
        known = inspect.signature(wandb.login).parameters
        try:
            if "prompt" in known:
                answer.append(bool(wandb.login(prompt=False)))
            else:
                answer.append(wandb.api.api_key is not None)
        except Exception as error:  # W&B's own errors share no base with those of the network
            rank_zero_warn(f"W&B did not accept the login ({first_line(error)})")

    # a daemon thread: an answer that never comes must not keep the process alive either
    thread = threading.Thread(target=ask, daemon=True, name="wandb-login")
    thread.start()
    thread.join(timeout)
    return bool(answer and answer[0])


def resolve_mode(mode: str | None = None, login_timeout: float = 15.0) -> Mode:
    """Choose the mode of a run.

    The first that applies: `mode`; W&B's own variable `WANDB_MODE`; online when `logged_in`;
    offline. Online without a login becomes offline with a warning, because W&B would prompt.

    Args:
        mode: ``online``, ``offline``, ``disabled``, or None to decide here.
        login_timeout: seconds that the login may take.

    Raises:
        ValueError: an unknown mode was given.
    """
    given = mode or os.environ.get("WANDB_MODE") or None
    given = {"dryrun": "offline", "run": "online"}.get(given or "", given)  # older names
    if given is not None and given not in MODES:
        source = "logger mode" if mode else "WANDB_MODE"
        raise ValueError(f"{source} is {given!r}; possible: {', '.join(MODES)}")
    if given in ("offline", "disabled"):
        return cast("Mode", given)
    if logged_in(login_timeout):
        return "online"
    if given == "online":
        rank_zero_warn(
            "W&B was to run online, but there is no valid login (`wandb login` makes one): "
            "logging offline, `wandb sync` uploads later"
        )
    return "offline"


def first_line(error: Any) -> str:
    """Return the first line of an error's message, with its type."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"
