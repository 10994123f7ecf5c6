"""Typer, with ranges of options, and with errors in at most three lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup

from pcnn.cli.ranged import ranged
from pcnn.errors import UserError
from pcnn.escaping import escaped_output, say

Command = TypeVar("Command", bound=Callable[..., Any])

#: What typer raises at a mistake of the command line. It carries click within it since 0.20, or
#: imports it, and names the common class in neither.
MISTAKE: type[Any] = typer.BadParameter.mro()[2]

#: Exit code of a process that Ctrl-C ended: 128 and the number of SIGINT.
INTERRUPTED = 130


class Group(TyperGroup):
    """A group that shows errors as text: no frame, which tears long names apart."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command line and end the process with its exit code."""
        ends = settings.pop("standalone_mode", True)
        settings["standalone_mode"] = False
        try:
            with escaped_output():
                code = super().main(*args, **settings)
        except MISTAKE as error:
            show(error)
            code = error.exit_code
        except (UserError, OSError) as error:
            say(error, error=True)
            code = 2
        except typer.Abort:  # Ctrl-C, in older versions of typer
            code = INTERRUPTED
        if code == INTERRUPTED:
            say("\nCtrl-C: stopped; no file is left half written", error=True)
        if ends:
            sys.exit(code if isinstance(code, int) else 0)
        return code


@contextmanager
def refusing() -> Iterator[None]:
    """Show errors of files, of values and of absent packages as mistakes of the command line.

    Raises:
        typer.BadParameter: in their place.
    """
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise typer.BadParameter(str(error)) from error


class App(typer.Typer):
    """A group of commands, whose numbers are checked against their ranges."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            cls=Group, no_args_is_help=True, pretty_exceptions_enable=False, **settings
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        """Add a command."""
        add = super().command(name, **settings)

        def added(function: Command) -> Command:
            add(ranged(function))
            return function

        return added


def show(error: Any) -> None:
    """Print what is wrong in a command line, and where its options are listed."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed
        return
    context = getattr(error, "ctx", None)
    own = getattr(error, "param", 0) is None and getattr(error, "param_hint", 0) is None
    said = error.message if own else error.format_message()  # a command names its option itself
    say(f"{context.command_path}: {said}" if context else said, error=True)
    if context is not None and not own:
        say(f"help: {context.command_path} --help", error=True)
