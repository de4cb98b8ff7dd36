"""A texture on a device is asked and allocated as on the CPU: the same cells, ties included; and clear errors."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate
from foveate.allocation.device.fused import ask
from foveate.allocation.device.keeping import rank_of
from foveate.allocation.device.replay import Replay
from foveate.allocation.device.scoring import score_on_device
from foveate.allocation.policies import Coverage, top_cells
from foveate.core import devices
from foveate.core.devices import check_same, find_device, import_torch
from foveate.core.errors import BudgetError, DeviceError, MissingExtraError, OptionError, QueryError
from foveate.core.grid import Grid
from foveate.core.layout import Layout
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Calibration
from foveate.language.negatives import negatives_of
from foveate.language.query import prepare
from foveate.reading.words import Word, Words
from foveate.relevance.fusion import DEFAULTS
from foveate.relevance.scoring import score_query
from foveate.relevance.written import page_of
from foveate.texture import tensors
from foveate.texture.tensors import DeviceTexture, bytes_on_device, in_chunks, stack
from foveate.texture.texture import Texture

PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
QUESTIONS = (
    "broccoli", "a violin", "a fork and a plate", "a dog or a child", "the red plate", "what is the child holding?",
    "what does the sign say?",
)  # fmt: skip
CLOSE = 3e-6  # of maps in [0, 1]


@pytest.fixture(scope="module")
def see_through(texture: Texture) -> Texture:
    """With a transparent quarter, and one that is half transparent."""
    valid = np.full((texture.grid.height, texture.grid.width), 255, np.uint8)
    valid[: texture.grid.height // 2, : texture.grid.width // 2] = 0
    valid[texture.grid.height // 2 :, : texture.grid.width // 2] = 100
    return replace(texture, valid=valid)


def assert_alike(here: Any, there: Any) -> None:
    """A Relevance and a DeviceRelevance."""
    found = there.cpu()
    for name in ("map", "logits"):
        scale = max(1.0, float(np.abs(getattr(here, name)).max()))
        assert np.abs(getattr(found, name) - getattr(here, name)).max() <= CLOSE * scale, name
    for name in ("confidence", "peak", "trust"):
        assert getattr(found, name) == pytest.approx(getattr(here, name), abs=CLOSE), name
    for name in ("parts", "reasons", "confidences"):
        assert {*getattr(found, name)} == {*getattr(here, name)}
        for key, value in getattr(here, name).items():
            np.testing.assert_allclose(getattr(found, name)[key], value, atol=CLOSE)
    for name in ("query", "ignored", "unknown", "weights", "preset", "grid", "detected", "texture"):
        assert getattr(found, name) == getattr(here, name), name
    for name in ("saliency", "valid", "features"):
        np.testing.assert_array_equal(getattr(found, name), getattr(here, name))


def assert_kept_alike(here: Any, there: Any) -> None:
    found = there.cpu()
    np.testing.assert_array_equal(found.indices, here.indices)
    np.testing.assert_allclose(found.scores, here.scores, atol=CLOSE)
    assert {*found.reasons} == {*here.reasons}
    for name, values in here.reasons.items():
        np.testing.assert_allclose(found.reasons[name], values, atol=CLOSE)
    np.testing.assert_array_equal(there.mask.cpu().numpy(), here.mask)
    assert len(there) == len(here)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("query", QUESTIONS)
@pytest.mark.parametrize("which", ["texture", "see_through"])
def test_a_question_on_a_device_keeps_the_same_cells(
    which: str, query: str, place: str, request: pytest.FixtureRequest
) -> None:
    texture = request.getfixturevalue(which)
    here, there = foveate.score(texture, query), foveate.score(texture.to(place), query)
    assert there.device == find_device(place)
    assert_alike(here, there)
    for budget in (1, 273, texture.grid.count, "auto"):
        assert_kept_alike(foveate.allocate(here, budget), foveate.allocate(there, budget))
    protected = np.zeros(texture.grid.shape, bool)
    protected[:3, ::2] = True
    masks: tuple[Any, ...] = (protected, torch.tensor(protected, device=there.device))
    for mask in masks:
        kept = foveate.allocate(there, 300, floor=0.4, protected=mask)
        assert_kept_alike(foveate.allocate(here, 300, floor=0.4, protected=protected), kept)


@pytest.mark.parametrize(
    "how",
    [
        {"smoothing": 0},
        {"cues": False},
        {"channel_weights": {"saliency": 0.5, "colour:green": 0.2}},
        {"prior": "saliency", "prior_weight": 0.6},
        {"preset": "static"},
        {"reading": False},
    ],
)
def test_keywords_count_as_on_the_cpu(texture: Texture, how: dict[str, Any]) -> None:
    there = texture.to("cpu")
    for query in ("the red plate", "what does the sign say?"):
        here, found = foveate.score(texture, query, **how), foveate.score(there, query, **how)
        assert_alike(here, found)
        assert_kept_alike(foveate.allocate(here, 100), foveate.allocate(found, 100))


def test_several_questions_and_an_earlier_one_as_a_prior(texture: Texture) -> None:
    there = texture.to("cpu")
    several, here = foveate.score(there, ["broccoli", "a plate"]), foveate.score(texture, ["broccoli", "a plate"])
    earlier: dict[str, Any] = {"prior": several[0]}
    assert several.map.shape == (2, *texture.grid.shape)
    np.testing.assert_allclose(several.cpu().map, here.map, atol=CLOSE)
    np.testing.assert_allclose(several.confidence.numpy(), here.confidence, atol=CLOSE)
    for one, other in zip(foveate.allocate(several, 50), foveate.allocate(here, 50), strict=True):
        assert_kept_alike(other, one)
    assert_alike(
        foveate.score(texture, "a plate", prior=here[0]), foveate.score(there, "a plate", **earlier)
    )  # fmt: skip
    with pytest.raises(QueryError):
        foveate.score(there, [])
    with pytest.raises(QueryError):
        foveate.score(there, "")


def test_negatives_compete_as_on_the_cpu(texture: Texture) -> None:
    nano = load_encoder("nano")
    calibration = Calibration(temperature=40.0, contrast=1.0, synonym=0.6, slope=60.0, offset=-3.0)
    negatives = negatives_of(nano)
    for text in ("broccoli", "a violin", "the red plate"):
        query = prepare(nano, text)
        here = score_query(texture, query, calibration, negatives, DEFAULTS)
        there = score_on_device(texture.to("cpu"), query, calibration, negatives, DEFAULTS)
        np.testing.assert_allclose(there.map.numpy(), here.map, atol=2e-5)  # the slope multiplies rounding by 60
        assert_kept_alike(foveate.allocate(here, 273), foveate.allocate(there, 273))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
def test_ties_saliency_and_spread_are_numpys(
    texture: Texture, seed: int, h: int, w: int, floor: float, protect: bool
) -> None:
    """Maps of few values, so that ties decide; trust from 0 to 1; cells that do not count."""
    rng = np.random.default_rng(seed)
    small = grid_of(texture, h, w, rng)
    budget = int(rng.integers(1, h * w + 1))
    plane = rng.choice(np.array([0, 0.25, 0.5, 1], np.float32), (h, w))
    here = replace(foveate.score(small, "broccoli"), map=plane, confidence=float(rng.choice([0, 0.25, 0.75])), peak=0.0)
    there = small.to("cpu")
    found = replace(
        foveate.score(there, "broccoli"),
        map=torch.tensor(plane),
        confidence=torch.tensor(here.confidence, dtype=torch.float64),
        peak=torch.zeros((), dtype=torch.float64),
    )  # fmt: skip
    protected = rng.random((h, w)) < 0.2 if protect else None
    if protected is not None and protected.sum() > budget:
        protected = None
    kept = foveate.allocate(here, budget, floor=floor, protected=protected)
    assert_kept_alike(kept, foveate.allocate(found, budget, floor=floor, protected=protected))


def grid_of(texture: Texture, h: int, w: int, rng: np.random.Generator) -> Texture:
    """A small texture with random cells, some of them transparent."""
    valid = np.full((h, w), 255, np.uint8) * (rng.random((h, w)) > 0.2).astype(np.uint8)
    return replace(
        texture,
        grid=Grid(h, w, h, w),
        pixel=np.zeros((h, w, 3), np.uint8),
        valid=valid if rng.random() < 0.5 else None,
        planes={"saliency": rng.choice(np.array([0, 0.5, 1], np.float16), (h, w))},
        embedding=(0.01 * rng.standard_normal((h, w, texture.rank))).astype(np.float16),
        residual=np.zeros((h, w), np.float16),
        extra={},
    )


def test_equal_textures_have_equal_tensors(texture: Texture) -> None:
    there = texture.to("cpu")
    again = replace(texture).to(torch.device("cpu"))
    for one, other in zip(there.tensors, again.tensors, strict=True):
        assert torch.equal(one, other)
    assert there.nbytes == bytes_on_device(texture)
    assert there.to("cpu") is there
    assert there.cpu() is texture
    np.testing.assert_array_equal(there.table.numpy(), texture.tokens(dtype=np.float16))
    np.testing.assert_array_equal(there.z.numpy(), texture.embedding.reshape(-1, texture.rank))
    assert there.table.is_contiguous()
    assert there.z.stride() == (1, texture.grid.count)  # number by number
    wide = texture.to("cpu", Layout("three", ("saliency", "red", "x")))
    assert wide.table.shape == (texture.grid.count, 8)
    assert not wide.table[:, 3:].any()
    kept = foveate.allocate(foveate.score(there, "broccoli"), 50)
    np.testing.assert_array_equal(kept.rows.numpy(), texture.tokens(dtype=np.float16)[kept.indices.numpy()])
    assert "cpu" in repr(there)
    assert "on cpu" in repr(kept)


def test_several_textures_are_asked_in_one_go(texture: Texture) -> None:
    """Ranks and numbers of segments that differ, one without segments, one with transparent cells."""
    rng = np.random.default_rng(0)
    seven = replace(texture.basis, rows=texture.basis.rows[:7])
    small = replace(texture, embedding=texture.embedding[..., :7], basis=seven)
    plain = replace(texture, planes={n: p for n, p in texture.planes.items() if n != "cluster_id"})
    noise = (0.01 * rng.standard_normal(texture.embedding.shape)).astype(np.float16)
    other = replace(texture, embedding=noise)
    parts: list[Texture | DeviceTexture] = [texture, small, plain.to("cpu"), other]
    batch = stack(parts)
    assert len(batch) == 4
    vectors = prepare(load_encoder("nano"), "broccoli, a plate, a dog").vectors
    bias = torch.tensor(rng.standard_normal((4, texture.grid.count)).astype(np.float32))
    for given_bias in (None, bias):
        found = ask(batch, vectors, 99, bias=given_bias)
        assert found.rows.shape == (4, 3, 99, 40)
        for i, part in enumerate(batch.textures):
            scores = part.scores(vectors).reshape(3, -1) + (0 if given_bias is None else given_bias[i].numpy())
            for j in range(3):
                np.testing.assert_array_equal(found.indices[i, j].numpy(), top_cells(scores[j], 99))
                np.testing.assert_allclose(found.scores[i, j].numpy(), scores[j][found.indices[i, j]], atol=2e-6)
                assert torch.equal(found.rows[i, j], batch[i].table[found.indices[i, j]])
    assert torch.equal(ask(batch[1], vectors, 9).indices[0], ask(batch, vectors, 9).indices[1])
    maps, _ = torch.zeros(4, 2, texture.grid.count), None
    keys, spread = rank_of(batch, maps, torch.zeros(4, 2, dtype=torch.float64), 10, 0.0)
    assert spread.shape == (4, 2)
    assert keys.shape == maps.shape


def test_textures_of_several_grids_are_asked_a_grid_at_a_time(texture: Texture) -> None:
    rng = np.random.default_rng(0)
    wide, high = grid_of(texture, 4, 6, rng), grid_of(texture, 6, 4, rng)
    mixed = [wide, high, high, wide]
    with pytest.raises(OptionError, match="4 x 6, 6 x 4") as caught:
        stack(mixed)
    assert "in_chunks(sorted(" in caught.value.fix
    assert [part.textures for part in in_chunks(mixed, "cpu")] == [(wide,), (high, high), (wide,)]
    by_grid = sorted(mixed, key=lambda each: each.grid.shape)
    assert [part.textures for part in in_chunks(by_grid, "cpu")] == [(wide, wide), (high, high)]
    other = replace(wide, encoder=replace(wide.encoder, revision="another"))
    assert [len(part) for part in in_chunks([wide, wide, other], "cpu")] == [2, 1]


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["cuda:99", "cpu:3", "meta", "gpu", "", 0, True, None])
def test_a_device_that_is_not_there_is_refused(texture: Texture, where: Any) -> None:
    with pytest.raises(OptionError, match="device=") as caught:
        texture.to(where)
    assert "'cpu'" in caught.value.expected


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, texture: Texture) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"foveate\[torch\]"):
        texture.to("cuda")
    with pytest.raises(MissingExtraError, match="mine needs torch"):
        import_torch("mine")


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_half_precision_cannot_hold_is_refused(texture: Texture, bad: float) -> None:
    embedding = texture.embedding.copy()
    embedding[3, 4, 0] = bad
    with pytest.raises(OptionError, match=r"embedding.*float16|embedding") as caught:
        replace(texture, embedding=embedding).to("cpu", Layout("one", ("saliency",)))
    assert "65504" in caught.value.expected
    with pytest.raises(OptionError, match="channel 'embedding_0'"):
        replace(texture, embedding=embedding).to("cpu")
    with pytest.raises(OptionError, match="70000"):
        tensors.check_half("a plane", np.array([7e4, 0], np.float32))
    assert tensors.check_half("a plane", np.array([65504.0])).dtype == np.float16


def test_the_size_is_named_before_anything_is_moved(texture: Texture, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = bytes_on_device(texture)
    there = texture.to("cpu")
    for module in (devices, tensors):
        monkeypatch.setattr(module, "free_bytes", lambda place: 5 * needed // 2)
    with pytest.raises(DeviceError, match=rf"3 textures on cpu: {3 * needed / 1e6:,.1f} MB") as caught:
        stack([texture] * 3, "cpu")
    assert "at most 2" in caught.value.expected
    assert "in_chunks" in caught.value.fix
    parts = list(in_chunks([texture] * 3, "cpu"))
    assert [len(part) for part in parts] == [1, 1, 1]  # half of what is free
    assert [len(part) for part in in_chunks([texture] * 3, "cpu", most=2)] == [1, 1, 1]
    monkeypatch.setattr(tensors, "free_bytes", lambda place: None)
    assert [len(part) for part in in_chunks([texture] * 3, "cpu", most=2)] == [2, 1]
    monkeypatch.setattr(devices, "free_bytes", lambda place: needed - 1)
    with pytest.raises(DeviceError, match=f"{needed / 1e6:,.1f} MB"):
        texture.to("cpu")
    assert there.to("cpu") is there


def test_a_device_without_room_after_all_is_said(texture: Texture, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: torch.Tensor, *args: Any, **keywords: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    there = texture.to("cpu")
    relevance = foveate.score(there, "broccoli")
    vectors = np.zeros((1, texture.basis.width), np.float32)
    replay = Replay(there, budget=5)
    monkeypatch.setattr(torch.Tensor, "to", full)
    for name in ("matmul", "where", "cat"):
        monkeypatch.setattr(torch, name, full)
    for answer in (
        lambda: texture.to("cpu"),
        lambda: stack([there, there]),
        lambda: foveate.score(there, "broccoli"),
        lambda: foveate.score(there, ["broccoli", "a plate"]),
        lambda: foveate.allocate(relevance, 5),
        lambda: ask(there, vectors, 5),
        lambda: replay("broccoli"),
    ):
        with pytest.raises(DeviceError, match=r"too little memory on cpu.*out of memory") as caught:
            answer()
        assert "in_chunks" in caught.value.fix


def test_what_questions_leave_there_is_counted(texture: Texture) -> None:
    there = texture.to("cpu")
    before = there.nbytes
    foveate.allocate(foveate.score(there, "broccoli"), 5)
    rows = there.tensors.rows.double()
    assert there.nbytes >= before + rows.nbytes
    assert there.to("cpu") is there
    assert stack([there]).nbytes == before


def test_confidences_are_those_of_a_store(texture: Texture) -> None:
    for question in ("broccoli", "a plate", "a violin", "a fork"):
        found = foveate.score(texture.to("cpu"), question)
        for value in (found.confidence, *found.confidences.values()):
            assert float(value) == float(np.float32(float(value)))
        assert float(found.confidence) == pytest.approx(foveate.score(texture, question).confidence, abs=1e-6)


def test_of_a_page_why_is_a_question_for_the_cpu(texture: Texture) -> None:
    """It names no thing; what was not read yet could answer it."""
    writing = np.zeros((160, 120), np.float32)
    writing[10:150:4, 10:110] = 1
    page = texture.with_channel("text", writing)
    assert page_of(page)[1] is not None
    assert foveate.score(page, "why?").map.shape == texture.grid.shape
    for question in ("why?", "broccoli"):
        with pytest.raises(DeviceError, match="what is written"):
            foveate.score(page.to("cpu"), question)
    with pytest.raises(QueryError):
        foveate.score(page.to("cpu"), "why?", reading=False)


def test_tensors_that_were_written_into_are_found_out(texture: Texture) -> None:
    there = texture.to("cpu")
    relevance = foveate.score(there, "broccoli")
    there.table[5] += 1  # through a view
    for answer in (
        lambda: foveate.score(there, "broccoli"),
        lambda: foveate.allocate(relevance, 5),
        lambda: ask(there, np.zeros((1, texture.basis.width), np.float32), 5),
        lambda: there.to("cpu"),
        lambda: stack([there]),
    ):
        with pytest.raises(DeviceError, match="wrote into its table"):
            answer()
    assert foveate.score(texture.to("cpu"), "broccoli").detected


@pytest.mark.parametrize("mode", [nullcontext, torch.inference_mode])
def test_an_answer_that_was_written_into_is_found_out(texture: Texture, mode: Any) -> None:
    there = texture.to("cpu")
    tensors_of: dict[str, Any] = {
        "map": lambda found: found.map,
        "confidence": lambda found: found.confidence,
        r"reasons\['saliency'\]": lambda found: found.reasons["saliency"],
    }
    for name, tensor_of in tensors_of.items():
        with mode():
            relevance = foveate.score(there, "broccoli", channel_weights={"saliency": 0.5})
        again = pickle.loads(pickle.dumps(relevance))
        kept = foveate.allocate(relevance, 5)
        tensor_of(relevance).zero_()
        for answer in (
            lambda: foveate.allocate(relevance, 5),  # noqa: B023
            lambda: relevance.cpu(),  # noqa: B023
            lambda: np.asarray(relevance),  # noqa: B023
            lambda: foveate.score(there, "a plate", prior=relevance),  # noqa: B023
        ):
            with pytest.raises(DeviceError, match=rf"the relevance of 'broccoli' on cpu: .* its {name}"):
                answer()
        assert torch.equal(foveate.allocate(again, 5).indices, kept.indices)
    again = foveate.score(there, "broccoli", channel_weights={"saliency": 0.5})
    assert bool(again.reasons["saliency"].any())  # the texture's own plane is as it was


def test_a_prior_is_the_callers_to_write_into(texture: Texture) -> None:
    there, prior = texture.to("cpu"), torch.ones(texture.grid.shape)
    relevance = foveate.score(there, "broccoli", prior=prior)
    prior.zero_()
    assert bool((relevance.reasons["prior"] == 1).all())
    foveate.allocate(relevance, 5)


def test_to_numpy_an_answer_is_its_map(texture: Texture) -> None:
    there = texture.to("cpu")
    relevance, several = foveate.score(there, "broccoli"), foveate.score(there, ["broccoli", "a plate"])
    kept = foveate.allocate(relevance, 9)
    for found, wanted in ((relevance, relevance.map), (several, several.map), (kept, kept.indices)):
        array = np.asarray(found)
        assert array.dtype == wanted.numpy().dtype
        np.testing.assert_array_equal(array, wanted.numpy())
        assert torch.equal(found.torch(), wanted)
        assert not np.shares_memory(array, wanted.numpy())
    here = relevance.cpu()
    before = here.map.copy()
    relevance.map.zero_()
    np.testing.assert_array_equal(here.map, before)


def test_inside_inference_mode_a_texture_is_the_same(texture: Texture) -> None:
    with torch.inference_mode():
        there = stack([texture.to("cpu"), texture])[1]
        relevance = foveate.score(there, "the red plate")
        kept = foveate.allocate(relevance, 50)
    assert_kept_alike(foveate.allocate(foveate.score(texture, "the red plate"), 50), kept)
    assert_alike(foveate.score(texture, "the red plate"), foveate.score(there, "the red plate"))
    there.table.add_(1)
    with pytest.raises(DeviceError, match="wrote into its table"):
        foveate.score(there, "broccoli")


def test_it_travels(texture: Texture) -> None:
    there = texture.to("cpu")
    again = pickle.loads(pickle.dumps(there))
    assert torch.equal(again.table, there.table)
    assert foveate.score(again, "broccoli").detected
    assert copy.deepcopy(there) is there


def test_nothing_and_many_are_refused_with_the_way_that_works(texture: Texture) -> None:
    with pytest.raises(OptionError, match="no textures") as caught:
        stack([])
    assert "stack([texture]" in caught.value.fix
    assert not list(in_chunks([], "cpu"))
    with pytest.raises(OptionError, match="most=0"):
        list(in_chunks([texture], "cpu", most=0))
    batch: Any = stack([texture, texture])
    with pytest.raises(OptionError, match="DeviceTextures") as caught:
        foveate.score(batch, "broccoli")
    assert "Replay(batch" in caught.value.fix


def test_devices_are_never_mixed(texture: Texture) -> None:
    there, meta = texture.to("cpu"), torch.device("meta")
    with pytest.raises(DeviceError, match="the vectors on cuda:1, beside a texture on cpu"):
        check_same("the vectors", torch.device("cuda:1"), torch.device("cpu"))
    vectors = torch.zeros(1, texture.basis.width, device=meta)
    cells: Any = torch.zeros(texture.grid.shape, device=meta)
    relevance = foveate.score(there, "broccoli")
    for wrong in (
        lambda: ask(there, vectors, 5),
        lambda: ask(there, np.zeros((1, texture.basis.width)), 5, bias=cells.reshape(1, -1)),
        lambda: foveate.score(there, "broccoli", prior=cells),
        lambda: foveate.allocate(relevance, 5, protected=cells > 0),
    ):
        with pytest.raises(DeviceError, match="on meta"):
            wrong()


def test_what_only_the_cpu_does_is_refused_and_named(texture: Texture) -> None:
    there = texture.to("cpu")
    relevance = foveate.score(there, "broccoli")
    read = texture.with_words(Words.of([Word("STOP", (1, 1, 9, 40))], "mine")).to("cpu")
    with pytest.raises(DeviceError, match="what is written") as caught:
        foveate.score(read, "broccoli")
    assert "there.texture" in caught.value.fix
    assert_alike(foveate.score(read.texture, "broccoli", reading=False), foveate.score(read, "broccoli", reading=False))
    with pytest.raises(DeviceError, match="fusion='linear'"):
        foveate.score(there, "broccoli", fusion="linear")
    for how in ({"policy": Coverage()}, {"window": (2, 2)}):
        with pytest.raises(DeviceError, match=r"relevance\.cpu"):
            foveate.allocate(relevance, 8, **how)
        assert len(foveate.allocate(relevance.cpu(), 8, **how)) == 8


def test_wrong_values_are_refused(texture: Texture) -> None:
    there = texture.to("cpu")
    relevance = foveate.score(there, "broccoli")
    good = np.zeros((1, texture.basis.width), np.float32)
    few: Any = torch.ones(3)
    here: Any = texture
    bad: tuple[Any, ...] = (0, texture.grid.count + 1, 2.5, True, "most")
    for budget in bad:
        with pytest.raises(BudgetError):
            foveate.allocate(relevance, budget)
        with pytest.raises(BudgetError):
            ask(there, good, budget)
    with pytest.raises(BudgetError, match="protected"):
        foveate.allocate(relevance, 3, protected=np.ones(texture.grid.shape, bool))
    for wrong in (
        lambda: ask(there, good[:, 1:], 5),
        lambda: ask(there, good * np.nan, 5),
        lambda: ask(there, torch.zeros(1, 3), 5),
        lambda: ask(there, good, 5, bias=torch.zeros(1, 3)),
        lambda: ask(here, good, 5),
        lambda: foveate.score(there, "broccoli", prior=torch.full(texture.grid.shape, 2.0)),
        lambda: foveate.allocate(relevance, 5, protected=few),
        lambda: stack([]),
        lambda: stack([there, texture.to("cpu", Layout("one", ("red",)))]),
    ):
        with pytest.raises(OptionError):
            wrong()


def test_a_stack_is_of_one_grid_and_one_encoder(texture: Texture, wide: Texture) -> None:
    with pytest.raises(OptionError, match="grids"):
        stack([texture, wide])
    other = replace(texture, encoder=replace(texture.encoder, name="another"))
    with pytest.raises(OptionError, match="another"):
        stack([texture, other])
