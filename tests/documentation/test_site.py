"""The site holds every page, and its links lead somewhere: what a strict build finds, sooner."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = runpy.run_path(str(ROOT / "docs/site/pages.py"))


def navigation() -> set[str]:
    text = (ROOT / "mkdocs.yml").read_text()
    nav = yaml.safe_load(text[text.index("\nnav:") :])["nav"]

    def leaves(node: object) -> set[str]:
        if isinstance(node, str):
            return {node}
        children = node.values() if isinstance(node, dict) else node
        return {leaf for child in children for leaf in leaves(child)}

    return leaves(nav)


def test_every_page_stands_in_the_navigation() -> None:
    notebooks = {f"notebooks/{path.stem}.md" for path in (ROOT / "docs/notebooks").glob("*.py")}
    assert navigation() == set(PAGES["sources"]()) | notebooks


def test_links_lead_to_files_and_to_headings() -> None:
    broken = []
    for path in PAGES["sources"]().values():
        text = PAGES["FENCE"].sub("", path.read_text())
        source = path.relative_to(ROOT)
        for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", text):
            to = (path.parent / target).resolve() if target else path
            if not to.exists() or (anchor and anchor not in anchors(to)):
                broken.append(f"{source}: {target}#{anchor}")
    assert broken == []


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as the site and code hosts make them."""
    found = re.findall(r"^#+ (.+)$", PAGES["FENCE"].sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in found)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain}


def test_what_leaves_docs_is_led_to_its_place_on_the_site() -> None:
    moved = PAGES["moved"]
    assert moved("[c](CONTRIBUTING.md#tests) ![p](benchmarks/a.png)", "README.md") == (
        "[c](contributing.md#tests) ![p](files/benchmarks/a.png)"
    )
    assert moved("[d](../../data/README.md) [h](../engines.md)", "docs/results/a.md") == (
        "[d](../data.md) [h](../engines.md)"
    )
    by_name = "[`f`](engines.md) [mapping.md](mapping.md#plans)"
    assert moved(by_name, "docs/x.md") == "[`f`](engines.md) [Kernel maps](mapping.md#plans)"
    assert (
        moved("| 4.6 ± 1.2 % | [-1, +2.5] |", "a.md") == "| 4.6\xa0±\xa01.2\xa0% | [-1,\xa0+2.5] |"
    )
    fenced = "```text\n[a](b.md)\n```"
    assert moved(fenced, "docs/results/a.md") == fenced
    named = "measured: `benchmarks/results/ransac-h200.json`, not `benchmarks/results/none.json`"
    assert moved(named, "docs/x.md") == named.replace(
        "`benchmarks/results/ransac-h200.json`",
        "[`benchmarks/results/ransac-h200.json`](files/benchmarks/results/ransac-h200.json)",
    )
