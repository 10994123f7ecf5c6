"""What commands import: help, completion and mistakes nothing heavy, prediction no training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from typer.main import get_command

from pcnn.cli.commands import app

ROOT = Path(__file__).resolve().parents[1]

#: Modules that take a second or more to import.
HEAVY = (
    *("torch", "lightning", "torchmetrics", "wandb", "numpy", "scipy", "trimesh", "matplotlib"),
    *("open3d", "triton", "cuda"),
)

#: Modules that only a training needs.
OF_TRAINING = (
    *("lightning", "torchmetrics", "torch._dynamo", "torch._inductor", "sympy", "hydra"),
    *("scipy.signal", "tensorboard", "wandb", "trimesh", "open3d", "pcnn.tasks"),
    "pcnn.datamodules",
)

#: Runs command lines one after the other in one process, and writes what each had imported.
PROGRAM = """
import contextlib, io, json, os, runpy, sys
heavy, commands, out = json.load(open(sys.argv[1]))
results = []
for words, environment in commands:
    sys.argv = list(words)
    os.environ.update(environment)
    if "hydra.core.global_hydra" in sys.modules:
        sys.modules["hydra.core.global_hydra"].GlobalHydra.instance().clear()
    said, code = io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            if words[0] == "pcnn":
                from pcnn.cli import main
                main()
            else:
                runpy.run_path(words[0], run_name="__main__")
    except SystemExit as stopped:
        code = stopped.code or 0
    for name in environment:
        del os.environ[name]
    results.append([[name for name in heavy if name in sys.modules], code, said.getvalue()])
json.dump(results, open(out, "w"))
"""


def answers(
    folder: Path, commands: list[tuple[str, dict[str, str]]], heavy: tuple[str, ...] = HEAVY
) -> list[tuple[int, str]]:
    """Exit codes and outputs of command lines; fails if one imports what is heavy."""
    job, out = folder / "job.json", folder / "out.json"
    job.write_text(json.dumps([heavy, [[words.split(), env] for words, env in commands], str(out)]))
    (folder / "empty").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, job],
        cwd=folder / "empty",
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not list((folder / "empty").iterdir()), "a file was left behind"
    results = json.loads(out.read_text())
    for (words, _), (found, _, said) in zip(commands, results, strict=True):
        assert found == [], f"{words} imports {found}\n{said}"
    return [(code, said) for _, code, said in results]


def completing(line: str) -> dict[str, str]:
    """Environment of a shell that asks a program to complete `line`, for Hydra and for typer."""
    return {"COMP_LINE": line, "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}


def subcommands(group: object, prefix: str = "pcnn") -> Iterator[str]:
    """Every command of `pcnn`, and every group of them."""
    yield prefix
    for name, command in getattr(group, "commands", {}).items():
        yield from subcommands(command, f"{prefix} {name}")


def test_the_command_answers_without_heavy_imports(tmp_path: Path) -> None:
    lines = list(subcommands(get_command(app)))
    assert {"pcnn predict", "pcnn profile", "pcnn simulate rooms"} <= set(lines)
    narrow = {"COLUMNS": "80"}
    commands: list[tuple[str, dict[str, str]]] = [(f"{line} --help", narrow) for line in lines]
    commands += [
        ("pcnn nonsense", {}),
        ("pcnn simulate rooms --nonsense", {}),
        ("pcnn", {"_PCNN_COMPLETE": "complete_bash", **completing("pcnn simulate fra")}),
        ("pcnn", {"_PCNN_COMPLETE": "source_bash"}),
    ]
    *helped, unknown, option, completed, source = answers(tmp_path, commands)
    for line, (code, said) in zip(lines, helped, strict=True):
        programs = line in ("pcnn train", "pcnn eval")  # their help is that of the configuration
        assert code == 0, line
        assert ("Groups (group=option)" if programs else "Usage") in said, line
        assert programs or max(map(len, said.splitlines())) <= 80, line
    assert (unknown[0], option[0]) == (2, 2)
    assert completed[1].split() == ["fragments"]
    assert "complete -o" in source[1]


def test_what_predicts_registers_and_views_imports_no_training(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    clouds = tmp_path / "a.npy", tmp_path / "b.npy"
    floor = generator.uniform(0, 4, (2000, 3)) * (1, 1, 0)
    wall = generator.uniform(0, 4, (2000, 3)) * (0, 1, 0.6)
    for cloud, shift in zip(clouds, (0.0, 0.02), strict=True):
        np.save(cloud, np.concatenate((floor, wall, wall[:, [1, 0, 2]])) + shift)
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, pcnn\n"
        "assert pcnn.predict and pcnn.register and pcnn.models.load('seg_streets')\n"
        "assert 'matplotlib' not in sys.modules, 'no command before has drawn a picture'\n"
    )
    options = "--model seg_streets --fill intensity=0 --view"
    viewed, alone = f"pcnn view {clouds[0]} --out {tmp_path / 'view.html'}", tmp_path / "alone"
    alone.mkdir()
    numpy_alone = tuple(name for name in HEAVY if name != "numpy")
    assert answers(alone, [(viewed, {})], numpy_alone)[0][0] == 0
    lines = [
        f"pcnn predict {clouds[0]} {options} --out {tmp_path / 'labels'}",
        str(program),
        f"pcnn register {clouds[0]} {clouds[1]} --out {tmp_path / 'pair'}",
    ]
    *done, registered = answers(tmp_path, [(line, {}) for line in lines], OF_TRAINING)
    assert not any(code for code, _ in done), done
    assert registered[0] in (0, 1), registered  # 1: not sure of the pose
