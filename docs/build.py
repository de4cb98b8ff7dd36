"""The pages of the site, laid out as they lie in the repository, so that a relative link works on a code host and here.

    python docs/build.py            # build/pages, then build/site by mkdocs.yml; any warning is an error
    python docs/build.py links      # asks every link that leads out whether it still answers (needs a network)

`make docs` and `make links` call it. The site has README.md, every page of docs/, and what can be reached from them by
links: pages become pages, other files are copied as they are.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"
FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.M | re.S)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
LINK = re.compile(
    r"\]\(<?([^)\s>]+)>?(?: +\"[^\"]*\")?\)|<(?:img|source|a)\b[^>]*?\b(?:src|srcset|href)=\"([^\"\s]+)\""
)
FROM_NET = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>")
WARNING = re.compile(r"^griffe:.*|.*\bwarning\b.*", re.M | re.I)  # zensical --strict leaves griffe's to others


def links(page: str) -> list[str]:
    """Where the links and images of a Markdown text lead. What stands in code is no link."""
    return ["".join(found) for found in LINK.findall(CODE.sub("", FENCE.sub("", page)))]


def anchors(page: str) -> set[str]:
    """What can follow a # in a link to a page: headings that occur once, as code hosts and the site write them, and the
    names whose docstrings it shows."""
    heads = re.findall(r"^#{1,6} +(.+?) *#*$", FENCE.sub("", page), re.M)
    bare = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads)
    times = Counter(re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in bare)
    return {head for head, count in times.items() if count == 1} | set(re.findall(r"^::: ([\w.]+)", page, re.M))


def reached(pages: list[Path]) -> Iterator[Path]:
    """Pages, and the files to which relative links lead from them, and from those."""
    seen, waiting = set(pages), list(pages)
    while waiting:
        page = waiting.pop()
        yield page
        for link in links(page.read_text("utf-8")) if page.suffix == ".md" else ():
            path = (page.parent / link.partition("#")[0]).resolve()
            if "://" not in link and path.is_file() and path not in seen:
                seen.add(path)
                waiting.append(path)


def lay_out(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for path in reached([ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]):
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    shutil.copy(ROOT / "docs" / "site.css", folder / "docs")


def build() -> str:
    """What was wrong, or nothing."""
    lay_out(PAGES)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).partition("Traceback")[0]
    if done.returncode or WARNING.search(said):
        return said or done.stderr
    loads = {found for page in SITE.rglob("*.html") for found in FROM_NET.findall(page.read_text("utf-8"))}
    return "\n".join(f"loads from the net: {found}" for found in sorted(loads))


def dead_links() -> Iterator[str]:
    """Links out of the repository that do not answer, each with the pages that have it."""
    where: dict[str, list[str]] = {}
    for page in reached([ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]):
        for link in links(page.read_text("utf-8")) if page.suffix == ".md" else ():
            where.setdefault(link, []).append(str(page.relative_to(ROOT)))
    for link in sorted(link for link in where if "://" in link):
        try:
            urllib.request.urlopen(urllib.request.Request(link, headers={"User-Agent": "Mozilla/5.0"}), timeout=20)
        except OSError as error:
            yield f"{link} ({', '.join(where[link])}): {error}"


if __name__ == "__main__":
    wrong = "\n".join(dead_links()) if "links" in sys.argv else build()
    good = f"{SITE / 'index.html'}; with search: python -m http.server -d {SITE}"
    print(wrong or ("every link answers" if "links" in sys.argv else good))
    sys.exit(bool(wrong))
