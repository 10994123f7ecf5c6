"""Command lines of `train.py` and `eval.py`: a mistake ends with 2, help fits 80 columns."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from hydra.errors import HydraException, MissingConfigException

from pcnn.console import until_output_closes
from pcnn.errors import UserError, storage_cause
from pcnn.messages import escaped_output, install, program, say

#: Options of Hydra's plugins, and the extras that bring them.
_OF_EXTRAS = {"submitit_slurm": "cluster", "optuna": "sweep"}
_MAX_LINES = 3
EXIT_CODE = 2
COLUMNS = 80  # of the help: Hydra lists a group in one line


@contextmanager
def short_errors() -> Iterator[None]:
    """End with a short message and exit code 2 for a mistake of the command line or of the data."""
    # Hydra prints composition errors itself, in a dozen lines, unless told to raise them
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    try:
        with until_output_closes(), escaped_output():
            yield
    except (UserError, FileNotFoundError) as error:
        stop(str(error))
    except KeyboardInterrupt:  # before a run took Ctrl-C for itself
        say("Ctrl-C: stopped before the run began", error=True)
        raise SystemExit(128 + signal.SIGINT) from None
    except HydraException as error:
        stop(explained(error))
    except OSError as error:  # before a run began; some of Hydra are also of this kind
        cause = storage_cause(error)
        if cause is None:
            raise
        stop(f"{error.filename or Path.cwd()} cannot be written: {cause}")
    except ValueError as error:
        if "Config group override must be" not in str(error):
            raise
        stop(f"a group of the command line names no option: {str(error).splitlines()[0]}")


def stop(text: str) -> None:
    """Print `text` to stderr and leave with exit code 2."""
    say(text, error=True)
    raise SystemExit(EXIT_CODE)


def explained(error: HydraException) -> str:
    """Hydra's own words, on a few lines, and the extra that brings an option where there is one."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        name = str(error.missing_cfg_file).rpartition("/")[2]
        if name in _OF_EXTRAS:
            return f"{name} comes with another package: {install(_OF_EXTRAS[name])}"
        text = re.sub(r"\s*\n\s*", " ", str(error).partition("\nConfig search path")[0])
        return text.strip()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "\n".join(lines[:_MAX_LINES])


@contextmanager
def readable_help() -> Iterator[None]:
    """Where the command line asks for help, wrap what is printed, and name this very program."""
    if not {"--help", "-h"} & set(sys.argv[1:]):
        yield
        return
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:
        text = printed.getvalue()
        for name in ("train", "eval"):
            text = text.replace(f"python {name}.py", program(name))
        for line in text.splitlines():
            long = len(line) > COLUMNS
            fill = textwrap.fill(line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
            say(fill if long else line)
