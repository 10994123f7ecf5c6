from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pcnn.cli.app import App
from pcnn.cli.commands import app

runner = CliRunner()


def run(*words: str, code: int = 0) -> str:
    done = runner.invoke(app, list(words))
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.output


def test_the_version_is_printed_and_is_that_of_the_package() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    (declared,) = re.findall(r'^version = "(.*)"$', project, re.MULTILINE)
    assert run("--version").strip() == f"pcnn {declared}"


def test_ctrl_c_is_one_line_and_exit_code_130() -> None:
    def command() -> None:
        raise KeyboardInterrupt

    group, nested = App(), App()
    nested.command("wait")(command)
    group.add_typer(nested, name="bench")
    nested.callback()(lambda: None)
    done = runner.invoke(group, ["bench", "wait"])
    assert done.exit_code == 130
    assert done.output.strip() == "Ctrl-C: stopped; no file is left half written"


def test_an_unknown_command_is_refused() -> None:
    assert "nonsense" in run("nonsense", code=2)


def test_bench_writes_checked_rows(tmp_path: Path) -> None:
    out = tmp_path / "layers.json"
    words = "bench layers --workload surface_1k --layers 4:4:3 --repeats 3 --device cpu"
    words += " --engine auto --engine reference --out"  # the others search on CUDA devices
    text = run(*words.split(), str(out))
    assert str(out) in text.replace("\n", "")
    content = json.loads(out.read_text())
    assert "cpu" in content["header"]["device"]
    rows = content["rows"]
    assert {row["engine"] for row in rows} == {"auto", "reference"}
    assert {row["what"] for row in rows} == {"layer", "train", "map+layer", "map+train"}
    assert all(row["checked"] and row["dtype"] == "float32" for row in rows)


def test_bench_mapping_measures_figures_on_several_scenes_and_draws_them(tmp_path: Path) -> None:
    out, peers = tmp_path / "mapping.json", tmp_path / "peers.json"
    peer = {"what": "map", "engine": "spira", "variant": "dataflow1", "workload": "random_1k"}
    peer |= {"k": 3, "stride": 1, "gpu_ms": 0.1, "wall_ms": 0.1}
    peers.write_text(json.dumps({"header": {"device": "GPU"}, "rows": [peer]}))
    words = "bench mapping --workload surface_1k --workload random_1k --product pairs"
    words += f" --kernels 3:1,2:2 --repeats 3 --runs 2 --device cpu --out {out} --peers {peers}"
    figures = ("spira_fig12", "minuet_fig18", "minuet_fig17")
    text = run(*words.split(), *(word for name in figures for word in ("--figure", name)))
    assert "minuet_fig18: not measured here; it needs the double-traversed builder" in text
    assert "spira dataflow1" in text
    content = json.loads(out.read_text())
    rows = [row for row in content["rows"] if row["figure"] == "spira_fig12"]
    timed = [row for row in rows if "wall_ms" in row]
    assert {(row["workload"].split()[0], row["k"], row["run"]) for row in timed} == {
        (scene, k, run) for scene in ("surface_1k", "random_1k") for k in (3, 2) for run in (0, 1)
    }
    assert all(row["checked"] for row in content["rows"])
    assert set(content["header"]["stand_ins"]) == {"spira_fig12", "minuet_fig17"}
    assert (tmp_path / "mapping-spira_fig12-pairs.png").is_file()
    assert (tmp_path / "mapping-minuet_fig17.png").is_file()
    assert "spira dataflow1" in run("bench", "compare", str(out), "--peers", str(peers))
    assert "mapping-minuet_fig17.png" in run("bench", "charts", str(out)).replace("\n", "")


def test_bench_mapping_keeps_figures_measured_before(tmp_path: Path) -> None:
    out = tmp_path / "mapping.json"
    words = f"bench mapping --workload random_1k --repeats 3 --device cpu --out {out} --figure"
    run(*words.split(), "minuet_fig17")
    run(*words.split(), "minuet_fig16")
    rows = json.loads(out.read_text())["rows"]
    assert {row["figure"] for row in rows} == {"minuet_fig17", "minuet_fig16"}
    joined = tmp_path / "joined.json"
    assert "joined-minuet_fig17.png" in run("bench", "join", str(out), "--out", str(joined))
    assert json.loads(joined.read_text())["rows"] == rows


def test_a_file_that_holds_something_else_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "notes.json"
    out.write_text("[]")
    words = f"bench mapping --workload random_1k --figure minuet_fig17 --device cpu --out {out}"
    assert "not a benchmark result file" in run(*words.split(), code=2).replace("\n", " ")
    assert out.read_text() == "[]"


def test_a_scan_is_measured_at_several_voxel_sizes(tmp_path: Path) -> None:
    scan, out = tmp_path / "scan.bin", tmp_path / "mapping.json"
    points = np.random.default_rng(0).uniform(-3, 3, (2000, 4)).astype(np.float32)
    points[:, 3] = 0.5
    points.tofile(scan)
    words = f"bench mapping --workload {scan} --voxel-sizes 1,0.5 --repeats 3 --device cpu"
    run(*words.split(), "--figure", "minuet_fig17", "--out", str(out))
    rows = json.loads(out.read_text())["rows"]
    assert [row["workload"] for row in rows] == ["scan@1", "scan@0.5"]
    assert rows[0]["n"] < rows[1]["n"]


def test_bench_native_measures_points_of_a_file(tmp_path: Path) -> None:
    file, out = tmp_path / "clouds.npz", tmp_path / "native.json"
    np.savez(file, scan025=np.random.default_rng(0).uniform(0, 3, (500, 3)).astype(np.float32))
    words = "bench native --figure same_t --figure fig4 --rooms 1 --sizes 1 --repeats 3"
    words += f" --device cpu --cloud {file}:scan025 --line native --line voxel --out {out}"
    assert "native points against voxels" in run(*words.split())
    rows = json.loads(out.read_text())["rows"]
    assert {row["workload"] for row in rows} == {"scan025", "rooms (simulated)"}
    assert all(row["checked"] and row["dtype"] == "float32" for row in rows)
    assert (tmp_path / "native-pointcnnpp_fig4.png").is_file()


def test_bench_networks_writes_checked_rows(tmp_path: Path) -> None:
    out = tmp_path / "networks.json"
    words = "bench networks --workload random_1k --model sparse_resnet --width 0.125 --repeats 3"
    text = run(*words.split(), "--engine", "auto", "--device", "cpu", "--out", str(out))
    assert str(out) in text.replace("\n", "")
    rows = json.loads(out.read_text())["rows"]
    assert [row["params"]["mode"] for row in rows] == ["infer", "forward", "train", "step"]
    assert all(row["checked"] and row["wall_ms"] > 0 for row in rows)


def test_bench_papers_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    words = "bench papers --figure spira_fig3b --workload random_1k --device cpu --out"
    text = run(*words.split(), str(tmp_path), "--limit", "0")
    assert "0 whole already" in text
    assert "0 s are over" in text
    assert "whole, in" in run(*words.split(), str(tmp_path))
    assert (tmp_path / "spira_fig3b-float32.json").is_file()
    assert not (tmp_path / "unfinished").exists()
    assert "1 whole already" in run(*words.split(), str(tmp_path))
    page = tmp_path / "papers.md"
    run("bench", "claims", "--results", str(tmp_path), "--out", str(page))
    assert "| Fig. 3b |" in page.read_text()


#: By the beginning of a command line, options, and what is said of them.
BAD = {
    "mapping --device cpu --workload random_1k": {
        "--figure minuet_fig1": "no figure minuet_fig1",
        "--builder hash_table": "no map builder named hash_table on cpu",
        "--product everything": "must be one of table, pairs, ready, train",
        "--kernels 3": "must be size:stride",
        "--voxel-sizes 0.1,x": "numbers, such as",
        "--voxel-sizes=-1": "lengths must be above 0 m",
        "--peers nowhere.json": "not a file of peers",
        "--figure minuet_fig18": "none of these figures",
    },
    "native --device cpu": {
        "--figure fig9": "no figure fig9",
        "--line mesh": "no line mesh",
        "--cloud nowhere.npz:room002": "no file nowhere.npz",
        "--sizes 1,x": "must be whole numbers from 1 to",
        "--figure figJ": "none of these figures",
    },
    "networks --device cpu --workload random_1k": {
        "--model resnet50": "must be one of sparse_resnet, sparse_resnet_large, minkunet",
        "--mode sleep": "must be one of infer, forward, train, step",
        "--figure spira_fig0": "no figure spira_fig0",
        "--sizes 10,x": "must be whole numbers from 1 to",
        "--kernel-sizes 0": "must be whole numbers from 1 to",
    },
    "layers": {
        "--engine nonsense": "no engine named",
        "--workload nowhere.npz": "no such file",
        "--layers 16,32": "must be c_in:c_out:size",
        "--layers 16:0:3": "must be c_in:c_out:size",
        "--what everything": "must be one of layer, train, map+layer, map+train",
        "--figure minuet_fig0": "no figure minuet_fig0",
        "--peers nowhere.json": "not a file of peers",
        "--only-peers": "--only-peers needs --peers",
        "--device toaster": "must be cpu, cuda",
        "--device cuda:99": "CUDA devices",
        "--dtype int8": "float16",
    },
}


@pytest.mark.parametrize("command", BAD)
def test_bad_options_are_named(command: str, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    for options, message in BAD[command].items():
        words = f"bench {command} {options} --out {out}"
        assert message in " ".join(run(*words.split(), code=2).replace("│", " ").split()), words
        assert not out.exists(), words
