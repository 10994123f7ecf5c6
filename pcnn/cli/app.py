"""Commands whose options are the fields of one dataclass, with errors in at most three lines.

A field says all of its option: `voxel_size: Annotated[Length | None, "Voxel of FPFH [m]."] = None`.
The text is its help, text that begins with a dash the names it has in place of `--voxel-size`, and
`ARGUMENT` makes it a word of the command line. The range in its type is checked.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from pcnn.errors import UserError
from pcnn.messages import escaped_output, say

Command = TypeVar("Command", bound=Callable[..., Any])

#: Marks a field that is given by its place, without a name.
ARGUMENT = object()

#: The error of typer for a mistake of the command line. It carries click within it since 0.20, or
#: imports it, and names the common class in neither.
MISTAKE: type[Any] = typer.BadParameter.mro()[2]

#: Exit code of a process that Ctrl-C ended: 128 and the number of SIGINT.
INTERRUPTED = 130


class Leaf(TyperCommand):
    """A command whose help ends with an example, of which no line is broken."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.epilog:
            with formatter.section("Example"):
                formatter.write("".join(f"  {line}\n" for line in self.epilog.splitlines()))


class Group(TyperGroup):
    """A group that shows help and errors as text: no frame, which tears long names apart."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, one.get_short_help_str(1000)) for name, one in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def main(self, *args: Any, **settings: Any) -> Any:
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


@contextmanager
def refusing() -> Iterator[None]:
    """Show errors of files, of values and of absent packages as mistakes of the command line."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise typer.BadParameter(str(error)) from error


class App(typer.Typer):
    """A group of commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            cls=Group,
            no_args_is_help=True,
            pretty_exceptions_enable=False,
            rich_markup_mode=None,
            **settings,
        )

    def add(self, function: Command, example: str) -> None:
        """Add a command: a function of one dataclass, or of nothing."""
        name = function.__name__.replace("_", "-")
        self.command(name, cls=Leaf, epilog=example)(reflected(function))


def reflected(function: Callable[..., Any]) -> Callable[..., None]:
    """The function with the fields of its dataclass as parameters that typer understands."""
    kinds = [kind for name, kind in get_type_hints(function).items() if name != "return"]
    hints = get_type_hints(kinds[0], include_extras=True) if kinds else {}

    def command(**values: Any) -> None:
        with refusing():
            given = [kind(**checked(hints, values)) for kind in kinds]
        function(*given)

    command.__name__ = function.__name__
    # one line for each paragraph: the terminal's width breaks it, not ours
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(function.__doc__ or ""))
    command.__doc__ = "\n\n".join(re.sub(r"\n(?=\S)", " ", one) for one in paragraphs)
    fields = dataclasses.fields(kinds[0]) if kinds else ()
    parameters = [parameter(field, hints[field.name]) for field in fields]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def parameter(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    """A field as a parameter that typer understands."""
    notes = get_args(hint)[1:]
    text = [note for note in notes if isinstance(note, str)]
    names = [note for note in text if note.startswith("-")]
    words = " ".join(note for note in text if not note.startswith("-"))
    argument = ARGUMENT in notes
    told: Any = typer.Argument(help=words) if argument else typer.Option(*names, help=words)
    missing = field.default is dataclasses.MISSING
    default = inspect.Parameter.empty if missing else field.default
    kind, shown = inspect.Parameter.KEYWORD_ONLY, Annotated[plain(hint), told]
    return inspect.Parameter(field.name, kind, default=default, annotation=shown)


def plain(hint: Any) -> Any:
    """A hint without notes and ranges."""
    inner = get_args(hint)
    if get_origin(hint) is Annotated:
        return plain(inner[0])
    if get_origin(hint) in (Union, types.UnionType):
        return functools.reduce(operator.or_, map(plain, inner))
    if get_origin(hint) in (list, tuple):
        return list[plain(inner[0])]  # type: ignore[misc]
    return hint


def checked(hints: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a command line as the fields of a dataclass."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    finite = ConfigDict(allow_inf_nan=False, arbitrary_types_allowed=True)
    found = {}
    for name, value in values.items():
        try:
            found[name] = TypeAdapter(hints[name], config=finite).validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            rule = first["msg"].replace("Input should", "must")
            option = named(name, hints[name])
            raise typer.BadParameter(f"{option} {first['input']}: {rule}") from error
    return found


def named(field: str, hint: Any) -> str:
    """A field as it is typed."""
    notes = get_args(hint)[1:]
    names = [one for one in notes if isinstance(one, str) and one.startswith("--")]
    if names:
        return names[0].partition("/")[0]
    return field if ARGUMENT in notes else f"--{field.replace('_', '-')}"
