"""The pages of the site, gathered in one folder: `python docs/site/pages.py build/pages`.

README.md is the home page, other texts outside docs/ are pages too, and every picture, JSON or file
that a page links is copied to ``files/``. In the sources links lead to files of the checkout; here
they lead to where these lie on the site. A link that leads nowhere is left for the strict build.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import notebooks

ROOT = Path(__file__).resolve().parents[2]
#: Address on the site and file in the checkout, of pages that lie outside docs/.
OUTSIDE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
    "data.md": "data/README.md",
    "locks.md": "requirements/README.md",
}
#: A link whose text is the name of a page's file: on the site it is the title of that page.
FILE_NAME = re.compile(r"(?<!!)\[([\w/-]+\.md)\]\(((?:[\w.-]+/)*[\w-]+\.md)(#[^)\s]*)?\)")
#: Spaces in rows of tables at which a figure must not be broken: 54.6 ± 6.3, 12 %, [-0.4, +7.7].
WITHIN_FIGURE = re.compile(r"(?<=\d) (?=[±%])|(?<=±) (?=\d)|(?<=\d,) (?=[+-]?[\d.]+\])")
ROW = re.compile(r"^\|.*$", re.MULTILINE)
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")
#: A result that a page names without a link to it.
NAMED = re.compile(r"(?<![\[`])`((?:benchmarks|docs)/results/[\w.-]+\.(?:json|png))`(?![`\]])")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def sources() -> dict[str, Path]:
    """Every page of the site: its address, and its file."""
    docs = ROOT / "docs"
    found = {str(path.relative_to(docs)): path for path in sorted(docs.rglob("*.md"))}
    return found | {address: ROOT / source for address, source in OUTSIDE.items()}


def address_of(source: str) -> str:
    """Where a file of the checkout lies on the site."""
    pages = {file: address for address, file in OUTSIDE.items()}
    if source in pages:
        return pages[source]
    return source[5:] if source.startswith("docs/") else f"files/{source}"


def titled(text: str, folder: str) -> str:
    """Links by the name of a file become links by the title of its page."""

    def title(found: re.Match[str]) -> str:
        page = ROOT / posixpath.normpath(posixpath.join(folder, found[2]))
        heading = re.match(r"# (.+)", page.read_text()) if page.is_file() else None
        return f"[{heading[1] if heading else found[1]}]({found[2]}{found[3] or ''})"

    return FILE_NAME.sub(title, text)


def targets(text: str, source: str) -> set[str]:
    """The files of the checkout that a page links or names."""
    folder = posixpath.dirname(source)
    prose = FENCE.sub("", text)
    linked = {posixpath.normpath(posixpath.join(folder, to)) for _, to in LINK.findall(prose)}
    return linked | set(NAMED.findall(prose))


def moved(text: str, source: str) -> str:
    """The Markdown of a page, with links as they are on the site."""
    folder = posixpath.dirname(source)
    here = posixpath.dirname(address_of(source)) or "."

    def to(target: str) -> str:
        return posixpath.relpath(address_of(posixpath.normpath(target)), here)

    def named(found: re.Match[str]) -> str:
        exists = (ROOT / found[1]).is_file()
        return f"[`{found[1]}`]({to(found[1])})" if exists else found[0]

    def prose(part: str) -> str:
        part = titled(part, folder)
        part = ROW.sub(lambda row: WITHIN_FIGURE.sub("\u00a0", row[0]), part)
        part = LINK.sub(lambda found: found[1] + to(posixpath.join(folder, found[2])), part)
        return NAMED.sub(named, part)

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [prose(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, prose(text[end:])])


def ranked(address: str) -> str:
    """Front matter: guides stand before lists of names and of changes in what a search finds."""
    lists = address.startswith("api/") or address in ("changes.md", "licences.md")
    return "---\nsearch:\n  boost: 0.2\n---\n\n" if lists else ""


def write(folder: Path) -> None:
    """Write the pages, and copy what they link."""
    shutil.rmtree(folder, ignore_errors=True)
    own = [path for path in (ROOT / "docs/site").iterdir() if path.suffix in (".css", ".js")]
    needed = {path.relative_to(ROOT).as_posix() for path in own}
    for address, path in sources().items():
        source, text = path.relative_to(ROOT).as_posix(), path.read_text()
        page = folder / address
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(ranked(address) + moved(text, source))
        needed |= {target for target in targets(text, source) if not target.endswith(".md")}
    for path in sorted((ROOT / "docs/notebooks").glob("*.py")):
        (folder / "notebooks").mkdir(exist_ok=True)
        written = {".md": notebooks.page(path.read_text(), path.stem)}
        written[".ipynb"] = notebooks.notebook(path.read_text())
        for suffix, text in written.items():
            (folder / "notebooks" / path.with_suffix(suffix).name).write_text(text)
    for source in sorted(needed):
        if (ROOT / source).is_file():
            copy = folder / address_of(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / source, copy)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
