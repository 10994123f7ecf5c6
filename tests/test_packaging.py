"""What is installed: one name, extras that exist, a lock of what is asked for."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pcnn.messages import DISTRIBUTION

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: The import name where a distribution is meant: with extras, or as what pip installs.
MEANT_OTHERS = re.compile(r"\bpcnn\[|pip install [^\n`]*(?<![\w./-])pcnn(?![\w./-])")


def wanted(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines} - {DISTRIBUTION}


def test_messages_name_extras_that_there_are() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    asked = re.compile(r"\binstall\([\"'](\w+)[\"']\)")
    files = (path.read_text() for path in ROOT.glob("pcnn/**/*.py"))
    assert {"las"} <= {name for text in files for name in asked.findall(text)} <= EXTRAS.keys()


def test_nothing_asks_pip_for_the_package_of_others() -> None:
    assert MEANT_OTHERS.search("pip install -U 'pcnn'")
    texts = [ROOT / "README.md", ROOT / "Makefile", *ROOT.glob("*.toml")]
    for folder in ("pcnn", "docs", "data", "conf", "benchmarks", ".github"):
        texts += [p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".md", ".yaml")]
    assert [path for path in texts if MEANT_OTHERS.search(path.read_text())] == []


def test_the_lock_holds_what_is_asked_for() -> None:
    """Where it does not: `make lock`."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    (own,) = (package for package in packages if package["name"] == DISTRIBUTION)
    assert {line["name"] for line in own["dependencies"]} == wanted(PROJECT["dependencies"])
    for extra, lines in EXTRAS.items():
        locked = own["optional-dependencies"].get(extra, [])
        assert {line["name"] for line in locked} >= wanted(lines), extra
