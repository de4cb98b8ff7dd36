"""Which rule keeps the tokens that show an answer that is written on a page?

    python -m benchmarks selection_pages --data FOLDER --words words.json --half B    # a folder of `benchmarks reading`

* 24 x 24 tokens over the page, as LLaVA has. A case needs all tokens that the answer's boxes touch, but for a tenth of
  their height at each side (boxes are drawn generously). Answers that stand in several places are left out.
* "pages read": the texture has the page's words, and the map shows words whole, as in `foveate.vlm`, for every rule;
  "pages": nothing was read.
* Rows stand in for a model's: the grey pixels of each token, 14 x 14. A real tower knows more of writing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import cv2
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.reading import KeptWords, PageHalf, PagesData, Question, lay_boxes, read_pages, read_questions
from foveate.cli.evaluate.coco import open_images
from foveate.cli.evaluate.policies import SIDE, Case, Need, report
from foveate.cli.terminal import counting
from foveate.core.errors import QueryError
from foveate.pipeline import encode, score
from foveate.relevance.scoring import empty_relevance
from foveate.texture.texture import Texture
from foveate.vlm.inputs.images import CHANNELS
from foveate.vlm.select.words import raise_words

Asked = Sequence[tuple[str, tuple[Need, ...]]]  # questions, and what their answers need
PATCH = 14  # pixels of a token, as in LLaVA's tower
MARGIN = 0.1  # of a box's height


def needs_of(question: Question, size: tuple[int, int]) -> tuple[Need, ...]:
    """All tokens that the one place of the answer touches."""
    (boxes,) = question.places
    moved = [MARGIN * min(y1 - y0, x1 - x0) for x0, y0, x1, y1 in boxes]
    inner = tuple((x0 + m, y0 + m, x1 - m, y1 - m) for (x0, y0, x1, y1), m in zip(boxes, moved, strict=True))
    cells = np.flatnonzero(lay_boxes(inner, SIDE, SIDE, size).ravel())
    return (Need(cells, len(cells)),)


def patches(rgb: NDArray[np.uint8], side: int = SIDE) -> NDArray[np.float32]:
    """Grey pixels of each of side x side tokens, float32 [n, 196], centred as a tower's input is."""
    wide = side * PATCH
    grey = cv2.cvtColor(cv2.resize(rgb, (wide, wide), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
    tiles = grey.reshape(side, PATCH, side, PATCH).transpose(0, 2, 1, 3).reshape(side * side, -1)
    return np.asarray(tiles / 255 - 0.45, np.float32) / np.float32(0.27)


def cases_of_page(
    image: str, rgb: NDArray[np.uint8], textures: Mapping[str, Texture], asked: Asked, side: int = SIDE
) -> Iterator[Case]:
    """Each question on each texture, by the name of its set; tokens are side x side."""
    rows = patches(rgb, side)
    for name, (text, needs) in itertools.product(textures, asked):
        try:
            relevance = score(textures[name], text)
        except QueryError:
            relevance = empty_relevance(textures[name], text)
        yield Case(name, image, text, raise_words(relevance.on((side, side))), rows, needs)


def pages(data: Path, words: Path | None, half: str | None, limit: int | None, cache: Path | None) -> Iterator[Case]:
    """Cases of a folder of pages, page by page; `cache`: a folder that keeps textures."""
    asked = [q for q in read_questions(data) if half in (None, q.half) and len(q.places) == 1]
    files = list(dict.fromkeys(q.file for q in asked))[:limit]
    known = read_pages(data, files, words)
    with open_images(data) as read, counting("pages", len(files)) as progress:
        for number, file in enumerate(files, 1):
            rgb = read(file)
            kept = None if cache is None else cache / f"{Path(file).stem}.safetensors"
            if kept is not None and kept.is_file():
                unread = Texture.load(kept)
            else:
                unread = encode(rgb, channels=CHANNELS)
                if kept is not None:
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    unread.save(kept)
            textures = {"pages read": unread.with_words(known[file][1]), "pages": unread}
            size = rgb.shape[0], rgb.shape[1]
            its = [(q.text, needs_of(q, size)) for q in asked if q.file == file]
            yield from cases_of_page(file, rgb, textures, its)
            progress(number)


def measure(
    data: PagesData,
    words: KeptWords = None,
    half: PageHalf = None,
    limit: Annotated[int | None, typer.Option(help="Pages, at most.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder that keeps textures.")] = None,
) -> dict[str, Any]:
    """Which rule keeps the tokens that show an answer that is written on a page? Read, and not read."""
    return {**report(pages(data, words, half, limit, cache)), "half": half}
