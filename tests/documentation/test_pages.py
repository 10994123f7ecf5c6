"""Code in the documentation runs; commands, options and keys in it exist."""

from __future__ import annotations

import re
import runpy
from itertools import pairwise
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import yaml
from typer.main import get_command

from pcnn.cli.commands import app
from tests.documentation.pages import ROOT, agrees, pages, run, shown_commands
from tests.experiment.sweep import composed

TEXTS = {page: (ROOT / page).read_text() for page in pages()}
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
KEY = re.compile(
    r"`((?:augment|callbacks|dataset|engine|geometry|logger|model|task|trainer|tta)"
    r"(?:\.\w+)+)(?:=[^`]*)?`"
)


RUNS = {"ci": (), "nightly": (pytest.mark.slow, pytest.mark.timeout(3600)), "gpu": pytest.mark.gpu}


def check(page: str, *marks: str) -> None:
    """The blocks with these marks run in their order; an output belongs to the block before it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for before, block in pairwise([None, *pages()[page]]):
        if block.mark in marks:
            printed = run(block, names)
        elif block.mark == "output" and before and before.mark in marks:
            assert agrees(block.code, printed), f"{block.name}: the block before prints\n{printed}"


@pytest.fixture(autouse=True)
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, 80 columns without colours, and no login of any service."""
    monkeypatch.chdir(tmp_path)
    for variable, value in (("COLUMNS", "80"), ("TERM", "dumb"), ("WANDB_MODE", "offline")):
        monkeypatch.setenv(variable, value)


@pytest.mark.parametrize(
    ("page", "mark"),
    [
        pytest.param(page, mark, marks=marks, id=f"{page}-{mark}")
        for page, blocks in pages().items()
        for mark, marks in RUNS.items()
        if any(block.mark == mark for block in blocks)
    ],
)
def test_blocks_run(page: str, mark: str) -> None:
    check(page, "ci", mark)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/notebooks").glob("*.py")), ids=lambda p: p.stem
)
def test_notebooks_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    runpy.run_path(str(path))


def leaves(node: Any) -> list[Any]:
    below = getattr(node, "commands", {}).values()
    return [leaf for one in below for leaf in leaves(one)] or [node]


def options_of(command: Any) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def test_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    others = {"apt-get", "docker", "pip", "python3", "source", "srun", "torchrun", "uv", "wandb"}
    known = {"--cfg", "--config-dir", "--help", "--install-completion", "--metrics", "--shm-size"}
    known |= {name for command in leaves(get_command(app)) for name in options_of(command)}
    for name, words in shown_commands():
        if words[0] == "make":
            assert words[1] in targets, name
        elif words[0] == "pcnn" and words[1] not in ("train", "eval"):
            node, words = get_command(app), words[1:]
            while hasattr(node, "commands"):
                assert words[0] in node.commands, name
                node = node.commands[words.pop(0)]
            assert {word for word in words if word.startswith("--")} <= options_of(node), name
            if "overrides" in {one.name for one in node.params}:
                composed(*(word for word in words if re.match(r"[\w./@]+=", word)), name="train")
        elif words[0] == "pcnn" or words[1:2] in (["train.py"], ["eval.py"]):
            program = words[1].removesuffix(".py")
            of_file = program == "eval" and any(word.startswith("ckpt_path=") for word in words)
            if not of_file and not any("my_" in word for word in words):
                composed(*words[2:], name=program)
        else:
            assert words[0] in others or words[0] == "python", name
    for page, text in TEXTS.items():
        assert set(re.findall(r"`make ([a-z-]+)`", text)) <= targets, page
        for name in re.findall(r"`pcnn ([a-z][a-z-]+)[ `]", text):
            assert name in get_command(app).commands, f"{page}: pcnn {name}"
        for option in re.findall(r"`[^`\n]*?(--[a-z][a-z-]+)[^`\n]*`", FENCED.sub("", text)):
            assert option in known, f"{page}: {option}"


def keys_of(node: object, above: str) -> set[str]:
    if not isinstance(node, dict):
        return {above}
    below = {key for name, part in node.items() for key in keys_of(part, f"{above}.{name}")}
    return {above} | below


def test_keys_in_the_text_exist() -> None:
    known = {f"trainer.{name}" for name in L.Trainer.__init__.__annotations__}
    for path in (ROOT / "conf").rglob("*.yaml"):
        group = ".".join(path.relative_to(ROOT / "conf").parts[:-1])
        known |= keys_of(yaml.safe_load(path.read_text()) or {}, group)
    groups = {path.name for path in (ROOT / "conf").iterdir() if path.is_dir()}
    for page, text in TEXTS.items():
        for group, option in re.findall(r"`(\w+(?:/\w+)?)=([a-z]\w*)\b[^`.]*`", text):
            if group.split("/")[0] in groups and option != "null":
                assert (ROOT / f"conf/{group}/{option}.yaml").exists(), f"{page}: {group}={option}"
        assert {key for key in KEY.findall(FENCED.sub("", text)) if key not in known} == set(), page
