"""Which model classes foveate takes, and how exactly: every tiny model of examples/tiny_vlms, in every mode.

    python -m benchmarks families [--write docs/vlm.md]

Exact is against the stock model: all tokens bit for bit, kept tokens against the full prompt with the others masked.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from PIL import Image

COLUMNS = ("layout", "positions", "all", "kept", "sparse", "several images", "video", "crop", "processor")
BEGIN, END = "<!-- families: python -m benchmarks families --write docs/vlm.md -->\n", "<!-- /families -->"
BUS = str(files("foveate") / "cli" / "photos" / "yellow_bus.jpg")
SEVERAL = ((120, 160), (150, 100))  # sizes of two images in one prompt


@dataclass(frozen=True)
class Facts:
    """What is true of a family. sparse, images: largest difference of logits, as a share of the largest; or why not."""

    report: Any
    layout: str
    positions: str
    sparse: float | str
    images: float | str
    video: bool
    crop: bool
    stand_in: bool

    def row(self) -> tuple[str, ...]:
        """As COLUMNS."""
        return (
            self.layout,
            self.positions,
            _exact(self.report.all_tokens),
            _exact(self.report.kept) + (" (recurrent)" if self.report.recurrent else ""),
            _exact(self.sparse),
            _exact(self.images),
            "yes" if self.video else "no",
            "yes" if self.crop else "no",
            "stand-in for torchvision" if self.stand_in else "stock",
        )


def measure_family(name: str, *, crops: bool = True) -> Facts:
    """The tiny model of a family, checked in every way; mode "crop" takes longest."""
    from examples.tiny_vlms import NEED_TORCHVISION, tiny
    from foveate.core.errors import FoveateError
    from foveate.vlm import attach
    from foveate.vlm.families.family import Family
    from foveate.vlm.self_check import check_attached

    vlm = attach(*tiny(name))
    report = check_attached(vlm)
    picture = _photo(*SEVERAL[0], seed=0)
    encoded = vlm.see(picture, read=False)
    positions = vlm.prepare(encoded, "what is this?", budget=None).text["position_ids"]

    def tried(measure: Any) -> float | str:
        try:
            return float(measure(vlm))
        except FoveateError as cause:
            return cause.received

    frames = [_photo(*SEVERAL[0], seed=n) for n in range(4)]
    try:
        video = vlm.see_video(frames, read=False) is not None
    except FoveateError:
        video = False
    assert isinstance(vlm.family, Family)
    return Facts(
        report,
        describe(encoded.layouts[0]),
        "0, 1, 2, ..." if positions.ndim == 2 else "its own",
        tried(difference_sparse),
        tried(difference_several),
        video,
        crops and not isinstance(tried(count_crops), str),
        name in NEED_TORCHVISION,
    )


def describe(layout: Any) -> str:
    """A layout in a few words."""
    grids = layout.grids
    shape = "one grid" if len(grids) == 1 else f"{len(grids)} grids"
    if any(grid.line not in (0, grid.w) for grid in grids) or layout.always:
        shape += ", line ends"
    return shape


def difference_sparse(vlm: Any) -> float:
    """Mode "sparse" with all tokens, against the stock model."""
    from foveate.vlm.self_check import stock_inputs

    picture = _photo(*SEVERAL[0], seed=0)
    encoded = vlm.see(picture, mode="sparse", read=False)
    prepared = vlm.prepare(encoded, "what is this?", budget=None, mode="sparse")
    return _relative(vlm, stock_inputs(vlm, [picture]), prepared.inputs())


def difference_several(vlm: Any) -> float:
    """All tokens of two images of different sizes in one prompt, against the stock model."""
    from foveate.vlm.self_check import stock_inputs

    pictures = [_photo(*size, seed=n) for n, size in enumerate(SEVERAL)]
    prepared = vlm.prepare(vlm.see(pictures, read=False), "what is this?", budget=None)
    return _relative(vlm, stock_inputs(vlm, pictures), prepared.inputs())


def count_crops(vlm: Any) -> int:
    """How many pictures mode "crop" shows of a bus, the whole among them."""
    answer = vlm.ask(vlm.see(BUS, read=False), "the yellow bus", budget=120, mode="crop", max_new_tokens=1)
    return len(answer.chosen)


def _relative(vlm: Any, stock: dict[str, Any], ours: dict[str, Any]) -> float:
    from foveate.vlm.self_check import first_logits

    a, b = (first_logits(vlm, inputs) for inputs in (stock, ours))
    return float((a - b).abs().max() / a.abs().max())


def _photo(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    noise = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), np.uint8)
    return np.asarray(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


def _exact(difference: float | str) -> str:
    if isinstance(difference, str):
        return "no"
    return "exact" if difference == 0 else f"{difference:.0e}"


def table(found: dict[str, Facts]) -> str:
    """The table in Markdown, a row for each class, sorted."""
    rows = sorted((f"`{facts.report.model}`", name, *facts.row()) for name, facts in found.items())
    head = ("class", "tiny model", *COLUMNS)
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def command(
    only: Annotated[str, typer.Option(help="a regular expression: families whose name it matches")] = "",
    write: Annotated[Path | None, typer.Option(help="a page to write the table into")] = None,
) -> None:
    """Every family of vision-language models: layout, positions, and differences from the stock model."""
    from examples.tiny_vlms import FAMILIES, NEED_TORCHVISION

    warnings.simplefilter("ignore")
    names = [*FAMILIES, *(NEED_TORCHVISION if importlib.util.find_spec("torchvision") else ())]
    found = {}
    for name in names:
        if re.search(only, name):
            found[name] = measure_family(name)
            print(f"{name}: {', '.join(found[name].row())}", flush=True)
    if write is not None:
        text = write.read_text("utf-8")
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        write.write_text(text[:begin] + table(found) + text[end:], "utf-8")
