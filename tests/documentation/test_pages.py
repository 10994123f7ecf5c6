"""Code in the documentation runs; commands, options, keys, names and links in it exist."""

from __future__ import annotations

import re
import runpy
from itertools import pairwise
from pathlib import Path

import lightning as L
import pytest
import yaml
from typer.main import get_command

from pcnn.cli.commands import app
from tests.documentation.pages import ROOT, Runner, agrees, pages, shown_commands
from tests.experiment.sweep import composed

TEXTS = {page: (ROOT / page).read_text() for page in pages()}
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
KEY = re.compile(
    r"`((?:augment|callbacks|dataset|engine|geometry|logger|model|task|trainer|tta)"
    r"(?:\.\w+)+)(?:=[^`]*)?`"
)


def marked(*marks: str) -> list[str]:
    return [page for page, blocks in pages().items() if any(b.mark == marks[-1] for b in blocks)]


def run(page: str, folder: Path, *marks: str) -> None:
    """The blocks with these marks, in their order; an output belongs to the block before it."""
    runner, printed = Runner(folder), ""
    for before, block in pairwise([None, *pages()[page]]):
        if block.mark in marks:
            printed = runner.run(block)
        elif block.mark == "output" and before and before.mark in marks:
            assert agrees(block.code, printed), f"{block.name}: the block before prints\n{printed}"


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns without colours, and no login of any service."""
    for variable, value in (("COLUMNS", "80"), ("TERM", "dumb"), ("WANDB_MODE", "offline")):
        monkeypatch.setenv(variable, value)


@pytest.mark.parametrize("page", marked("ci"))
def test_blocks_run(page: str, tmp_path: Path) -> None:
    run(page, tmp_path, "ci")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", marked("nightly"))
def test_long_blocks_run(page: str, tmp_path: Path) -> None:
    run(page, tmp_path, "ci", "nightly")


@pytest.mark.gpu
@pytest.mark.parametrize("page", marked("gpu"))
def test_blocks_run_on_a_gpu(page: str, tmp_path: Path) -> None:
    run(page, tmp_path, "ci", "gpu")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/notebooks").glob("*.py")), ids=lambda p: p.stem
)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path))


def test_every_output_belongs_to_a_block_that_runs() -> None:
    for blocks in pages().values():
        for before, block in pairwise(blocks):
            assert block.mark != "output" or before.mark in ("ci", "nightly", "gpu"), block.name


def test_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    others = {"apt-get", "docker", "pip", "python3", "source", "srun", "torchrun", "uv", "wandb"}
    for name, words in shown_commands():
        if words[0] == "make":
            assert words[1] in targets, name
        elif words[0] == "pcnn" and words[1] not in ("train", "eval"):
            node, words = get_command(app), words[1:]
            while hasattr(node, "commands"):
                assert words[0] in node.commands, name
                node = node.commands[words.pop(0)]
            options = {option for parameter in node.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, name
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
    for page, text in TEXTS.items():
        assert {key for key in KEY.findall(FENCED.sub("", text)) if key not in known} == set(), page


@pytest.mark.parametrize("page", pages())
def test_names_that_examples_import_exist(page: str) -> None:
    for block in pages()[page]:
        if block.language == "python":
            for line in re.findall(r"^(?:import|from) pcnn[^(\n]*$", block.code, re.MULTILINE):
                exec(line, {})


def anchors(text: str) -> set[str]:
    """The names of a page's headings, as the site and code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain}


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_to_files_and_to_headings(page: str) -> None:
    text = FENCED.sub("", TEXTS[page])
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", text):
        to = (ROOT / page).parent / target if target else ROOT / page
        assert to.exists(), target
        assert not anchor or anchor in anchors(to.read_text()), f"{target}#{anchor}"


def test_named_results_exist() -> None:
    for page, text in TEXTS.items():
        for name in re.findall(r"`((?:benchmarks|docs)/[\w/.-]+\.(?:json|png))`", text):
            assert (ROOT / name).is_file(), f"{page}: {name}"
