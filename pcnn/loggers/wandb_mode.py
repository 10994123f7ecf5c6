"""Whether W&B runs online, offline or not at all, decided without asking anybody."""

from __future__ import annotations

import inspect
import os
import threading
from typing import Any, Literal, cast

from lightning.pytorch.utilities import rank_zero_warn

Mode = Literal["online", "offline", "disabled"]
MODES = ("online", "offline", "disabled")


def login_problem(timeout: float = 15.0) -> str | None:
    """Return why W&B does not know who we are, or None when it does; never prompts.

    Credentials come from where W&B looks for them (`WANDB_API_KEY`, its settings, .netrc) and are
    verified with its server.

    Args:
        timeout: seconds to wait for an answer.
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
    warning says so, unless nobody asked for online and there are no credentials to begin with.

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
