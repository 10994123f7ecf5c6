"""The command line as a whole: help, examples, and values out of range, for every command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from pcnn.cli.app import ARGUMENT, App
from pcnn.cli.commands import app
from pcnn.ranges import Count, Length, Seed, Share

#: Their words are Hydra's.
HYDRA = ("train", "eval")
RUNNER = CliRunner()


def leaves(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Commands by their words."""
    for name, command in group.commands.items():
        here = (*words, name)
        if hasattr(command, "commands"):
            yield from leaves(command, here)
        elif name not in HYDRA:
            yield " ".join(here), command


COMMANDS = dict(leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("words", ["", "simulate", *COMMANDS])
def test_help_fits_80_columns_is_not_cut_and_ends_with_an_example(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = RUNNER.invoke(app, [*words.split(), "--help"], prog_name="pcnn")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in done.output
    if words not in COMMANDS:
        return
    assert lines[lines.index("Example:") + 1].startswith(f"  pcnn {words}")
    known = {name for one in COMMANDS[words].params for name in (*one.opts, *one.secondary_opts)}
    used = shlex.split(" ".join(lines[lines.index("Example:") + 1 :]))
    assert {word for word in used if word.startswith("--")} <= known


@dataclass(frozen=True, kw_only=True)
class Every:
    """An option of every kind."""

    files: Annotated[list[Path], ARGUMENT, "Words."]
    count: Annotated[Count, "A number."] = 1
    seed: Annotated[Seed, "Another."] = 0
    length: Annotated[Length | None, "Or none."] = None
    share: Annotated[list[Share] | None, "Several."] = None
    short: Annotated[float, "--other", "Of another name."] = 1.0
    kind: Annotated[Literal["a", "b"] | None, "A word."] = None
    names: Annotated[tuple[str, ...], "Words."] = ()
    flag: Annotated[bool, "Yes or no."] = True


def run(*words: str) -> tuple[int, str, list[Every]]:
    given: list[Every] = []

    def command(options: Every) -> None:
        """Take options."""
        given.append(options)

    group = App()
    group.callback()(lambda: None)
    group.add(command, "pcnn command")
    done = RUNNER.invoke(group, ["command", *words])
    return done.exit_code, done.output, given


def test_fields_are_options() -> None:
    words = "x y --count 3 --length 2 --share 0.5 --share 1 --other 7 --kind b --names n --no-flag"
    code, said, given = run(*words.split())
    assert code == 0, said
    files = [Path("x"), Path("y")]
    numbers: Any = {"count": 3, "length": 2.0, "share": [0.5, 1.0], "short": 7.0}
    assert given == [Every(files=files, kind="b", names=("n",), flag=False, **numbers)]
    assert run("x")[2] == [Every(files=files[:1])]


@pytest.mark.parametrize(
    ("option", "bad"),
    [
        ("--count", ("0", "-1", "1000000000000", "1.5", "text", "")),
        ("--seed", ("-1", "4294967296")),
        ("--length", ("0", "-1", "1e30", "nan", "inf", "text")),
        ("--share", ("1.1", "nan", "-inf")),
        ("--other", ("nan", "inf", "text")),
        ("--kind", ("c", "")),
        ("--nonsense", ("1",)),
    ],
)
def test_a_value_that_does_not_fit_is_named_in_three_lines(
    option: str, bad: tuple[str, ...]
) -> None:
    for value in bad:
        code, said, given = run("x", f"{option}={value}")
        assert (code, given) == (2, []), f"{option}={value}: {said}"
        assert option in said
        assert 1 <= len(said.splitlines()) <= 3, said


def test_ctrl_c_is_one_line_and_exit_code_130() -> None:
    def wait() -> None:
        """Wait."""
        raise KeyboardInterrupt

    group, nested = App(), App()
    nested.add(wait, "pcnn some wait")
    group.add_typer(nested, name="some")
    nested.callback()(lambda: None)
    done = RUNNER.invoke(group, ["some", "wait"])
    assert done.exit_code == 130
    assert len(done.output.strip().splitlines()) == 1
