"""One file for a network that is ready to run: weights, sizes of its buckets, tuned dataflows.

CUDA graphs belong to a process, so they are captured again when the file is read; how large their
memory has to be is known then, and no cloud is needed.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pcnn.dataflows import tuned, tuning_file
from pcnn.dataflows.tuning_table import TuningTable
from pcnn.errors import FileError
from pcnn.files.pickles import read_arrays
from pcnn.files.whole_file import whole_file
from pcnn.ops.room import PlanRoom, Room
from pcnn.runtime.buckets import Edges
from pcnn.runtime.graph import GraphedNetwork, Key

FORMAT = 2


def save_graph(runner: GraphedNetwork, path: str | Path) -> None:
    """Write a network with its buckets, and the tuned dataflows of its device, to a file.

    Args:
        runner: the network, with what it has captured.
        path: the file; it appears whole or not at all.
    """
    table = TuningTable()
    for known in reversed(tuned.tables(runner.device)):  # the user's own counts first
        table = table.updated(known)
    buckets = [
        {"key": key._asdict(), "sizes": asdict(room.sizes), "cut": sorted(room.cut)}
        for key, room in runner.rooms.items()
    ]
    content = {
        "format": FORMAT,
        "weights": {name: value.cpu() for name, value in runner.model.state_dict().items()},
        "settings": {
            "voxel_size": list(runner.voxel_size),
            "dtype": runner.dtype,
            "reduce": runner.reduce,
            "smallest": runner.edges.smallest,
            "ratio": runner.edges.ratio,
            "most": runner.most,
        },
        "buckets": buckets,
        "tuned": table.plain(),
    }
    with whole_file(Path(path)) as file:
        torch.save(content, file)


def load_graph(path: str | Path, model: nn.Module) -> GraphedNetwork:
    """Read a file of `save_graph`: weights go into a network, whose graphs are captured.

    Tuned dataflows are added to the user's own table, as `pcnn.tune` does, so that captured kernels
    are those of the file.

    Args:
        path: the file.
        model: of the same architecture, on its device and in evaluation mode.

    Raises:
        FileError: no such file, or one of another kind or version.
        RuntimeError: weights of another architecture.
    """
    where = Path(path)
    content: Any = read_arrays(where)
    if not isinstance(content, dict) or content.get("format") != FORMAT or "buckets" not in content:
        raise FileError(
            where, f"is no network of pcnn.runtime.save_graph (format {FORMAT}); save it again"
        )
    model.load_state_dict(content["weights"])
    table = TuningTable.of_plain(content["tuned"])
    if len(table):
        tuning_file.save(tuning_file.user_path(), table)
        tuned.forget()
    settings = dict(content["settings"])
    edges = Edges(settings.pop("smallest"), settings.pop("ratio"))
    runner = GraphedNetwork(model, edges=edges, **settings)
    for one in content["buckets"]:
        sizes = {name: _frozen(value) for name, value in one["sizes"].items()}
        cut = frozenset((number, flipped) for number, flipped in one["cut"])
        key = {name: _frozen(value) for name, value in one["key"].items()}
        runner.capture(Key(**key), PlanRoom(Room(**sizes), cut))
    return runner


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
