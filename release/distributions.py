"""`python release/distributions.py dist`: sdist and wheel, the same bytes from the same commit.

Times are those of the commit, or SOURCE_DATE_EPOCH; members of the sdist are sorted, and their
owner is always the same. The wheel is built from that sdist, by the setuptools of this environment:
its version stands in the wheel, so another one makes other bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def epoch(source: Path) -> int:
    """Seconds of SOURCE_DATE_EPOCH, else of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        command = ["git", "log", "-1", "--format=%ct"]
        given = subprocess.run(command, cwd=source, check=True, capture_output=True).stdout.decode()
    return int(given)


def build(kind: str, source: Path, out: Path, time: int) -> Path:
    """Build one distribution without isolation: nothing is downloaded."""
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(out)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(time)}
    subprocess.run(command, cwd=source, check=True, env=environment, stdout=subprocess.DEVNULL)
    (built,) = out.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return built


def normalise(sdist: Path, time: int) -> None:
    """Rewrite an sdist: sorted, with one time, one owner, and modes that no umask decides."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid = time, 0, 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=time) as archive:
        archive.write(packed.getvalue())


def write(source: Path, out: Path) -> list[Path]:
    """Sdist and wheel of a source tree.

    Args:
        source: folder with pyproject.toml.
        out: folder without distributions; made if absent.

    Returns:
        their paths.
    """
    time = epoch(source)
    out.mkdir(parents=True, exist_ok=True)
    sdist = build("sdist", source, out, time)
    normalise(sdist, time)
    before = os.umask(0o022)  # modes of what is unpacked go into the wheel
    try:
        with tempfile.TemporaryDirectory() as folder, tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
            (tree,) = Path(folder).iterdir()
            wheel = build("wheel", tree, out, time)
    finally:
        os.umask(before)
    return [sdist, wheel]


if __name__ == "__main__":
    for path in write(ROOT, Path(sys.argv[1]).resolve()):
        print(hashlib.sha256(path.read_bytes()).hexdigest(), path.name)
