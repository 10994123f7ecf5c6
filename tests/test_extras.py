"""One name for what is installed: messages, pages and the project file never ask for another's."""

from __future__ import annotations

import re
from pathlib import Path

from pcnn.extras import DISTRIBUTION, install

ROOT = Path(__file__).resolve().parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text()
FOLDERS = ("pcnn", "tests", "docs", "data", "conf", "benchmarks")
TEXTS = [
    path
    for pattern in ("*", *(f"{folder}/**/*" for folder in FOLDERS))
    for path in ROOT.glob(pattern)
    if path.suffix in (".py", ".md", ".toml", ".yaml", ".cff") or path.name == "Makefile"
]
#: The import name where a distribution is meant: with extras, or as what pip installs.
MEANT_OTHERS = re.compile(r"\bpcnn\[|pip install [^\n`]*(?<![\w./-])pcnn(?![\w./-])")


def test_the_project_has_the_name_that_messages_ask_for() -> None:
    (declared,) = re.findall(r'^name = "(.*?)".*\nversion', PROJECT, re.MULTILINE)
    assert declared == DISTRIBUTION
    assert install("las") == f"pip install '{declared}[las]'"


def test_nothing_asks_pip_for_the_package_of_others() -> None:
    name = Path(install.__module__.replace(".", "/")).parent.name  # what is imported
    for text in (f"pip install {name}", f"pip install -U '{name}'", f"see {name}[las]"):
        assert MEANT_OTHERS.search(text)
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in TEXTS
        for match in MEANT_OTHERS.finditer(path.read_text())
    ]
    assert found == []


def test_extras_that_messages_name_exist() -> None:
    table = PROJECT.split("[project.optional-dependencies]")[1].split("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", table, re.MULTILINE))
    named = {
        extra
        for path in ROOT.glob("pcnn/**/*.py")
        for extra in re.findall(r"\binstall\([\"'](\w+)[\"']\)", path.read_text())
    }
    assert {"las", "tensorboard"} <= named <= extras
