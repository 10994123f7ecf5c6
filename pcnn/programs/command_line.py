"""Command lines of `train.py` and `eval.py`: a mistake ends with 2."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hydra.errors import HydraException

from pcnn.errors import UserError
from pcnn.messages import escaped_output, say
from pcnn.programs import CONF

EXIT_CODE = 2


@contextmanager
def short_errors() -> Iterator[None]:
    """End with a short message and exit code 2 for a mistake of the command line or of the data."""
    # Hydra prints composition errors itself, in a dozen lines, unless told to raise them
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    try:
        with escaped_output():
            yield
    except (UserError, FileNotFoundError) as error:
        stop(str(error))
    except KeyboardInterrupt:  # before a run took Ctrl-C for itself
        say("Ctrl-C: stopped before the run began", error=True)
        raise SystemExit(128 + signal.SIGINT) from None
    except HydraException as error:
        text = str(error).partition("\nConfig search path")[0]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        stop("\n".join([*lines[:2], " ".join(lines[2:])]).strip())
    except ValueError as error:
        if "Config group override must be" not in str(error):
            raise
        stop(f"a group of the command line names no option: {str(error).splitlines()[0]}")


def run_with_stored_options(main: Callable[[], object]) -> None:
    """Run the command line of this process; a stored run's or network's own options come first."""
    with short_errors():
        from pcnn.experiment.stored_options import with_stored_options

        sys.argv[1:] = with_stored_options(sys.argv[1:], CONF)
        main()


def stop(text: str) -> None:
    """Print `text` to stderr and leave with exit code 2."""
    say(text, error=True)
    raise SystemExit(EXIT_CODE)
