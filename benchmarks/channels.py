"""What channels, scorers, policies and a cascade cost; each channel by itself is in `benchmarks textures`.

python -m benchmarks channels
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.baselines import cascade
from benchmarks.common import (
    KEPT,
    PHOTO,
    Image,
    Repeats,
    circumstances,
    crop_square,
    print_json,
    show,
    time_calls,
    time_row,
)
from foveate.allocation.allocation import allocate_map
from foveate.allocation.policies import Coverage, Proportional
from foveate.channels.segments import segment_image
from foveate.channels.text import find_text_regions
from foveate.channels.visual import compute_saliency, compute_visual_planes
from foveate.core.checks import check_int
from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from foveate.pipeline import encode, score
from foveate.relevance.fusion import information, perspective
from foveate.texture.texture import Texture


def command(image: Image = PHOTO, repeats: Repeats = 20) -> None:
    """What channels, scorers and policies cost."""
    report = measure(image, repeats)
    show(report)
    print_json(**report)


def measure(image: Path, repeats: int) -> dict[str, Any]:
    """-> report with one row a step. The image is cut to a square of 1024 pixels (448 where a row says so)."""
    check_int("--repeats", repeats, 1, 1000)
    large, small = crop_square(image, 1024), crop_square(image, 448)
    texture = encode(large)
    z = texture.coordinates().reshape(*texture.grid.shape, -1)

    def ms(what: str, run: Callable[[], Any], target: float | None = None) -> dict[str, Any]:
        return time_row(what, time_calls(run, repeats), "ms", "" if target is None else f"<= {target:g} ms")

    def everything() -> None:
        compute_visual_planes(large)
        compute_saliency(large, texture.grid.shape)
        segment_image(large, z)

    encoder = load_encoder("nano")
    query, dog = prepare(encoder, "a dog"), score(texture, "a dog")
    rows = [
        ms("edges, frequencies, saliency, segments, 1024 x 1024", everything, 60),
        ms("writing", lambda: find_text_regions(large), 60),
        ms("all mip levels of all stored planes", lambda: _mips(_bare(texture)), 5),
        ms("standard texture at 448 pixels, nano", lambda: encode(small), 150),
        ms("fast texture at 448 pixels, nano", lambda: encode(small, channels="fast")),
        ms("information and perspective, once a texture", lambda: _scorers(_bare(texture))),
        ms("a question, three scorers, 4096 cells", lambda: score(texture, "a dog", fusion="part28"), 0.5),
        ms("a question alone", lambda: score(texture, "a dog")),
        ms("cascade to 273 of 4096 cells", lambda: cascade(texture, query, KEPT)),
        ms("the same by scoring everything", lambda: _all(texture, query)),
        ms("Coverage policy, 273 of 4096", lambda: allocate_map(
            dog.map, dog.grid, KEPT, policy=Coverage(), features=dog.features), 5),
        ms("Proportional policy, 273 of 4096", lambda: allocate_map(
            dog.map, dog.grid, KEPT, policy=Proportional())),
    ]  # fmt: skip
    title = f"benchmarks channels: medians of {repeats}"
    return {"title": title, "rows": rows, "image": str(image), **circumstances()}


def _bare(texture: Texture) -> Texture:
    """The same without what was derived from it."""
    copy = object.__new__(Texture)
    copy.__setstate__(texture.__getstate__())
    return copy


def _mips(texture: Texture) -> None:
    for name in texture.planes:
        for level in range(1, 11):
            texture.mip(name, level, warn=False)


def _scorers(texture: Texture) -> None:
    information(texture)
    perspective(texture)


def _all(texture: Texture, query: Any) -> Any:
    return allocate_map(texture.scores(query.vectors).max(0), texture.grid, KEPT)
