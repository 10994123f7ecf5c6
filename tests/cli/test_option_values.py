"""No number of any option of `pcnn` ends in a traceback: at most three lines name the option."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pcnn.cli.app import App, is_number
from pcnn.cli.commands import app
from pcnn.hints import hints_of

VALUES = ("-1", "0", "1e30", "1000000000000", "nan", "inf", "-inf", "text", "")
#: Options for which the largest of them is a number like any other.
UNBOUNDED = {"--budget", "--limit", "--bandwidth", "--memory", "--intensity-max", "--max-gib"}


def commands(group: App, words: tuple[str, ...] = ()) -> list[tuple[str, Callable[..., Any]]]:
    """Every command with its name, the words in front of it included."""
    found = []
    for each in group.registered_commands:
        function = each.callback
        assert function is not None
        function = function.__wrapped__  # without the check of ranges
        found.append((" ".join((*words, each.name or function.__name__)), function))
    for group_of in group.registered_groups:
        assert isinstance(group_of.typer_instance, App)
        found += commands(group_of.typer_instance, (*words, str(group_of.name)))
    return found


def recording(function: Callable[..., Any], given: list[dict[str, Any]]) -> App:
    """An application with one command, which has the options of `function`, and keeps values."""

    @functools.wraps(function)
    def command(**values: Any) -> None:
        given.append(values)

    one = App()
    one.callback()(lambda: None)  # stays a group of commands, as pcnn is one
    one.command("command")(command)
    return one


def test_every_number_of_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    swept = 0
    for name, function in commands(app):
        given: list[dict[str, Any]] = []
        group: Any = get_command(recording(function, given))
        command = group.commands["command"]
        needed = [
            word
            for parameter in command.params
            if parameter.required
            for word in (*[o for o in parameter.opts if o.startswith("--")][:1], "absent")
        ]
        for parameter in command.params:
            hint = hints_of(function).get(parameter.name)
            option = parameter.opts[0]
            if not option.startswith("--") or not is_number(hint):
                continue
            for value in VALUES:
                given.clear()
                with pytest.raises(SystemExit) as ended:
                    group.main(["command", *needed, f"{option}={value}"])
                swept += 1
                said = capsys.readouterr().err
                where = f"pcnn {name} {option}={value}: {said}"
                if ended.value.code == 0:
                    passed = given[0][parameter.name]
                    passed = passed[0] if isinstance(passed, list) else passed
                    assert math.isfinite(passed), where
                    assert abs(passed) <= 2**31 or option in UNBOUNDED, where
                    continue
                assert (ended.value.code, given) == (2, []), where
                assert option in said, where
                assert 1 <= len(said.splitlines()) <= 3, where
    assert swept > 400


@pytest.mark.parametrize(
    "words",
    [
        *("bench mapping --voxel-sizes", "bench mapping --kernels", "bench mapping --kernels 3:"),
        *("bench networks --sizes", "bench networks --kernel-sizes", "bench native --sizes"),
        *("bench layers --layers 4:4:", "bench layers --layers 4:4:3:", "bench layers --layers 4:"),
        *("bench native --cloud nowhere.npz:room@", "predict absent absent --fill intensity"),
    ],
)
def test_numbers_that_are_written_into_text(words: str, tmp_path: Path) -> None:
    *front, last = words.split(" ")
    named = "" if front[0] == "predict" else "--workload=nowhere.npz"  # ends what passes
    if "native" in front:
        named = "--line=nowhere"
    for value in ("-1", "0", "1e30", "nan", "text", ""):
        glued = last + value if last[-1] in ":@" else f"{last}={value}"
        done = CliRunner().invoke(app, [*front, glued, *named.split(), "--device=cpu"])
        assert done.exit_code == 2, f"{front} {glued}: {done.output}\n{done.exception!r}"
        assert 1 <= len(done.output.splitlines()) <= 3, done.output
