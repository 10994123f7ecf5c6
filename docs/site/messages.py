"""Write docs/troubleshooting.md: `python docs/site/messages.py`.

An entry is a part of a message, what causes it, and what to do. The whole message, with the names
that fill it in braces, is read from the code that raises it: an entry whose message is gone, or is
raised by several texts, is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Around a name that fills a message: names may hold braces themselves.
OPEN, CLOSE = "\x01", "\x02"
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"


@dataclass(frozen=True)
class Entry:
    """One message: a part of it, its cause, and the way out."""

    part: str
    cause: str
    remedy: str


INTRODUCTION = """# Troubleshooting

Search this page for words of your message. Names in braces stand for what your message has there.
The messages are read from the code, so they are those of this version.

Begin with `pcnn doctor`: it finds what is wrong with Python, PyTorch, the driver and the compilers.
"""

SECTIONS: dict[str, list[Entry]] = {
    "Installation and device": [
        Entry(
            "torch sees no GPU here (pcnn doctor says why)",
            "PyTorch is a CPU build, the driver is too old, or there is no GPU.",
            "Run `pcnn doctor` and follow its line about the device, or use `trainer=auto`.",
        ),
        Entry(
            "CUDA kernels are compiled at first use, and a package for that is missing",
            "The extra with the CUDA compiler is not installed.",
            "Give the `pip install` command of the message; `pcnn doctor` checks the result.",
        ),
        Entry(
            "holds CUDA kernels, but its tensors are on",
            "An engine of CUDA kernels was asked to work on a CPU.",
            "Move network and input to the GPU, or take `engine=auto`.",
        ),
        Entry(
            "none of which runs on this device",
            "The installed compiler is older than the GPU.",
            "Install a newer `nvidia-cuda-nvrtc` of the same CUDA version.",
        ),
    ],
    "Configuration": [
        Entry(
            "{key} does not exist.{nearest(name, names)}",
            "A key is misspelt, or belongs to another group.",
            "Take one of the keys in the second line. `--cfg job` prints all of them.",
        ),
        Entry(
            "these keys need a value",
            "A required key was not given.",
            "Give it as `key=value`.",
        ),
        Entry(
            "cannot be shared by {devices * nodes} devices",
            "`global_batch_size` is no multiple of the devices.",
            "Take a number that they divide, or one from the message.",
        ),
        Entry(
            "holds a run already",
            "Two runs would write into one folder.",
            "Continue the first by `resume=FOLDER`, or name another `hydra.run.dir`.",
        ),
        Entry(
            "is in use by {owner",
            "Another process writes this run folder.",
            "Wait for it, or end it by the number in the message.",
        ),
        Entry(
            "comes from a file",
            "`allow_targets` decides which code may run, so no file may set it.",
            "Give it on the command line.",
        ),
    ],
    "Data": [
        Entry(
            "no labelled cloud for {split}",
            "The folder holds no clouds, or their labels were not found.",
            "Put labels beside each cloud as `NAME_label.npy`; [your own clouds](own_data.md).",
        ),
        Entry(
            "dataset=folder needs either classes",
            "The meaning of the labels was not given.",
            "Write a class file, or give `dataset.class_names=[a,b]`.",
        ),
        Entry(
            "features a point, {second.path} has",
            "Clouds of one set have different channels.",
            "Choose channels that all have, by `dataset.channels`.",
        ),
        Entry(
            "points but {self.labels.numel()} labels",
            "The label file belongs to another cloud, or is cut off.",
            "Write it again, with one label for each point.",
        ),
        Entry(
            "training samples cannot fill one batch",
            "There are fewer clouds than a batch wants on all devices.",
            "Lower `dataset.batch_size`.",
        ),
        Entry(
            "holds none of the {kind} to train on",
            "The root lacks every sequence, area or scene of the training split.",
            "Look at the folder: [data sets](../data/README.md) shows how it must look.",
        ),
        Entry(
            "a process that loads data was lost",
            "The system ended a loader, mostly because memory ran out.",
            "Use fewer `dataset.num_workers`, or give a container more shared memory.",
        ),
    ],
    "Checkpoints": [
        Entry(
            "there is no such file",
            "A path is wrong.",
            "Look into `logs/`; a run prints the path of its checkpoint at its end.",
        ),
        Entry(
            "the checkpoint takes {saved['data']['in_channels']} input channels",
            "The network was trained with other channels than these clouds have.",
            "Use clouds with the same channels, or train again.",
        ),
        Entry(
            "the checkpoint tells {len(theirs)} classes apart",
            "The data set has other classes than the one of the training.",
            "Evaluate on the data set of the training, or give the same class file.",
        ),
        Entry(
            "hold NaN or infinite numbers: the training broke",
            "The loss became infinite in the training.",
            "Take an earlier checkpoint, or train with a lower `task.optimizer.lr`.",
        ),
    ],
    "Clouds and geometry": [
        Entry(
            "but a packed key holds at most {limit}; centre the cloud",
            "The cloud is too wide for its voxels, or lies far from zero.",
            "Subtract its middle, use larger voxels, or crop it.",
        ),
        Entry(
            "points are NaN or infinite",
            "A sensor wrote rows without a return.",
            "Remove them: `points[torch.isfinite(points).all(1)]`.",
        ),
        Entry(
            "cells must hold whole numbers, but",
            "Metres were given where cells are wanted.",
            "Use `pcnn.voxelize(points, features, voxel_size=...)`.",
        ),
        Entry(
            "has no inverse that leads back to points",
            "The geometry was not made from points.",
            "Make it by `pcnn.voxelize`, or use `pcnn.devoxelize` for any points.",
        ),
        Entry(
            "no map leads from a",
            "Voxels and native points were mixed in one layer.",
            "Make both tensors by the same function.",
        ),
        Entry(
            "so it has no neighbour table",
            "Native points put several inputs into a slot, which a table cannot hold.",
            "Ask for `pairs` or `rows_csr`, or use an engine for points.",
        ),
    ],
    "Weights of other packages": [
        Entry(
            "layers with parameters, the state of",
            "The two networks have different layers.",
            "Pass `names`, or the part of the state that belongs to the network.",
        ),
        Entry(
            "is none of {package} for a kernel of size",
            "The weight has the layout of another package.",
            "Choose the layout of the package that wrote it: [the table](interop.md).",
        ),
    ],
}


def text_of(node: ast.expr) -> str:
    """The text of an expression, names marked; empty where it is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            OPEN + ast.unparse(part.value) + CLOSE
            if isinstance(part, ast.FormattedValue)
            else text_of(part)
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return ""


def messages() -> Iterator[str]:
    """Every text with which the package raises an error, names marked."""
    for path in sorted((ROOT / "pcnn").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                yield from filter(None, map(text_of, node.exc.args))


def shown(message: str) -> str:
    """A message with names in braces, as in the code."""
    return message.replace(OPEN, "{").replace(CLOSE, "}")


def short(message: str) -> str:
    """A message in one line; what fills it by the last of its name."""
    named = re.sub(
        f"{OPEN}([^{OPEN}]*){CLOSE}", lambda found: "{" + simple(found[1]) + "}", message
    )
    return " ".join(named.split())


def simple(code: str) -> str:
    """A readable name of what stands in braces."""
    words = re.findall(r"[a-z_]+", code)
    return "..." if "(" in code or not words else words[-1].strip("_").replace("_", " ")


def page() -> str:
    """The text of the page.

    Raises:
        LookupError: no message, or more than one, holds the part of an entry.
    """
    known = sorted(set(messages()))
    lines = [INTRODUCTION]
    for section, entries in SECTIONS.items():
        lines.append(f"## {section}\n")
        for entry in entries:
            found = [message for message in known if entry.part in shown(message)]
            if not found:
                raise LookupError(
                    f"no error says {entry.part!r} any more: mend docs/site/messages.py"
                )
            whole = min(found, key=len)
            lines.append(f"### {heading(entry.part)}\n")
            lines.append(f"```text\n{folded(short(whole))}\n```\n")
            lines.append(f"{entry.cause}\n**Do:** {entry.remedy}\n")
    return "\n".join(lines)


def heading(part: str) -> str:
    """A part of a message as a heading."""
    plain = " ".join(re.sub(r"\{[^{}]*\}?", "...", part).split()).strip(" ;:,.")
    return f"“{plain}”"


def folded(text: str) -> str:
    """A text in lines of at most 88 columns."""
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) > 88:
            lines.append(line.rstrip())
            line = ""
        line += word + " "
    return "\n".join([*lines, line.rstrip()])


if __name__ == "__main__":
    PAGE.write_text(page())
