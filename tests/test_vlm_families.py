"""Every family of tiny models, in every mode: the library's own model is the reference (benchmarks/families.py)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.families import BEGIN, END, Facts, measure_family
from examples.tiny_vlms import FAMILIES, NEED_TORCHVISION, REFUSED, first, tiny
from foveate.core.errors import ModelError
from foveate.vlm import attach, check
from foveate.vlm.families import known
from foveate.vlm.families.pixels import find_cells
from foveate.vlm.inputs.images import process_images
from foveate.vlm.self_check import local_encoder
from tests.vlm_models import pair, photo

ROOT = Path(__file__).parent.parent
EXACT = 1e-5  # of the largest logit
CODED = ("chameleon", "emu3")  # each code depends on most of a small image: no attention, but many convolutions
TORCHVISION = importlib.util.find_spec("torchvision") is not None  # or what stands in for it
OLDEST = "FOVEATE_TRANSFORMERS" in os.environ  # has fewer families, and not all of them right: the first eight are
NAMES = list(NEED_TORCHVISION if TORCHVISION else first.FAMILIES if OLDEST else FAMILIES)
pytestmark = [
    pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


@cache
def facts(name: str) -> Facts:
    return measure_family(name, crops=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_family_is_exact(name: str) -> None:
    found: Facts = facts(name)
    report = found.report
    assert report.all_tokens == 0, report
    assert report.kept <= EXACT, report
    assert report.dropped > 100 * EXACT, report  # dropping tokens does change something
    assert (report.places is None) == (name in CODED), report
    assert report.places is None or report.places >= 0.98, report
    assert found.sparse if isinstance(found.sparse, str) else found.sparse <= EXACT
    assert found.images if isinstance(found.images, str) else found.images <= EXACT
    assert report.model in known.FAMILIES


@pytest.mark.parametrize("name", [] if OLDEST else list(REFUSED))
def test_a_family_is_refused(name: str) -> None:
    model, processor = tiny(name)
    with pytest.raises(ModelError, match=known.REFUSED[type(model).__name__]):
        attach(model, processor)


@pytest.mark.parametrize("name", NAMES)
def test_kept_tokens_are_encoded_at_their_places(name: str) -> None:
    """Without attention in the encoder, which mixes them, they are the same whether the others are there or not."""
    if isinstance(facts(name).sparse, str):
        return
    vlm, picture = attach(*tiny(name)), photo(168, 224)
    layouts, inputs = vlm.see(picture, read=False).layouts, vlm.see(picture, mode="sparse", read=False).inputs
    rows = np.sort(np.random.default_rng(0).permutation(layouts[0].count)[: layouts[0].count // 3])
    with torch.no_grad(), local_encoder(vlm.model):
        ours = vlm.family.encode_kept(vlm.model, inputs, [rows], layouts).rows[0]
        theirs = vlm.family.encode(vlm.model, inputs, [layouts[0].count]).rows[0][rows]
    assert float((ours - theirs).abs().max()) <= EXACT * float(theirs.abs().max())


@pytest.mark.parametrize("name", NAMES)
def test_the_pixels_of_a_token_lie_where_it_does(name: str) -> None:
    """Images that grow lighter to the right, or downwards: a token's mean says where its pixels are."""
    if name == "llava_onevision":  # of a large image tokens are mixed of several patches: test_vlm_repeated.py
        return
    vlm, size = attach(*tiny(name)), (150, 200)
    x, y = np.linspace(0, 255, size[1])[None], np.linspace(0, 255, size[0])[:, None]
    greys = [np.broadcast_to(grey, size).astype(np.uint8) for grey in (x, y, np.zeros(size), np.full(size, 255))]
    made = [process_images(vlm, [Image.fromarray(np.stack([grey] * 3, 2))]) for grey in greys]
    inputs, spans = made[0]
    layouts = vlm.family.layouts(vlm.model, vlm.processor, inputs, [size], [span.ids for span in spans])
    cells = [find_cells(vlm.model, vlm.processor, each, layouts)[0] for each, _ in made]
    for grid, *(right, down, black, white) in zip(layouts[0].grids, *cells, strict=True):
        inside = white - black > 0.5 * (white - black).max()  # the rest is padding
        whole = inside.mean(2) > 0.9
        y0, x0, y1, x1 = grid.box
        for shown, start, stop, pixels, count, axis in (
            (right, x0, x1, size[1], grid.w, 1),
            (down, y0, y1, size[0], grid.h, 0),
        ):
            share = np.where(inside, (shown - black) / np.where(inside, white - black, 1), 0)
            place = (share.sum(2) / np.maximum(inside.sum(2), 1) * pixels - start) / (stop - start) * count
            apart = np.abs(place - 0.5 - np.indices(grid.shape)[axis])[whole]  # in tokens
            assert apart.max(initial=0) < 0.35
        assert whole.any()


@pytest.mark.skipif(TORCHVISION or OLDEST, reason="runs once")
def test_beyond_a_window_of_the_language_model_kept_tokens_are_not_exact() -> None:
    """Dropped tokens take up no place in the window of a layer."""
    assert check(*pair("ovis2")).window is None
    model, processor = tiny("aya_vision")
    assert check(model, processor).window == 2048
    text = model.config.text_config
    text.sliding_window = 40
    for layer, kind in zip(model.model.language_model.layers, text.layer_types, strict=True):
        layer.self_attn.sliding_window = 40 if kind == "sliding_attention" else None
    report = check(model, processor)
    assert (report.all_tokens, report.window) == (0, 40)
    assert report.kept > 100 * EXACT
    assert "more than 40 tokens" in str(report)


@pytest.mark.skipif(TORCHVISION or OLDEST, reason="runs once")
def test_processors_that_write_prompts_of_their_own() -> None:
    picture, question = Image.fromarray(photo()), "is this so?"
    message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}

    def ours(name: str) -> torch.Tensor:
        vlm = attach(*pair(name))
        return vlm.prepare(vlm.see(picture, read=False), question, budget=None).text["input_ids"]

    charts = pair("pp_chart2table")[1]  # its template writes every image token
    text = charts.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
    stock = charts(images=[picture], text=text, return_tensors="pt")["input_ids"]
    assert torch.equal(ours("pp_chart2table"), stock)
    policies = {"mine": question}  # it asks policies, and no text
    shield = pair("shieldgemma2")[1]
    stock = shield(images=[picture], custom_policies=policies, policies=["mine"], return_tensors="pt")["input_ids"]
    assert torch.equal(ours("shieldgemma2")[:, : stock.shape[1]], stock)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_is_true_of_a_family(name: str) -> None:
    page = (ROOT / "docs" / "vlm.md").read_text("utf-8")
    rows = page[page.index(BEGIN) : page.index(END)].splitlines()
    cells = next(row.strip("| ").split(" | ") for row in rows if f"| {name} |" in row)
    assert (cells[0], *cells[2:4]) == (f"`{facts(name).report.model}`", *facts(name).row()[:2])
    said = [("e-" in cell or cell == "exact", cell == "yes") for cell in cells[4:9]]
    true = [("e-" in cell or cell == "exact", cell == "yes") for cell in facts(name).row()[2:7]]
    assert said == true


@pytest.mark.skipif(TORCHVISION or OLDEST, reason="these run elsewhere")
def test_families_whose_processors_need_torchvision() -> None:
    """In a process of its own, where tests/stand_in is torchvision."""
    path = os.pathsep.join([str(ROOT / "tests" / "stand_in"), str(ROOT), *sys.path])
    files = [str(Path(__file__).with_name(f"test_vlm_{part}.py")) for part in ("families", "sparse", "clips")]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", *files]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
