"""Every link of every page leads somewhere: files, headings, images; addresses outside are well formed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.build import FROM_NET, anchors, lay_out, links

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("training/**/*.md")]
)
ADDRESS = re.compile(r"https?://[a-z0-9-]+(\.[a-z0-9-]+)+(/[\w./~%+:@,#?=&;-]*)?")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = [link for link in links(page.read_text("utf-8")) if not leads_somewhere(page, link)]
    assert wrong == []


def leads_somewhere(page: Path, link: str) -> bool:
    if "://" in link:
        return ADDRESS.fullmatch(link) is not None
    name, _, anchor = link.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.is_relative_to(ROOT) or not path.exists():
        return False
    return not anchor or (path.suffix == ".md" and anchor in anchors(path.read_text("utf-8")))


def test_what_is_a_link(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "# A `b`: c, d\n[x](#a-b-c-d) ![y](y.png) <img src='no' src=\"z.png\"> `[no](no)`\n```\n[no](no)\n```\n"
    assert links(text) == ["#a-b-c-d", "y.png", "z.png"]
    assert anchors(text) == {"a-b-c-d"}
    assert anchors("# Twice\n## Twice\n") == set()
    page.write_text(text)
    assert not leads_somewhere(page, "y.png")
    for address, good in {
        "https://a.org/b#c": True,
        "https://a": False,
        "http//a.org": False,
        "ftp://a.org": False,
    }.items():
        assert leads_somewhere(page, address) is good


def test_a_site_has_whatever_its_pages_lead_to(tmp_path: Path) -> None:
    lay_out(tmp_path / "pages")
    for page in (tmp_path / "pages").rglob("*.md"):
        for link in links(page.read_text("utf-8")):
            path = page.parent / link.partition("#")[0]
            assert "://" in link or path.exists(), f"{page}: {link}"
    assert (tmp_path / "pages" / "docs" / "vlm.md").read_bytes() == (ROOT / "docs" / "vlm.md").read_bytes()


def test_what_is_loaded_from_the_net_is_found() -> None:
    assert FROM_NET.search('<script async src="https://a.org/b.js"></script>')
    assert FROM_NET.search('<link rel="stylesheet" href="//a.org/b.css">')
    assert not FROM_NET.search('<a href="https://a.org"><img src="../a.png">')
