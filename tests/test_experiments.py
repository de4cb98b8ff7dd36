"""Every experiment of training/experiments by its command, with tiny settings: it runs, resumes, and says JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import PHOTOS
from tests.learned_scenes import made

pytest.importorskip("torch")
pytest.importorskip("transformers")

from foveate.core.image import load_image
from training import harness
from training.harness import Asked, Example
from training.nano.labels import is_held_out

pytestmark = [pytest.mark.slow, pytest.mark.vlm]

WORDS = (("the dog", "the sky"), ("the cup", "the table"), ("the bus", "the road"))
TINY: dict[str, dict[str, Any]] = {  # experiment -> constants of its module, smaller
    "scorer": {"STEPS": 2, "PUBLISHED_STEPS": 2, "BATCH": 2, "PIXELS": 128},
    "channel_weights": {"STEPS": 2, "BATCH": 2},
    "channel_budget": {"RANKS": (2, 4), "UNITS": {"colours": ("red", "green", "blue"), "cluster_id": ("cluster_id",)}},
    "channel_answers": {"LEARNED": 2, "EACH": 3},
    "learned_channels": {"BATCH": 2, "WAYS": {"by hand": (11, False, False), "learned, 8": (8, True, False)}},
    "compressed": {"PLANE_STEPS": 2, "FEATURE_STEPS": 2, "COUNTS": (2,), "SHARED": (4,), "OWN": (4,), "EVERY": 1},
    "vocabulary": {"ENTRIES": (8, 16), "EACH": 16},
    "atlas": {"COUNTS": (1, 2), "QUESTIONS": (1,), "ROUNDS": 1},
    "saliency": {"BATCH": 2},
    "balance": {"STEPS": {"masks": 2, "scenes' masks": 2, "answers": 2}, "SCENES": {"train": 2, "held": 2}},
    "texture_attention": {"STEPS": 2, "SEEDS": (1,), "SIDES": (2, 4), "SCENES": 2, "HELD": 2},
}
OPTIONS = {
    "channel_answers": ["--scenes", "2", "--steps", "1"],
    "saliency": ["--epochs", "1"],
    "learned_channels": ["--epochs", "1"],
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DATA with nothing in it, and a CACHE that all experiments share."""
    folder = tmp_path_factory.mktemp("experiments")
    for part in harness.WANTED:
        (folder / "data" / part).mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def examples(cache: Path) -> list[Example]:
    """Three photographs of the package, with two questions each; the last one is held out."""
    found = []
    names = ("photos:a", "photos:b", "photos:" + next(str(n) for n in range(99) if is_held_out(str(n))))
    for name, file, words in zip(names, sorted(PHOTOS.glob("*.jpg")), WORDS, strict=True):
        rgb = load_image(file).rgb[::2, ::2].copy()
        masks = np.zeros((2, rgb.shape[0] // 8, rgb.shape[1] // 8), bool)
        masks[0, 2:12, 2:12] = masks[1, :4] = True
        boxes = np.array([[16.0, 16.0, 96.0, 96.0]])
        asked = tuple(Asked(text, "things", mask, boxes) for text, mask in zip(words, masks, strict=True))
        found.append(Example(name, cache / f"{name[-1]}.safetensors", asked, lambda rgb=rgb: rgb))  # type: ignore[misc]
    return found


def fresh(examples: list[Example]) -> list[Example]:
    return [Example(e.name, e.file, e.asked, e.pixels) for e in examples]


@pytest.mark.parametrize("name", TINY)
def test_an_experiment_runs_resumes_and_ends_with_json(
    name: str, cache: Path, examples: list[Example], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module: Any = import_module(f"training.experiments.{name}")
    monkeypatch.setattr("foveate.reading.rapid.RapidReader.read", lambda *_: [])  # which takes seconds
    for constant, value in TINY[name].items():
        assert hasattr(module, constant)
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(harness, "learning", lambda data, cache: fresh(examples))
    both: Callable[..., Any] = lambda *a, **k: {n: fresh(examples[:2]) for n in ("coco128", "open")}  # noqa: E731
    monkeypatch.setattr(harness, "held_back", both)
    scenes: Any = import_module("training.experiments.scene_reader")
    monkeypatch.setattr(scenes, "STEPS", 2)
    for user in (scenes, module):
        if hasattr(user, "load"):
            monkeypatch.setattr(user, "load", lambda folder, side: made(4))
    if name == "balance":
        planes = np.random.default_rng(0).random((24, 3, 256), np.float32)
        monkeypatch.setattr(module, "cutouts", lambda data, held_out: [])
        monkeypatch.setattr(module, "pool_of", lambda cuts: {0: 0})
        monkeypatch.setattr(module, "grounds", lambda data, held_out: [0] * 99)
        monkeypatch.setattr(
            module, "draw", lambda scene, pool, ground: (None, made(4).shown[made(4).scenes.index(scene)])
        )
        monkeypatch.setattr(module, "scene_planes", lambda picture, texts: planes[: len(texts)])
    if name == "channel_answers":
        if not Path("/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf").is_file():
            pytest.skip("its pages need fonts-dejavu-core")
        noise = [np.random.default_rng(n).integers(0, 255, (128, 128, 3), np.uint8) for n in range(2)]
        monkeypatch.setattr(module, "drawn", lambda data, side, count: (made(count), noise))
    folders = ["--data", str(cache / "data"), "--cache", str(cache), "--out", str(cache / f"{name}-out")]
    monkeypatch.setattr("sys.argv", ["here", *folders, *OPTIONS.get(name, [])])
    ends = []
    for _ in range(2):  # the second run reads what the first one made
        module.main()
        said = capsys.readouterr().out
        assert "| " in said
        ends.append(json.loads(said.splitlines()[-1]))
    assert ends[0].keys() == ends[1].keys()
    if name not in ("atlas", "texture_attention"):  # these tell times
        assert ends[0] == ends[1]
    assert (cache / f"{name}-out" / f"{name}.json").is_file()
    assert "Verdict:" in module.__doc__
    assert f"python -m training.experiments.{name}" in module.__doc__
