"""Work on a device: towers, and a texture that is asked there as on the CPU, ties included; and what goes wrong."""

from __future__ import annotations

import copy
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate
from foveate.allocation.policies import Coverage
from foveate.core.devices import explain_device, find_device, import_torch, run_in_halves
from foveate.core.errors import BudgetError, DeviceError, MissingExtraError, OptionError, QueryError
from foveate.core.grid import Grid
from foveate.core.layout import Layout
from foveate.core.threads import map_in_order
from foveate.encoders import load
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Calibration
from foveate.encoders.siglip import SiglipEncoder
from foveate.language.negatives import negatives_of
from foveate.language.query import prepare
from foveate.reading.words import Word, Words
from foveate.relevance.options import DEFAULTS
from foveate.relevance.scoring import score_query
from foveate.relevance.torch import score_on_device
from foveate.texture.texture import Texture
from foveate.texture.torch import check_half

IMAGES = [np.random.default_rng(i).integers(0, 256, shape, np.uint8) for i, shape in enumerate([(50, 70, 3)] * 3)]
IMAGES += [IMAGES[0].transpose(1, 0, 2)]


def forget() -> None:
    load._load_from_hub.cache_clear()
    load._places.clear()


@pytest.fixture
def names(checkpoints: Callable[[str], Path]) -> list[str]:
    forget()
    return [f"clip:{checkpoints('clip')}", f"siglip:{checkpoints('siglip')}"]


class Made:
    """A family of encoders that take a while to load, and record it: (source, device)."""

    loaded: ClassVar[list[tuple[str, str | None]]] = []

    @staticmethod
    def model_kind() -> None: ...

    @classmethod
    def from_pretrained(cls, source: str, *, dense: str, device: str | None) -> Made:
        cls.loaded.append((source, device))
        time.sleep(0.02)
        return cls()


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str | None]]]:
    monkeypatch.setitem(load.FAMILIES, "clip", Made)
    monkeypatch.setattr(load, "choose_device", lambda device, kind: device or "cuda:0")
    forget()
    Made.loaded.clear()
    yield Made.loaded
    forget()


def test_a_device_is_passed_on_and_remembered_and_few_stay_loaded(loaded: list[tuple[str, str | None]]) -> None:
    here = load_encoder("clip:x", "cpu")
    assert load_encoder("clip:x") is here  # where it was loaded last
    there = load_encoder("clip:x", "cuda:1")
    assert load_encoder("clip:x") is there
    assert load_encoder("clip:x", "cpu") is load_encoder("clip:x") is here
    forget()
    load_encoder("clip:x")
    assert loaded == [("x", "cpu"), ("x", "cuda:1"), ("x", "cuda:0")]
    for source in (*"abcd", "a", "e", "b"):
        load_encoder(f"clip:{source}", "cpu")
    assert [source for source, _ in loaded[3:]] == [*"abcd", "e", "b"]  # the last four used stay


def test_threads_that_ask_together_load_once(loaded: list[tuple[str, str | None]]) -> None:
    assert len({id(each) for each in map_in_order(load_encoder, ["clip:x"] * 8, 4)}) == 1
    here = load_encoder("clip:x", "cpu")
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert {id(each) for each in map_in_order(load_encoder, ["clip:x"] * 2000, 4)} == {id(here)}
    finally:
        sys.setswitchinterval(switch)
    assert loaded == [("x", "cuda:0"), ("x", "cpu")]


def test_a_texture_is_asked_where_it_was_encoded_and_what_has_a_device_of_its_own_takes_none(names: list[str]) -> None:
    texture = foveate.encode(IMAGES[0], encoder=names[0], device="cpu", long_side=64)
    assert foveate.score(texture, "a dog", encoder=names[0]).map.shape == texture.grid.shape
    assert load._places == {("clip", names[0].partition(":")[2]): "cpu"}
    assert foveate.encode(IMAGES[0], device="cpu", channels="fast").encoder.name == "nano"
    with pytest.raises(OptionError, match="that is an object"):
        foveate.encode(IMAGES[0], encoder=SiglipEncoder.from_pretrained(names[1].partition(":")[2]), device="cpu")


@pytest.mark.parametrize("device", ["cuda:99", "cpu:3", "meta", "gpu", "", 0, True])
def test_a_device_that_is_not_there_is_refused_before_anything_is_read(device: str) -> None:
    with pytest.raises(OptionError, match="device=") as caught:
        foveate.encode(IMAGES[0], encoder="clip", device=device)
    assert "'cpu'" in caught.value.expected
    with pytest.raises(OptionError, match="device="):
        foveate.encode(IMAGES[0], device=device)
    with pytest.raises(OptionError, match="device="):
        foveate.vlm.load("of no name", device=device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="NEEDS A GPU: towers on CUDA are not tested here")
def test_a_gpu_gives_the_same(names: list[str]) -> None:
    assert load_encoder(names[0]).device.type == "cuda"  # type: ignore[attr-defined]
    how = {"encoder": names[0], "channels": "fast", "long_side": 64, "rank": "full"}
    there, here = (foveate.encode(IMAGES, device=device, **how) for device in ("cuda", "cpu"))  # type: ignore[call-overload]
    for a, b in zip(there, here, strict=True):
        assert np.abs(a.embedding.astype(float) - b.embedding.astype(float)).max() < 5e-2  # bfloat16 there
    assert load_encoder(names[0]).device.type == "cpu"  # type: ignore[attr-defined]


# --- what goes wrong on a GPU -----------------------------------------------------------------------------------------


OF_MEMORY = [
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    torch.AcceleratorError("CUDA error: out of memory"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
]


@pytest.mark.parametrize("error", OF_MEMORY, ids=str)
def test_every_word_for_too_little_memory_halves_a_batch(error: RuntimeError) -> None:
    asked: list[int] = []

    def run(batch: Any) -> list[int]:
        asked.append(len(batch))
        if len(batch) > 1:
            raise error
        return [len(batch)]

    assert run_in_halves(run, [np.zeros((8, 8))] * 2, "cuda:0") == [1, 1]
    assert asked == [2, 1, 1]
    with pytest.raises(DeviceError, match="too little memory on cuda:0") as caught, explain_device("it", "cuda:0", "X"):
        raise error
    assert caught.value.fix.startswith("X")


@pytest.mark.parametrize("kind", [RuntimeError, torch.AcceleratorError])
@pytest.mark.parametrize(
    "line", ["cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", "CUDA error: an illegal memory access was encountered"]
)
def test_other_failures_name_the_device(line: str, kind: type[RuntimeError]) -> None:
    with pytest.raises(DeviceError, match="cuda:0 failed at it") as caught, explain_device("it", "cuda:0"):
        raise kind(line)
    assert "new process" in caught.value.fix


def test_memory_of_the_machine_is_none_of_a_device() -> None:
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator") as caught, explain_device("it", "cuda:0"):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")
    assert type(caught.value) is RuntimeError


# --- a texture on a device --------------------------------------------------------------------------------------------

PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
QUESTIONS = (
    "broccoli", "a violin", "the bride", "a fork and a plate", "a dog or a child", "the red plate",
    "what is the child holding?", "what does the sign say?",
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
    for name in ("confidence", "peak"):
        assert getattr(found, name) == pytest.approx(getattr(here, name), abs=CLOSE), name
    for name in ("parts", "reasons", "confidences"):
        assert {*getattr(found, name)} == {*getattr(here, name)}
        for key, value in getattr(here, name).items():
            np.testing.assert_allclose(getattr(found, name)[key], value, atol=CLOSE)
    for name in (
        "query",
        "ignored",
        "unknown",
        "looked_for",
        "weights",
        "preset",
        "grid",
        "detected",
        "asks",
        "texture",
    ):
        assert getattr(found, name) == getattr(here, name), name
    for name in ("saliency", "valid", "features"):
        np.testing.assert_array_equal(getattr(found, name), getattr(here, name))


def assert_kept_alike(here: Any, there: Any) -> None:
    found = there.cpu()
    both, at, mine = np.intersect1d(found.indices, here.indices, assume_unique=True, return_indices=True)
    assert len(both) >= len(here) - len(here) // 500  # of two cells that differ by rounding the other one may be kept
    np.testing.assert_allclose(found.scores[at], here.scores[mine], atol=CLOSE)
    assert {*found.reasons} == {*here.reasons}
    for name, values in here.reasons.items():  # of a faint map the share that was asked for multiplies rounding
        close = 100 * CLOSE if name == "asked" else CLOSE
        np.testing.assert_allclose(found.reasons[name][at], values[mine], atol=close)
    np.testing.assert_array_equal(there.mask.cpu().numpy(), found.mask)
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
    for query in ("the red plate", "what does the sign say?", "what is left of the child?"):
        here, found = foveate.score(texture, query, **how), foveate.score(there, query, **how)
        assert_alike(here, found)
        assert_kept_alike(foveate.allocate(here, 100), foveate.allocate(found, 100))


def test_several_questions_and_an_earlier_one_as_a_prior(texture: Texture) -> None:
    there = texture.to("cpu")
    several, here = foveate.score(there, ["broccoli", "a plate"]), foveate.score(texture, ["broccoli", "a plate"])
    earlier: dict[str, Any] = {"prior": several[0]}
    assert several.map.shape == (2, *texture.grid.shape)
    np.testing.assert_allclose(several.cpu().map, here.map, atol=CLOSE)
    np.testing.assert_allclose(several.confidence, here.confidence, atol=CLOSE)
    for one, other in zip(foveate.allocate(several, 50), foveate.allocate(here, 50), strict=True):
        assert_kept_alike(other, one)
    assert_alike(foveate.score(texture, "a plate", prior=here[0]), foveate.score(there, "a plate", **earlier))
    plane: Any = several[0].map.clone()
    prior = foveate.score(there, "a plate", prior=plane)
    assert_alike(foveate.score(texture, "a plate", prior=here[0].map), prior)
    plane.zero_()  # it is the caller's
    assert bool(prior.reasons["prior"].any())


def test_negatives_compete_as_on_the_cpu(texture: Texture) -> None:
    nano = load_encoder("nano")
    calibration = Calibration(temperature=40.0, contrast=1.0, synonym=0.6, slope=60.0, offset=-3.0)
    negatives = negatives_of(nano)
    for text in ("broccoli", "a violin", "the red plate"):
        query = prepare(nano, text)
        here = score_query(texture, query, calibration, negatives, DEFAULTS)
        there = score_on_device(texture.to("cpu"), query, calibration, negatives, DEFAULTS)
        np.testing.assert_allclose(there.map.numpy(), here.map, atol=3e-4)  # 60 x rounding, of long vectors
        assert_kept_alike(foveate.allocate(here, 273), foveate.allocate(there, 273))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.0, 0.3, 1.0]))
def test_ties_saliency_and_spread_are_numpys(texture: Texture, seed: int, h: int, w: int, floor: float) -> None:
    """Random cells and maps of few values, so that ties decide; some cells are transparent."""
    rng = np.random.default_rng(seed)
    valid = np.full((h, w), 255, np.uint8) * (rng.random((h, w)) > 0.2).astype(np.uint8)
    small = replace(
        texture,
        grid=Grid(h, w, h, w),
        pixel=np.zeros((h, w, 3), np.uint8),
        valid=valid if rng.random() < 0.5 else None,
        planes={"saliency": rng.choice(np.array([0, 0.5, 1], np.float16), (h, w))},
        embedding=(0.01 * rng.standard_normal((h, w, texture.rank))).astype(np.float16),
        residual=np.zeros((h, w), np.float16),
        extra={},
    )
    budget = int(rng.integers(1, h * w + 1))
    plane = rng.choice(np.array([0, 0.25, 0.5, 1], np.float32), (h, w))
    how: dict[str, Any] = {"confidence": float(rng.choice([0, 0.25, 0.75])), "peak": 0.0}
    here = replace(foveate.score(small, "broccoli"), map=plane, **how)
    there = replace(foveate.score(small.to("cpu"), "broccoli"), map=torch.tensor(plane), **how)
    protected = rng.random((h, w)) < 0.2 if rng.random() < 0.5 else np.zeros((h, w), bool)
    guarded: dict[str, Any] = {"protected": protected} if 0 < protected.sum() <= budget else {}
    kept = foveate.allocate(here, budget, floor=floor, **guarded)
    assert_kept_alike(kept, foveate.allocate(there, budget, floor=floor, **guarded))


def test_equal_textures_have_equal_tensors_and_travel(texture: Texture) -> None:
    there, again = texture.to("cpu"), replace(texture).to(torch.device("cpu"))
    for one, other in zip(there._tensors().values(), again._tensors().values(), strict=True):
        assert torch.equal(one, other)
    assert there.nbytes == sum(each.nbytes for each in there._tensors().values())
    assert there.to("cpu") is there
    assert there.cpu() is texture
    np.testing.assert_array_equal(there.table.numpy(), texture.tokens(dtype=np.float16))
    np.testing.assert_array_equal(there.z.numpy(), texture.embedding.reshape(-1, texture.rank))
    assert there.table.is_contiguous()
    assert there.z.stride() == (1, texture.grid.count)  # number by number
    few = texture.to("cpu", Layout("three", ("saliency", "red", "x")))
    assert few.table.shape == (texture.grid.count, 8)
    assert not few.table[:, 3:].any()
    kept = foveate.allocate(foveate.score(there, "broccoli"), 50)
    np.testing.assert_array_equal(kept.rows.numpy(), texture.tokens(dtype=np.float16)[kept.indices.numpy()])
    assert "cpu" in repr(there)
    assert "on cpu" in repr(kept)
    with torch.inference_mode():
        there = texture.to("cpu")
        kept = foveate.allocate(foveate.score(there, "the red plate"), 50)
    assert_kept_alike(foveate.allocate(foveate.score(texture, "the red plate"), 50), kept)
    there = texture.to("cpu")
    again = pickle.loads(pickle.dumps(there))
    assert torch.equal(again.table, there.table)
    assert foveate.score(again, "broccoli").detected
    assert copy.deepcopy(there) is there


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


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_device_that_is_not_there_and_a_missing_extra_are_named(
    texture: Texture, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: tuple[Any, ...] = ("cuda:99", "cpu:3", "meta", None)
    for where in places:
        with pytest.raises(OptionError, match="device=") as caught:
            texture.to(where)
        assert "'cpu'" in caught.value.expected
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"foveate\[torch\]"):
        texture.to("cuda")
    with pytest.raises(MissingExtraError, match="mine needs torch"):
        import_torch("mine")


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_half_precision_cannot_hold_is_refused(texture: Texture, bad: float) -> None:
    embedding = texture.embedding.copy()
    embedding[3, 4, 0] = bad
    with pytest.raises(OptionError, match="embedding") as caught:
        replace(texture, embedding=embedding).to("cpu", Layout("one", ("saliency",)))
    assert "65504" in caught.value.expected
    with pytest.raises(OptionError, match="channel 'embedding_0'"):
        replace(texture, embedding=embedding).to("cpu")
    with pytest.raises(OptionError, match="70000"):
        check_half("a plane", np.array([7e4, 0], np.float32))
    assert check_half("a plane", np.array([65504.0])).dtype == np.float16


def test_a_device_without_room_is_named(texture: Texture, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: torch.Tensor, *args: Any, **keywords: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    there = texture.to("cpu")
    relevance = foveate.score(there, "broccoli")
    monkeypatch.setattr(torch.Tensor, "to", full)
    for answer in (
        lambda: texture.to("cpu"),
        lambda: foveate.score(there, ["broccoli", "a plate"]),
        lambda: foveate.allocate(relevance, 5),
    ):
        with pytest.raises(DeviceError, match=r"too little memory on cpu.*out of memory") as caught:
            answer()
        assert "there.texture" in caught.value.fix


def test_what_only_the_cpu_does_is_refused_and_named(texture: Texture) -> None:
    there = texture.to("cpu")
    relevance = foveate.score(there, "broccoli")
    read = texture.with_words(Words.of([Word("STOP", (1, 1, 9, 40))], "mine")).to("cpu")
    with pytest.raises(DeviceError, match="what is written") as caught:
        foveate.score(read, "broccoli")
    assert "there.texture" in caught.value.fix
    assert_alike(foveate.score(read.texture, "broccoli", reading=False), foveate.score(read, "broccoli", reading=False))
    writing = np.zeros((160, 120), np.float32)
    writing[10:150:4, 10:110] = 1
    page = texture.with_channel("text", writing)  # unread: what is not read yet could answer
    assert foveate.score(page, "why?").map.shape == texture.grid.shape
    for question in ("why?", "broccoli"):
        with pytest.raises(DeviceError, match="what is written"):
            foveate.score(page.to("cpu"), question)
    with pytest.raises(QueryError):
        foveate.score(page.to("cpu"), "why?", reading=False)
    with pytest.raises(DeviceError, match="fusion='linear'"):
        foveate.score(there, "broccoli", fusion="linear")
    for how in ({"policy": Coverage()}, {"window": (2, 2)}):
        with pytest.raises(DeviceError, match=r"relevance\.cpu"):
            foveate.allocate(relevance, 8, **how)
        assert len(foveate.allocate(relevance.cpu(), 8, **how)) == 8


def test_wrong_values_are_refused(texture: Texture) -> None:
    there = texture.to("cpu")
    relevance = foveate.score(there, "broccoli")
    few: Any = torch.ones(3)
    high: Any = torch.full(texture.grid.shape, 2.0)
    bad: tuple[Any, ...] = (0, texture.grid.count + 1, 2.5, True, "most")
    for budget in bad:
        with pytest.raises(BudgetError):
            foveate.allocate(relevance, budget)
    with pytest.raises(BudgetError, match="protected"):
        foveate.allocate(relevance, 3, protected=np.ones(texture.grid.shape, bool))
    nothing: tuple[Any, ...] = ([], "")
    for texts in nothing:
        with pytest.raises(QueryError):
            foveate.score(there, texts)
    for wrong in (
        lambda: foveate.score(there, "broccoli", prior=high),
        lambda: foveate.score(there, "broccoli", prior=few),
        lambda: foveate.allocate(relevance, 5, protected=few),
    ):
        with pytest.raises(OptionError):
            wrong()
