"""Commands and names in the documentation exist, and work as far as this is cheap to test."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from pcnn.bench.layers import figures as layers
from pcnn.bench.networks import figures as networks
from pcnn.cli.commands import app
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.geometry.layouts import LAYOUTS
from pcnn.ops import ENGINES
from tests.experiment.sweep import composed

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def commands() -> list[list[str]]:
    """Words of every shell command of the documentation, comments stripped."""
    lines = [
        line
        for page in PAGES
        for block in blocks(page, "bash")
        for line in block.replace("\\\n", " ").splitlines()  # a command may take several lines
        if line.strip()
    ]
    steps = [step for line in lines for step in line.split("&&")]
    found = [shlex.split(step, comments=True) for step in steps]
    return [words for words in found if words]


def starting(*words: str) -> list[list[str]]:
    found = [command for command in commands() if command[: len(words)] == list(words)]
    assert found, f"no command starts with {words}"
    return found


def test_the_readme_begins_with_the_two_commands() -> None:
    first = blocks(ROOT / "README.md", "bash")[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == [
        "make train",
        "make test",
    ]


def test_every_command_is_of_a_kind_that_is_checked() -> None:
    kinds = {"make", "python", "python3", "pip", "pcnn", "source", "docker"}
    kinds.add("PYTHONPATH=.")  # those of pages that test_adding follows to the letter
    assert {command[0] for command in commands()} <= kinds


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"`make ([a-z-]+)`", page.read_text()))
        assert named <= targets
    assert {command[1] for command in starting("make")} <= targets


def test_training_commands_compose() -> None:
    for name in ("train", "eval"):
        for command in [*starting("python", f"{name}.py"), *starting("pcnn", name)]:
            if any(word.startswith("ckpt_path=") for word in command) and name == "eval":
                continue  # the rest of its configuration is the checkpoint's
            composed(*command[2:], name=name)


def test_pcnn_commands_exist() -> None:
    group = get_command(app)
    for command in starting("pcnn"):
        words = command[1:]
        node = group
        while hasattr(node, "commands"):
            assert words[0] in node.commands, command
            node = node.commands[words.pop(0)]
        options = {option for parameter in node.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_extras_exist() -> None:
    table = (
        (ROOT / "docs/installing.md").read_text().split("| extra | brings |")[1].split("\n\n")[0]
    )
    named = set(
        re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()[2:]))
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert named == set(project["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_rooms_of_the_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = re.findall(r"`(pcnn/[\w/.]+|conf/|tests/)`", text)
    assert len(rooms) > 10
    assert [room for room in rooms if not (ROOT / room).exists()] == []
    packages = {f"pcnn/{path.parent.name}/" for path in ROOT.glob("pcnn/*/__init__.py")}
    assert packages <= set(rooms), "a room without a line in docs/architecture.md"
    modules = {f"pcnn/{path.name}" for path in ROOT.glob("pcnn/[!_]*.py")}
    assert modules <= set(rooms)
    for row in text.split("| room |")[1].split("\n\n")[0].splitlines()[2:]:
        places = [ROOT / place for place in re.findall(r"`([\w/]+/)`", row.split("|")[1])]
        files = re.findall(r"`(\w+(?:\.py|/))`", row.split("|")[2])
        assert [name for name in files if not any((at / name).exists() for at in places)] == [], row


def test_the_floors_of_the_architecture_are_those_of_the_import_contract() -> None:
    drawn = (ROOT / "docs/architecture.md").read_text().split("```")[1].split("  cli\n")
    floors = [re.split(r"\s{2,}", line.strip())[0] for line in ["cli", *drawn[1].splitlines()]]
    (contract, *_) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    named = [sorted(re.findall(r"\w+", floor)) for floor in floors if floor]
    assert named == [sorted(re.findall(r"\w+", floor)) for floor in contract["layers"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_examples_import_exists(page: Path) -> None:
    lines = "\n".join(blocks(page, "python")).splitlines()
    named = [line for line in lines if line.startswith(("import pcnn", "from pcnn"))]
    for line in named:
        if "pcnn.kernels.gathered_product" in line or "triton" in line:
            pytest.importorskip("triton")
        exec(line, {})


def test_the_figures_of_the_suites_are_listed() -> None:
    text = (ROOT / "docs" / "engines.md").read_text()
    for suite, figures in (("layers", layers.FIGURES), ("networks", networks.FIGURES)):
        (row,) = re.findall(rf"^\| `{suite}` \| (.*) \|$", text, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == {f.name for f in figures} - {suite}


def test_the_engines_and_layouts_are_listed() -> None:
    text = (ROOT / "docs" / "engines.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `\w+", text.split("## Dataflows")[0], re.MULTILINE)
    assert set(rows) == set(ENGINES)
    table = (ROOT / "docs" / "mapping.md").read_text().split("| layout | tensors |")[1]
    listed = set(re.findall(r"^\| `([\w:<>]+)` \|", table.split("\n\n")[0], re.MULTILINE))
    assert listed == {name + ":<t>" * kind.has_threshold for name, kind in LAYOUTS.items()}


def test_the_tutorial_writes_a_folder_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pcnn.datasets.folder import FolderClouds

    (example,) = blocks(ROOT / "docs" / "training.md", "python")
    monkeypatch.chdir(tmp_path)
    Path("site").mkdir()
    exec(compile(example, "docs/training.md", "exec"), {})
    clouds = CloudDataset(FolderClouds("site", ["ground", "object"], split="all"), voxel_size=0.5)
    sample = clouds[(0, 0)]
    assert len(sample.points) == 20000
    assert sorted(set(sample.point_labels.tolist())) == [0, 1]
