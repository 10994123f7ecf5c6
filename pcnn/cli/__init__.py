"""The `pcnn` command."""

from __future__ import annotations

import sys

from pcnn.cores import spin_briefly

spin_briefly()  # before anything imports torch


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line, also while its parts are imported."""
    try:
        from pcnn.cli.commands import app

        app()
    except KeyboardInterrupt:  # inside a command it is `App` that handles it
        print("\nCtrl-C: stopped", file=sys.stderr, flush=True)
        raise SystemExit(130) from None
