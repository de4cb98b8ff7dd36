"""The experiments' photographs: masks where the labels are, textures made once, a judge that tells good from bad."""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from training import harness  # noqa: E402
from training.harness import (  # noqa: E402
    MEASURES,
    WANTED,
    Example,
    estimates,
    falling,
    held_back,
    judge,
    learning,
    start,
    table,
)

SIZE = (96, 128)  # pixels, h and w
BOX = (8, 16, 56, 80)  # y0, x0, y1, x1


def add(tar: tarfile.TarFile, name: str, picture: np.ndarray) -> None:
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "png")
    info = tarfile.TarInfo(name)
    info.size = stream.tell()
    stream.seek(0)
    tar.addfile(info, stream)


def photograph(seed: int) -> np.ndarray:
    out = np.random.default_rng(seed).integers(60, 120, (*SIZE, 3)).astype(np.uint8)
    out[BOX[0] : BOX[2], BOX[1] : BOX[3]] = (220, 40, 40)
    return out


def ids(value: int) -> np.ndarray:
    out = np.zeros(SIZE, np.uint8)
    out[BOX[0] : BOX[2], BOX[1] : BOX[3]] = value
    return out


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `examples` wants it, with one photograph from every source."""
    train, labels = tmp_path / "train", tmp_path / "labels"
    for folder in (train, labels, tmp_path / "dev" / "coco128", tmp_path / "dev" / "open"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(harness, "LABELS", labels)
    h, w = SIZE
    names = ["things/cup.png", "people/one.png", "camvid/street.png"]
    with tarfile.open(train / "photos.tar", "w") as tar:
        for seed, name in enumerate(names):
            add(tar, name, photograph(seed))
    sizes = {name: {"width": w, "height": h, "mask": name} for name in names}
    (train / "photos.json").write_text(json.dumps(sizes))
    (train / "photos2.json").write_text("{}")
    with tarfile.open(train / "photos_masks.tar", "w") as tar:
        add(tar, names[1], ids(255))
        add(tar, names[2], ids(8))
    with tarfile.open(train / "dense.tar", "w") as tar:
        add(tar, "cars/a.png", photograph(4))
        add(tar, "cars/a_mask.png", ids(3))
    entry = {"folder": "cars", "mask": "cars/a_mask.png"}
    classes = {folder: {"0": None, "3": "wheel"} for folder in harness.DENSE}
    (train / "dense.json").write_text(json.dumps({"files": {"cars/a.png": entry}, "classes": classes}))
    y0, x0, y1, x1 = (v * 1000 / w for v in BOX)  # by eye: thousandths of the long side, x first
    entry2 = {"labels": {"cup": [[x0, y0, x1, y1]], "lid": [[x0, y0, x1, y1]]}, "unsure": ["lid"]}
    (labels / "things.json").write_text(
        json.dumps({"names": ["cup"], "photographs": {"photos:things/cup.png": entry2}})
    )
    coco = {
        "images": [{"id": 1, "file_name": "b.png", "width": w, "height": h}],
        "categories": [{"id": 1, "name": "dog"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [BOX[1], BOX[0], BOX[3] - BOX[1], BOX[2] - BOX[0]]}
        ],
    }
    (tmp_path / "dev" / "coco128" / "annotations.json").write_text(json.dumps(coco))
    Image.fromarray(photograph(5)).save(tmp_path / "dev" / "coco128" / "b.png")
    corners = [[BOX[1], BOX[0]], [BOX[3], BOX[0]], [BOX[3], BOX[2]], [BOX[1], BOX[2]]]
    asked = {"set": "parts", "kind": "part", "file": "b.png", "dataset": "coco128", "size": [w, h]}
    queries = [
        {**asked, "query": "the ears", "regions": [corners]},
        {**asked, "kind": "text", "query": "the writing", "regions": [corners]},
        {**asked, "set": "absent", "kind": "absent", "query": "a cat", "regions": []},
    ]
    (tmp_path / "dev" / "open" / "queries.json").write_text(json.dumps(queries))
    return tmp_path


def test_a_photograph_of_every_source_comes_with_its_names_and_masks(data: Path) -> None:
    found = {example.name: example for example in learning(data, data)}
    texts = {name: [asked.text for asked in example.asked] for name, example in found.items()}
    assert texts == {
        "dense:cars/a.png": ["the wheel"],
        "photos:camvid/street.png": ["the sky", "the car"],
        "photos:people/one.png": ["the person"],
        "photos:things/cup.png": ["the cup"],  # the lid is unsure
    }
    for example in found.values():
        *_, asked = example.asked
        assert asked.mask.shape == (12, 16)
        assert asked.mask[1:7, 2:10].all()
        assert asked.mask.sum() == 6 * 8
        np.testing.assert_allclose(asked.boxes, [BOX], atol=1.1)
        assert example.pixels().shape == (*SIZE, 3)


def test_what_is_held_back_is_asked_as_it_stands_and_shares_a_texture(data: Path) -> None:
    both = held_back(data, data)
    (coco,), (asked_open,) = both["coco128"], both["open"]
    assert [asked.text for asked in asked_open.asked] == ["the ears"]  # writing and what is absent are left out
    assert "dog" in coco.asked[0].text
    assert coco.file == asked_open.file
    np.testing.assert_array_equal(coco.asked[0].boxes, [BOX])
    np.testing.assert_allclose(asked_open.asked[0].boxes, [BOX], atol=8)  # polygons cover the samples they touch


def test_a_texture_is_made_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = held_back(data, data)["coco128"]
    first = example.texture
    assert first.has("text")
    assert first.has("cluster_id")
    monkeypatch.setattr(harness, "encode", None)
    (again,) = held_back(data, data)["coco128"]
    np.testing.assert_array_equal(again.texture.channel("saliency"), first.channel("saliency"))


def test_the_judge_tells_a_right_map_from_a_wrong_one(data: Path) -> None:
    some = held_back(data, data)["coco128"] * 3

    def maps(example: Example) -> list[dict[str, np.ndarray]]:
        return [
            {"right": asked.mask.astype(float), "wrong": 1.0 - asked.mask, "same": asked.mask.astype(float)}
            for asked in example.asked
        ]

    judged = judge(some, maps)
    assert judged["photograph"].tolist() == [0, 1, 2]
    right, apart = estimates(judged, "right"), estimates(judged, "right", "wrong")
    assert right[1].mean == 1 > estimates(judged, "wrong")[1].mean
    assert tuple(apart[0]) == (1, 1, 1)
    assert tuple(estimates(judged, "same", "right")[2]) == (0, 0, 0)
    lines = table(judged, MEASURES, "right", extra={"bytes": {"wrong": "7"}}).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["right", "wrong", "same"]
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["", "7", ""]
    assert "-1.000" not in lines[2]
    assert "-" in lines[3].split("|")[6]
    assert harness.record(judged, MEASURES, "right")["wrong"]["precision"]["apart"]["mean"] < 0


def test_the_rate_rises_and_falls_to_nothing() -> None:
    rate = falling(2.0, 100, warm=10)
    assert [rate(step) for step in (0, 9, 10)] == pytest.approx([0.2, 2, 2])
    assert 0 < rate(99) < rate(50) < 2


def fitted(file: Path, loss: Any, steps: int) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimiser = torch.optim.AdamW(model.parameters())
    harness.fit(lambda step: loss(model, step), steps, file, optimiser, rate=falling(0.1, 9), every=2, model=model)
    return model


def squares(model: Any, step: int) -> Any:
    x = torch.from_numpy(np.random.default_rng(step).standard_normal((8, 3)).astype(np.float32))
    return ((model(x)[:, 0] - x.sum(1)) ** 2).mean()


def test_training_that_was_killed_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    def dies(model: Any, step: int) -> Any:
        if step == 5:
            raise KeyboardInterrupt
        return squares(model, step)

    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "a.pt", dies, 9)
    assert torch.load(tmp_path / "a.pt", weights_only=True)["step"] == 4
    again, whole = fitted(tmp_path / "a.pt", squares, 9), fitted(tmp_path / "b.pt", squares, 9)
    assert torch.equal(again.weight, whole.weight)
    assert squares(whole, 0) < squares(torch.nn.Linear(3, 1), 0)


def test_a_loss_that_is_no_number_is_an_error_and_another_models_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    fitted(file, squares, 2)
    with pytest.raises(FloatingPointError, match="step 3"):
        fitted(file, lambda model, step: squares(model, step) * (float("nan") if step == 3 else 1), 9)
    assert torch.load(file, weights_only=True)["step"] == 2
    other = torch.nn.Linear(4, 1)
    with pytest.raises(ValueError, match="another model"):
        harness.fit(
            lambda step: other(torch.ones(4)), 3, file, torch.optim.Adam(other.parameters()), rate=float, model=other
        )


def test_arrays_are_made_once_and_files_are_whole(tmp_path: Path) -> None:
    calls: list[int] = []
    for _ in range(2):
        found = harness.once(tmp_path / "in" / "a.npz", lambda: calls.append(1) or {"x": np.arange(3)})  # type: ignore[func-returns-value]
        assert found["x"].tolist() == [0, 1, 2]
    assert calls == [1]
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["a.npz"]


def read(*words: object, out: str | None = None) -> argparse.Namespace:
    return start("name", "What it does.", [str(word) for word in words], out=out)


def test_missing_data_and_places_that_cannot_be_written_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, cache, file = tmp_path / "data", tmp_path / "cache", tmp_path / "file"
    file.touch()
    with pytest.raises(SystemExit):
        read("--data", file, "--cache", cache)
    assert "is no folder" in capsys.readouterr().err
    data.mkdir()
    for part in WANTED:
        with pytest.raises(SystemExit):
            read("--data", data, "--cache", cache)
        said = capsys.readouterr().err
        assert f"has no {part}" in said
        assert "training/README.md" in said
        (data / part).mkdir(parents=True)
    assert read("--data", data, "--cache", cache).out is None
    assert read("--data", data, "--cache", cache, out="name").out == cache / "name"
    assert read("--data", data, "--cache", cache, "--out", tmp_path / "a" / "b", out="name").out == tmp_path / "a" / "b"
    assert [path.name for path in cache.rglob("*")] == ["name"]
    for folders in (("--cache", file), ("--cache", cache, "--out", file / "in it")):
        with pytest.raises(SystemExit):
            read("--data", data, *folders)
        assert "is no folder that can be written" in capsys.readouterr().err
