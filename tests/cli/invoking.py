"""Run `pcnn` in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from pcnn.cli.commands import app


def invoke(*words: object, code: int = 0) -> str:
    """Run a command line, which must end with a code; returns its output in one line."""
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return " ".join(done.output.replace("│", " ").split())
