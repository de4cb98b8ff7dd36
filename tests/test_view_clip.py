"""A clip in the viewer: what the page gets is what `foveate.video.stream` says, frame by frame."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from foveate.allocation import Keep
from foveate.allocation.policies import Coverage
from foveate.core.errors import VideoError, VideoNotFoundError
from foveate.core.image import Picture, load_image
from foveate.video import decode, stream
from foveate.view import clips
from foveate.view.opening import open_target
from tests.video_clips import encode, pan
from tests.view_client import check_refusal, client_of, message

COUNT = 10
QUESTIONS = ["a cup", "the cake"]


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of frames: a pan, and from the seventh on another one, so that there is a cut."""
    folder = tmp_path_factory.mktemp("clip") / "frames"
    folder.mkdir()
    for number, rgb in enumerate([*pan(6, (192, 256)), *pan(4, (192, 256), start=(250, 300))]):
        Image.fromarray(rgb).save(folder / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def client(frames: Path) -> Iterator[TestClient]:
    with client_of(frames, clip=True) as made:
        yield made


def clip_of(client: TestClient) -> dict[str, Any]:
    session = client.get("/api/session").json()
    assert (session["kind"], session["name"], session["first"]) == ("clip", "frames", None)
    return session["clip"]


def run(client: TestClient, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All frames from a number on, as the page asks for them."""
    id, found, arrays = clip_of(client)["id"], list[dict[str, Any]](), dict[str, Any]()
    body = {"questions": QUESTIONS, "frame": 0, **body}
    while True:
        header, some = message(client.post(f"/api/clips/{id}/frames", json=body))
        found += header["frames"]
        arrays |= some
        body["frame"] = found[-1]["index"] + 1 if found else body["frame"]
        if header["count"] == body["frame"]:
            return found, arrays


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ({}, {}),
        ({"budget": 25, "floor": 0.2, "policy": "coverage"}, {"budget": 25, "keep": Keep(0.2, Coverage())}),
    ],
)
def test_the_page_gets_what_the_stream_says(
    client: TestClient, frames: Path, body: dict[str, Any], how: dict[str, Any]
) -> None:
    found, arrays = run(client, **body)
    assert [row["index"] for row in found] == list(range(COUNT))
    for row, frame in zip(found, stream(frames, QUESTIONS, **how), strict=True):
        n = frame.index
        assert (row["time"], row["reason"]) == (frame.time, frame.reason)
        assert [tuple(box) for box in row["renewed"]] == list(frame.renewed)
        np.testing.assert_allclose(arrays[f"{n}:belief"] / 255, frame.confidence, atol=0.5 / 255 + 1e-6)
        for i, (relevance, kept, new) in enumerate(frame.answers):
            assert row["answers"][i]["confidence"] == relevance.confidence
            np.testing.assert_array_equal(arrays[f"{n}:map:{i}"], relevance.map.astype(np.float16))
            level = arrays[f"{n}:kept:{i}"].ravel()
            np.testing.assert_array_equal(np.flatnonzero(level & (clips.SENT | clips.NEW)), kept.indices)
            np.testing.assert_array_equal(np.flatnonzero(level & clips.NEW), new)
            asked, even = level[kept.indices] & clips.ASKED > 0, level[kept.indices] & clips.EVEN > 0
            assert [kind == "given" for kind in kept.kinds] == even.tolist()
            assert [kind == "asked" for kind in kept.kinds] == (asked & ~even).tolist()
    assert {row["reason"] for row in found} >= {"first", "cut"}


def test_a_run_may_begin_where_somebody_looks(client: TestClient) -> None:
    found, arrays = run(client, start=4, frame=4)
    assert [row["index"] for row in found] == list(range(4, COUNT))
    assert found[0]["reason"] == "first"
    assert found[0]["time"] == pytest.approx(4 / 24)
    assert not (arrays["4:kept:0"] & clips.SENT).any()


def test_a_question_that_cannot_be_asked_leaves_the_others_be(client: TestClient) -> None:
    found, _ = run(client, questions=["the", "a cup"], frame=8, start=8)
    assert [answer["query"] for answer in found[0]["answers"]] == ["a cup"]


def test_answers_that_are_kept_no_longer_are_made_again(
    client: TestClient, frames: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = run(client)
    monkeypatch.setattr(clips, "ANSWERS", 40_000)  # a few frames
    with client_of(frames, clip=True) as small:
        id = clip_of(small)["id"]
        for number in (9, 2):
            assert run_until(small, id, number)["frames"][0]["answers"] == first[number]["answers"]


def run_until(client: TestClient, id: str, number: int) -> dict[str, Any]:
    """What is answered with one frame, however often the page has to ask."""
    for _ in range(100):
        body = {"questions": QUESTIONS, "frame": number, "most": 1}
        header, _ = message(client.post(f"/api/clips/{id}/frames", json=body))
        if header["frames"]:
            return header
    raise AssertionError(f"frame {number} never came")


def test_a_request_says_how_many_frames_it_wants(client: TestClient) -> None:
    run(client)
    id = clip_of(client)["id"]
    for most in (1, 3):
        body = {"questions": QUESTIONS, "frame": 2, "most": most}
        header, _ = message(client.post(f"/api/clips/{id}/frames", json=body))
        assert [row["index"] for row in header["frames"]] == list(range(2, 2 + most))


def test_a_request_works_for_a_moment_only(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "MOMENT", -1.0)
    id = clip_of(client)["id"]
    header, _ = message(client.post(f"/api/clips/{id}/frames", json={"questions": ["a spoon"], "frame": 0}))
    assert header["reached"] <= 1


def test_pictures_by_number_in_any_order(client: TestClient, frames: Path) -> None:
    about = clip_of(client)
    assert (about["frames"], about["rate"], about["longSide"]) == (COUNT, 24, 1280)
    for number in (3, 0, COUNT - 1, 2):
        answer = client.get(f"/api/clips/{about['id']}/pictures/{number}")
        assert answer.headers["content-type"] == "image/jpeg"
        shown = np.asarray(Image.open(io.BytesIO(answer.content)), np.int64)
        true = np.asarray(Image.open(frames / f"{number}.png"), np.int64)
        assert np.abs(shown - true).mean() < 4
    behind = check_refusal(client.get(f"/api/clips/{about['id']}/pictures/{COUNT}"), 404)
    assert f"a clip of {COUNT}" in behind["received"]
    assert client.get(f"/api/clips/{about['id']}").json()["count"] == COUNT


def test_pictures_are_decoded_from_the_nearest_mark_before_them_in_both_directions(
    frames: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "APART", 2)
    decoded = list[Any]()

    def load(path: Any) -> Picture:
        decoded.append(path)
        return load_image(path)

    monkeypatch.setattr(decode, "load_image", load)
    pictures = clips.ClipPictures(frames)
    for number, most in ((COUNT - 1, COUNT), (3, 5), (COUNT - 1, 3), (7, 5)):  # opening decodes the first, too
        decoded.clear()
        np.testing.assert_array_equal(pictures.rgb(number), np.asarray(Image.open(frames / f"{number}.png")))
        assert len(decoded) <= most, number


def test_a_clip_that_failed_on_the_way_is_as_long_as_ever(frames: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = clips.ClipPictures(frames)
    pictures.rgb(2)
    with monkeypatch.context() as failing:
        failing.setattr(decode, "load_image", lambda path: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            pictures.rgb(5)
    np.testing.assert_array_equal(pictures.rgb(6), np.asarray(Image.open(frames / "6.png")))


def test_a_frame_is_an_image_by_itself(client: TestClient) -> None:
    id = clip_of(client)["id"][:16] + "00000005"
    header, _ = message(client.get(f"/api/images/{id}"))
    assert (header["name"], header["height"]) == ("frames, frame 6", 192)
    answer, maps = message(client.post("/api/score", json={"image": id, "query": "a cup"}))
    assert answer["query"] == "a cup"
    assert maps["map:cells"].size == header["grids"][0]["h"] * header["grids"][0]["w"]
    assert client.get(f"/api/images/{id[:16]}{COUNT:08d}").status_code == 404
    assert client.get(f"/api/images/{id[:-1]}x").status_code == 404


def test_bad_requests_are_explained(client: TestClient) -> None:
    id, one = clip_of(client)["id"], {"questions": ["a cup"], "frame": 0}
    bodies: list[Any] = [
        {"frame": 0}, {"questions": ["a cup"]}, [], None,
        *({"questions": wrong, "frame": 0} for wrong in ([], [""], [3], ["a cup", "a cup"], ["a cup"] * 7)),
        *({**one, "frame": -1}, {**one, "start": 1.5}, {**one, "policy": "best"}, {**one, "floor": 2}),
        *({**one, "most": most} for most in (0, 33)), *({**one, "budget": budget} for budget in (0, 10**6)),
    ]  # fmt: skip
    for body in bodies:
        check_refusal(client.post(f"/api/clips/{id}/frames", json=body))
    assert client.post("/api/clips/x/frames", json={}).status_code == 404
    assert client.get("/api/clips/x/pictures/0").status_code == client.get("/api/clips/x").status_code == 404
    for _ in range(clips.RUNS + 1):  # a run that failed begins anew
        assert client.post(f"/api/clips/{id}/frames", json={**one, "budget": 10**6}).status_code == 422


def test_bad_clips_are_errors_in_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    with pytest.raises(VideoError):
        open_target(tmp_path / "bad.mp4")
    (tmp_path / "empty").mkdir()
    with pytest.raises(VideoNotFoundError):
        open_target(tmp_path / "empty", clip=True)


@pytest.mark.video
def test_a_video_file_is_a_clip_by_its_name(tmp_path: Path) -> None:
    path = encode(tmp_path / "A CLIP.MP4", pan(6, (96, 128)), rate=10)
    with client_of(path) as client:
        about = client.get("/api/session").json()
        facts = about["kind"], about["name"], about["clip"]["frames"], about["clip"]["rate"]
        assert facts == ("clip", "A CLIP.MP4", 6, 10)
        header = run_until(client, about["clip"]["id"], 4)
        assert header["frames"][0]["time"] == pytest.approx(0.4)
        assert str(tmp_path) not in json.dumps([about, header])
