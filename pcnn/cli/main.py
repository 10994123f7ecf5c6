"""The `pcnn` command: one file a subcommand, mounted here."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Point-cloud networks.")


def main() -> None:
    """Run the command line."""
    app()
