from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pcnn.cli import app

runner = CliRunner()


def run(*words: str, code: int = 0) -> str:
    done = runner.invoke(app, list(words))
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.output


def test_help_names_every_subcommand() -> None:
    text = run("--help")
    for name in ("simulate", "predict", "bench", "doctor"):
        assert name in text
        assert "Usage" in run(name, "--help")


def test_the_version_is_printed_and_is_that_of_the_package() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    (declared,) = re.findall(r'^version = "(.*)"$', project, re.MULTILINE)
    assert run("--version").strip() == f"pcnn {declared}"


def test_an_unknown_command_is_refused() -> None:
    assert "nonsense" in run("nonsense", code=2)


def test_bench_writes_checked_rows(tmp_path: Path) -> None:
    out = tmp_path / "layers.json"
    words = "bench layers --workload surface_1k --channels 4 --repeats 3 --device cpu --out"
    text = run(*words.split(), str(out))
    assert str(out) in text.replace("\n", "")
    content = json.loads(out.read_text())
    assert "cpu" in content["header"]["device"]
    rows = content["rows"]
    assert {row["engine"] for row in rows} == {"reference"}
    assert all(row["checked"] and row["dtype"] == "float32" for row in rows)


def test_bench_maps_takes_several_engines_and_scenes(tmp_path: Path) -> None:
    out = tmp_path / "mapping.json"
    words = (
        "bench maps --workload surface_1k --workload random_1k --engine reference "
        "--engine auto --repeats 3 --device cpu --out"
    )
    run(*words.split(), str(out))
    rows = json.loads(out.read_text())["rows"]
    assert {(row["engine"], row["workload"].split()[0]) for row in rows} == {
        (engine, scene) for engine in ("reference", "auto") for scene in ("surface_1k", "random_1k")
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--engine nonsense", "no engine named"),
        ("--workload nowhere.npz", "no such file"),
        ("--channels a,b", "want numbers"),
        ("--channels 0", "want numbers"),
        ("--device toaster", "want cpu, cuda"),
        ("--device cuda:99", "CUDA devices"),
        ("--dtype int8", "float16"),
    ],
)
def test_bad_options_are_named(options: str, message: str, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    text = run("bench", "layers", *options.split(), "--out", str(out), code=2)
    words = " ".join(text.replace("│", " ").split())
    assert message in words
    assert not out.exists()
