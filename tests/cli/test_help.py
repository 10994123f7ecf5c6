"""Help of every command: nothing is cut at 80 columns, and examples use options that exist."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pcnn.cli.commands import app
from pcnn.cli.examples import EXAMPLES

#: Their help is Hydra's.
HYDRA = ("train", "eval")


def leaves(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Commands by their words."""
    for name, command in group.commands.items():
        here = (*words, name)
        if hasattr(command, "commands"):
            yield from leaves(command, here)
        elif name not in HYDRA:
            yield " ".join(here), command


COMMANDS = dict(leaves(typer.main.get_command(app)))


def test_every_command_has_examples() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("words", ["", "bench", "preprocess", "simulate", *COMMANDS])
def test_help_fits_80_columns_and_is_not_cut(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, [*words.split(), "--help"], prog_name="pcnn")
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert "…" not in done.output
    for line in EXAMPLES.get(words, ()):
        assert f"  {line}\n" in done.output


@pytest.mark.parametrize("words", COMMANDS)
def test_examples_use_commands_and_options_that_exist(words: str) -> None:
    for line in "\n".join(EXAMPLES[words]).replace("\\\n", "").splitlines():
        program, *rest = shlex.split(line)
        assert program == "pcnn"
        if rest[0] in HYDRA:
            continue
        named = " ".join(rest[:2]) if " ".join(rest[:2]) in COMMANDS else rest[0]
        known = {name for option in COMMANDS[named].params for name in option.opts}
        known |= {name for option in COMMANDS[named].params for name in option.secondary_opts}
        assert {word for word in rest if word.startswith("--")} <= known
