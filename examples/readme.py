"""The pictures of README.md and docs/, drawn anew: `python examples/readme.py --out docs`.

Needs no model and no download; `reading.jpg` needs the extra `[text]`. `--photos FOLDER` adds the pictures of a search
in a folder of photographs (docs/search.jpg shows fifteen of COCO, CC BY 2.0, src/foveate/cli/photos/ATTRIBUTION.md).
`--viewer` adds those of `foveate view`; it needs the extra `[view]`, Playwright and Debian's Chromium.
"""

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageOps
from receipt import draw_receipt

import foveate
from foveate import Grid, viz
from foveate.viz import paper
from foveate.viz.layers import lay_kept
from foveate.viz.overlay import History, Page, draw
from foveate.viz.pictures import Tile, arrange, in_quotes, tell_kinds

LARGEST = 400_000  # bytes of a picture
PHOTOS = Path(str(files("foveate") / "cli" / "photos"))
BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
WAIT = 120_000  # milliseconds, of a machine that others use, too
CHILD, BUS = (PHOTOS / name for name in ("child_with_broccoli.jpg", "yellow_bus.jpg"))
SEARCHES = ("food", "a tie")


def draw_hero() -> Image.Image:
    """A photograph, encoded once, and four questions: a thing, a part, a part, a thing that is not there."""
    texture = foveate.encode(CHILD)
    questions = ("broccoli", "the child's hand", "the child's face", "a dog")
    return viz.compare(texture, {q: foveate.score(texture, q) for q in questions}, columns=5, side=500)


def draw_kept() -> Image.Image:
    """One question in three panels: the photograph, where it looks, the 273 cells that are kept."""
    texture = foveate.encode(CHILD)
    relevance = foveate.score(texture, "the child's hand")
    return viz.question_page(texture, relevance, foveate.allocate(relevance, 273))


def draw_kinds() -> Image.Image:
    """Why 69 of 576 visual tokens are kept: of a thing, of what is beside it, of the whole picture."""
    texture, panels = foveate.encode(BUS), []
    for query in ("the bus", "what is left of the bus?", "describe the picture"):
        kept = foveate.allocate(foveate.score(texture, query).on((24, 24)), 69)
        panels.append(Tile(lay_kept(texture.pixel, kept), in_quotes(query), key=tell_kinds(kept)))
    return paper.paint(arrange(panels, 3))


def draw_vlm() -> Image.Image:
    """What Qwen2.5-VL sees of it at 128 visual tokens: its tokens are 28 x 28 pixels, 23 x 17 of them here."""
    texture = foveate.encode(CHILD)
    relevance = foveate.score(texture, "what is the child holding?")
    height, width = texture.grid.height, texture.grid.width
    tokens = Grid(round(height / 28), round(width / 28), height, width)
    photo = np.asarray(Image.fromarray(texture.pixel).resize((round(720 * width / height), 720)))
    panels = [Tile(photo, f"all {tokens.count} visual tokens")]
    for budget in (128, 64):
        kept = foveate.allocate(relevance.on(tokens), budget)
        picture = np.asarray(viz.kept(texture, kept, side=720, labels=False))
        panels.append(Tile(picture, f"{budget} of {tokens.count} visual tokens", key=tell_kinds(kept)))
    heat = np.asarray(viz.heatmap(texture, relevance, side=720, labels=False))
    first = Tile(heat, f"“{relevance.query}”", (), relevance.confidence)
    return paper.paint(arrange([first, *panels], 4))


def draw_video() -> Image.Image:
    """Two frames of an overlay: a camera that moves over the photograph of a bus."""
    photo = foveate.load_image(BUS).rgb
    pan: Iterator[np.ndarray] = (np.ascontiguousarray(photo[:, 4 * i : 4 * i + 480]) for i in range(36))
    shown, page, history = [], Page.for_frames((photo.shape[0], 480), 2), History(2, 36)
    with foveate.video.stream(pan, ["the windows of the bus", "the road"], budget=160) as frames:
        for frame in frames:
            history.add(frame)
            if frame.index in (0, 20):
                shown.append(draw(frame, history, page))
    return Image.fromarray(np.concatenate(shown, 1))


def draw_search(photos: Path) -> Image.Image:
    """The best five photographs of each search in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        store = foveate.Store(Path(folder) / "photos.fov")
        store.add(photos)
        sheets = [viz.search_sheet(store.search(query, 5), query, columns=5) for query in SEARCHES]
    return Image.fromarray(np.concatenate([np.asarray(sheet) for sheet in sheets]))


def draw_reading() -> Image.Image:
    """A receipt, read once: three questions."""
    texture = foveate.encode(draw_receipt(), read=True)
    questions = ("what is the total?", "when was this bought?", "which number can I call?")
    panels = {q: foveate.score(texture, q) for q in questions}
    return viz.compare(texture, panels, side=900)


def draw_homunculus() -> Image.Image:
    """The photograph redrawn with area in proportion to tokens, beside the cells that are kept."""
    texture = foveate.encode(CHILD)
    kept = foveate.allocate(foveate.score(texture, "the child's hand"), 273)
    pictures = [viz.kept(texture, kept, side=900), viz.homunculus(texture, kept, side=900)]
    tall = max(picture.height for picture in pictures)  # one of them may have a line more below
    fill: Any = pictures[0].getpixel((9, 9))  # of the paper
    same = [ImageOps.pad(picture, (picture.width, tall), color=fill, centering=(0, 0)) for picture in pictures]
    return Image.fromarray(np.concatenate([np.asarray(picture) for picture in same], 1))


def draw_viewer(
    theme: Literal["light", "dark"], photo: Path, questions: tuple[str, ...], **state: object
) -> Image.Image:
    """The page of `foveate view`, light or dark, with questions asked and the rest of its state set."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "foveate", "view", str(photo), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = next(word for line in server.stdout for word in line.split() if word.startswith("http"))
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=next(filter(None, map(shutil.which, BROWSERS)), None), args=["--no-sandbox"]
                )
                page = browser.new_page(
                    viewport={"width": 1240, "height": 780}, device_scale_factor=1.25, color_scheme=theme
                )
                page.set_default_timeout(WAIT)
                page.goto(address)
                page.locator("#tokens-budget").wait_for()
                page.evaluate("state => window['foveate'].set(state)", {"questions": questions, **state})
                page.locator("#questions .pill").nth(len(questions) - 1).wait_for()
                page.wait_for_timeout(500)
                return Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        finally:  # also where there is no browser: the end of the block waits for the server
            server.kill()


def save(picture: Image.Image, path: Path, widest: int = 2000, largest: int = LARGEST) -> None:
    """Write a JPEG of at most so many bytes."""
    if picture.width > widest:
        picture = picture.resize((widest, round(picture.height * widest / picture.width)), Image.Resampling.LANCZOS)
    for quality in range(92, 50, -4):
        picture.save(path, quality=quality, subsampling=0, optimize=True)
        if path.stat().st_size <= largest:
            break
    print(f"{path}: {picture.width} x {picture.height}, {path.stat().st_size // 1000} kB")


parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("foveate-out"))
parser.add_argument("--photos", type=Path, help="a folder of photographs to search")
parser.add_argument("--viewer", action="store_true", help="pictures of `foveate view`, too")
args = parser.parse_args()

args.out.mkdir(parents=True, exist_ok=True)
for name, drawn in (
    ("hero", draw_hero), ("kept", draw_kept), ("kinds", draw_kinds), ("vlm", draw_vlm), ("video", draw_video),
    ("homunculus", draw_homunculus),
):  # fmt: skip
    save(drawn(), args.out / f"{name}.jpg")
if find_spec("rapidocr"):
    save(draw_reading(), args.out / "reading.jpg")
if args.photos:
    save(draw_search(args.photos), args.out / "search.jpg")
if args.viewer:
    found = ("broccoli", "the child's hand", "the child's face")
    save(draw_viewer("light", CHILD, found, many="together"), args.out / "viewer_light.jpg", largest=200_000)
    windows = ("the windows of the bus", "the road")
    save(draw_viewer("dark", BUS, windows, view="kept", budget=273), args.out / "viewer_dark.jpg", largest=200_000)
