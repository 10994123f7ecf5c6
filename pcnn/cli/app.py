"""Typer, with ranges of options, and with errors in at most three lines."""

from __future__ import annotations

import functools
import inspect
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ParameterInfo

from pcnn.cli.examples import EXAMPLES
from pcnn.errors import UserError
from pcnn.escaping import escaped_output, say
from pcnn.hints import accepts, hints_of, named, shown

Command = TypeVar("Command", bound=Callable[..., Any])

#: The error of typer for a mistake of the command line. It carries click within it since 0.20, or
#: imports it, and names the common class in neither.
MISTAKE: type[Any] = typer.BadParameter.mro()[2]

#: Exit code of a process that Ctrl-C ended: 128 and the number of SIGINT.
INTERRUPTED = 130


class Leaf(TyperCommand):
    """A command whose help ends with examples."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples of `EXAMPLES`, line by line: none is broken."""
        lines = EXAMPLES.get(ctx.command_path.partition(" ")[2], ())
        if lines:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in lines))


class Group(TyperGroup):
    """A group that shows help and errors as text: no frame, which tears long names apart."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command with its whole first sentence."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, one.get_short_help_str(1000)) for name, one in commands if one is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

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
            cls=Group,
            no_args_is_help=True,
            pretty_exceptions_enable=False,
            rich_markup_mode=None,
            **settings,
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        """Add a command."""
        add = super().command(name, **{"cls": Leaf, **settings})

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


def ranged(command: Command) -> Command:
    """A command whose numbers are finite and within the ranges that their types declare.

    Typer sees the types without their ranges, which it does not know.
    """
    hints = hints_of(command)
    numbers = {name: hint for name, hint in hints.items() if is_number(hint)}

    @functools.wraps(command)
    def checked(**values: Any) -> None:
        for name, hint in numbers.items():
            value = values[name]
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if one is not None and not accepts(one, each(hint)):
                    raise typer.BadParameter(
                        f"{option(name, hint)} {shown(one)}: must be {named(each(hint))}"
                    )
        command(**values)

    signature = inspect.signature(command)
    parameters = [
        parameter.replace(annotation=plain(hints[name]) if name in numbers else hints[name])
        for name, parameter in signature.parameters.items()
    ]
    checked.__doc__ = unwrapped(command.__doc__ or "")
    checked.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=None
    )
    return checked  # type: ignore[return-value]


def unwrapped(text: str) -> str:
    """A docstring with one line for each paragraph: the terminal's width breaks it, not ours."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(re.sub(r"\n(?=\S)", " ", paragraph) for paragraph in paragraphs)


def is_number(hint: Any) -> bool:
    """True for the hint of numbers: one, several, or none."""
    inner = [one for one in get_args(hint) if not isinstance(one, ParameterInfo)]
    if get_origin(hint) is Annotated:
        return is_number(inner[0])
    return hint in (int, float) or any(is_number(one) for one in inner if one is not hint)


def each(hint: Any) -> Any:
    """The hint of one value of an option that may be absent, or repeated."""
    inner = get_args(hint)
    if get_origin(hint) is Annotated:
        bounds = [one for one in inner[1:] if not isinstance(one, ParameterInfo)]
        return functools.reduce(lambda kind, bound: Annotated[kind, bound], bounds, each(inner[0]))
    if get_origin(hint) in (Union, types.UnionType):
        kinds = (each(one) for one in inner if one is not type(None))
        return functools.reduce(operator.or_, kinds)
    return inner[0] if get_origin(hint) is list else hint


def plain(hint: Any) -> Any:
    """A hint without ranges; what typer is told stays."""
    inner = get_args(hint)
    if get_origin(hint) is Annotated:
        told = [one for one in inner[1:] if isinstance(one, ParameterInfo)]
        return functools.reduce(lambda kind, one: Annotated[kind, one], told, plain(inner[0]))
    if get_origin(hint) in (Union, types.UnionType):
        return functools.reduce(operator.or_, map(plain, inner))
    return list[plain(inner[0])] if get_origin(hint) is list else hint  # type: ignore[misc]


def option(name: str, hint: Any) -> str:
    """The name of an option as it is typed."""
    for one in get_args(hint):
        words = (getattr(one, "default", None), *(getattr(one, "param_decls", None) or ()))
        for word in words:
            if isinstance(word, str) and word.startswith("--"):
                return word
    return f"--{name.replace('_', '-')}"
