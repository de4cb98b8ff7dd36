"""The measuring of video, on cases whose right answer is known by hand."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from benchmarks import frames, video, video_pruning
from benchmarks.clips import made_clips, names_in, read_clip, swaying_broccoli, written
from benchmarks.frames import claim_row, speedup
from foveate.core.errors import OptionError

pytestmark = pytest.mark.video


def test_the_object_of_the_made_clip_is_under_its_mask(tmp_path: Path) -> None:
    (broccoli,) = made_clips(6, (240, 426), tmp_path)
    assert broccoli.frames[0].shape == (426, 240, 3)
    for rgb, mask in zip(broccoli.frames, broccoli.masks, strict=True):
        green = rgb[..., 1].astype(float) - rgb[..., 0]
        assert green[mask].mean() > green[~mask].mean() + 40


def test_a_folder_of_clips_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "clips"
    (folder / "green").mkdir(parents=True)
    made, inside = swaying_broccoli(6, (96, 64))
    written(made, folder / "green" / "clip.mp4")

    def pack(masks: list[NDArray[np.bool_]]) -> None:
        with tarfile.open(folder / "green" / "masks.tar", "w") as archive:
            for number, mask in enumerate(masks):
                Image.fromarray(mask.astype(np.uint8) * 255).save(tmp_path / "mask.png")
                archive.add(tmp_path / "mask.png", f"{number:05d}.png")

    pack(inside)
    (folder / "davis.json").write_text(json.dumps({"clips": {"green": {"text": "broccoli"}}}))
    assert names_in(folder) == {"green": "broccoli"}
    clip = read_clip(folder, "green", "broccoli", limit=5)
    assert len(clip.frames) == len(clip.masks) == 5
    assert (clip.masks[4] == inside[4]).all()
    pack(inside[:3])
    with pytest.raises(OptionError, match="6 frames and 3 masks"):
        read_clip(folder, "green", "broccoli")


def test_what_is_kept_is_judged_by_hand() -> None:
    assert video.cosines(np.array([[1.0, 0], [0, 2], [0, 0]]), np.array([[1.0, 1], [0, 9], [1, 1]])) == pytest.approx(
        [0.5**0.5, 1, 0]
    )
    assert video.areas([np.eye(4, dtype=bool)], (2, 2)).tolist() == [[[0.5, 0], [0, 0.5]]]
    assert (video.budget_of((10, 20)), video.budget_of((1, 2))) == (20, 1)


def test_a_small_report_has_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    from benchmarks import random_clip

    tiny = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}
    parts = {"text_config": tiny, "vision_config": {**tiny, "patch_size": 16}, "projection_dim": 24}
    monkeypatch.setitem(random_clip.SIZES, "clip-b16", (parts, 224))
    monkeypatch.setattr(video, "MADE", (96, 160))
    report = video.measure(None, 15, 96, layers=1)
    following, cosine, large = report["tables"]
    assert [row["way"] for row in following["rows"]] == list(video.WAYS)
    by_way = {row["way"]: row for row in following["rows"]}
    assert by_way[video.EVERY_FRAME]["key_share"] == 1
    assert by_way[video.BY_AGE]["key_share"] == pytest.approx(2 / 15)
    assert all(0 <= row[key] <= 1 for row in by_way.values() for key in ("coverage", "pointing", "precision"))
    values = [row["cosine"] for row in cosine["rows"]]
    assert values[0] > values[4] > 0  # older features are less like fresh ones
    assert all(len(row["cells"]) == len(table["columns"]) for table in report["tables"] for row in table["rows"])
    assert report["large"][video.BY_AGE] > 0
    json.dumps(report)
    assert len(large["rows"]) == 2


def test_the_gain_of_carrying_by_hand() -> None:
    assert speedup(10, 0, 12) == pytest.approx(12)  # carrying for nothing: the limit
    assert speedup(10, 10, 12) == pytest.approx(1)
    assert speedup(4.1, 0.9, 30) == pytest.approx(4.1 * 30 / (4.1 + 29 * 0.9))
    row = claim_row("4.1 ms once", 4.1, 0.9, 30, "138 x")
    assert row["cells"][2:] == ["1.01 ms", "139 x", "4.1 x"]
    assert claim_row("on average", 140, 0.5, None, "280 x")["cells"][2:] == ["0.50 ms", "280 x", "-"]


def test_frames_a_second_of_a_small_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "MADE", (96, 160))
    report = frames.measure(None, repeats=1, length=6, side=160)
    rows = {row["what"].strip(): row["median"] for row in report["rows"]}
    assert report["title"].startswith("broccoli: 6 frames from files, ")
    assert rows["followed, times as fast"] > 0
    assert 0 < rows["the thing in a tenth of the cells, followed"] <= 1
    encoded = round(6 * int(report["title"].split(", ")[-1].split("%")[0]) / 100)
    assert rows["its limit: frames for one that is encoded, K"] == pytest.approx(6 / encoded)
    assert rows["`foveate video`, drawn and written, frames a second"] > 0
    assert [row["claimed"] for row in report["claims"]] == ["280 x", "138 x", "28 x", "900 x"]


RULE = """
import torch

def compute_retention_mask(features, size, merge, q):
    kept = torch.zeros(len(features), dtype=torch.bool)
    kept[: round(len(features) * (1 - q))] = True
    return kept
"""


def test_rules_that_do_not_hear_the_question_are_called_on_the_same_tokens(tmp_path: Path) -> None:
    folder = tmp_path / "multimodal" / "video_prune"
    with pytest.raises(OptionError, match=r"evs\.py"):
        video_pruning.measure(tmp_path)
    folder.mkdir(parents=True)
    for file in video_pruning.RULES.values():
        (folder / f"{file}.py").write_text(RULE)
    report = video_pruning.measure(tmp_path, None, every=2, rates="0.2", length=8)
    found = {row["cells"][1]: row["clips"][0] for row in report["rows"]}
    assert list(found) == ["by the question", "EVS", "VidCom2", "evenly"]
    for kept, on, of, before, _ in found.values():
        assert kept == pytest.approx(0.2, abs=0.01)
        assert all(0 <= share <= 1 for share in (on, of, before))
    assert found["by the question"][2] > found["EVS"][2]
