"""Tensors by name in the safetensors format, which holds numbers and text and no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor

from pcnn.errors import FileError
from pcnn.files.bounded import named, read_whole
from pcnn.files.whole_file import whole_file

#: Word of the header that holds the sum over everything else.
SUM = "sha256"
_HEADER = 1 << 26  # bytes


def write_tensors(path: Path, tensors: Mapping[str, Tensor], words: Mapping[str, str]) -> None:
    """Write tensors and words, with the SHA-256 of both among the words, whole or not at all."""
    kept = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    header = {"format": "pt", **words}
    content = safetensors.torch.save(kept, {**header, SUM: _sum(kept, header)})
    with whole_file(path, durable=True) as file:
        file.write(content)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and words of a file, their sum compared where the file has one."""
    with named(path, "safetensors file"):
        content = read_whole(path)
        tensors = safetensors.torch.load(content)
        size = int.from_bytes(content[:8], "little")
        words = json.loads(content[8 : 8 + size]).get("__metadata__", {})
        told = words.pop(SUM, None)
        if told is not None and told != _sum(tensors, words):
            raise FileError(
                path, "not a whole file: its bytes are not those that were written; copy it again"
            )
        return tensors, words


def is_tensors(path: Path) -> bool:
    """True where a file begins as the safetensors format does."""
    with path.open("rb") as file:
        start = file.read(9)
    return start[8:] == b"{" and 0 < int.from_bytes(start[:8], "little") <= _HEADER


def _sum(tensors: Mapping[str, Tensor], words: Mapping[str, str]) -> str:
    """SHA-256 of names, types, shapes and numbers, and of all words."""
    digest = hashlib.sha256(json.dumps(sorted(words.items())).encode())
    for name, value in sorted(tensors.items()):
        digest.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        # as bytes, which every type has; numpy knows no bfloat16
        digest.update(safetensors.torch.save({"": value}))
    return digest.hexdigest()
