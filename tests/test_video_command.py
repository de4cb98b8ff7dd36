"""`foveate video`: the overlay, the lines of JSON, the summary; interrupted, killed, and with bad input."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from foveate.cli.main import main
from foveate.cli.terminal import until_interrupted
from foveate.cli.video import write_results
from foveate.core import errors
from foveate.reading import Word
from foveate.relevance.value import Relevances
from foveate.video import Frame, Propagation, Refresh, open_clip, stream
from foveate.viz.overlay import SENT, History, Page, draw, draw_picture
from tests.video_clips import encode, packets, pan

Bytes = NDArray[np.uint8]
Foveate = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.video
SMALL = ("--long-side", 128)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    times = [t / 10 + (t % 3) / 100 for t in range(10)]  # a variable frame rate
    return encode(tmp_path_factory.mktemp("clips") / "pan.mp4", pan(10, (98, 160)), rate=10, times=times)


@pytest.fixture
def foveate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Foveate]:
    """The command, run in an empty folder: exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["foveate", "video", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run  # type: ignore[return-value]


def last(done: tuple[int, str, str]) -> dict[str, Any]:
    assert done[0] == 0, done[2]
    return dict(json.loads(done[1]))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def pictures(path: Path) -> tuple[list[Bytes], list[float]]:
    read = list(open_clip(path))
    return [picture.rgb for picture in read], [picture.time for picture in read]


# --- what comes out ---------------------------------------------------------------------------------------------------


def test_reading(foveate: Foveate, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def read(self: object, rgb: Bytes) -> list[Word]:
        seen.append(rgb.shape)
        return [Word("MENU", (10, 10, 30, 60))]

    monkeypatch.setattr("foveate.reading.rapid.RapidReader.read", read)
    plain = last(foveate(clip, "a cup of coffee", "--no-video", *SMALL, "--json"))
    assert all("words" not in row for row in lines(Path("pan_kept.jsonl")))
    last(foveate(clip, "a cup of coffee", "--no-video", "--read", "--read-every", 0, "--every", 5, *SMALL, "--json"))
    rows = lines(Path("pan_kept.jsonl"))
    assert len(rows) == plain["frames"]
    assert len(seen) == sum(row["key"] for row in rows) >= 2
    assert rows[0]["words"] == 1
    assert foveate(clip, "a dog", "--read", "--read-every", -1)[0] == 2


def test_one_question(foveate: Foveate, clip: Path) -> None:
    found = last(foveate(clip, "a cup of coffee", "-k", 40, "--every", 6, *SMALL, "--json"))
    how: dict[str, Any] = {"budget": 40, "long_side": 128, "propagation": Propagation(refresh=Refresh(every=6))}
    frames, rows = list(stream(clip, "a cup of coffee", **how)), lines(Path("pan_kept.jsonl"))
    assert len(rows) == len(frames) == found["frames"] == 10
    for row, frame in zip(rows, frames, strict=True):
        assert row.pop("seconds") > 0
        assert len(row["kept"]) == 40
        assert row == {
            "index": frame.index,
            "time": pytest.approx(frame.time, abs=1e-6),
            "key": frame.keyframe,
            "reason": frame.reason,
            "renewed": [list(box) for box in frame.renewed],
            "grid": list(frame.grid.shape),
            "kept": frame.kept.indices.tolist(),  # type: ignore[union-attr]
            "kept_new": frame.kept_new.tolist(),  # type: ignore[union-attr]
            "found": round(frame.relevance.confidence, 4),  # type: ignore[arg-type]
            "detected": frame.relevance.detected,  # type: ignore[union-attr]
            "confidence": round(float(frame.confidence.mean()), 4),
        }
    shown, times = pictures(Path("pan_kept.mp4"))
    assert [one.shape for one in shown] == [(*Page.for_frames((98, 160), 1).size, 3)] * 10
    assert times == pytest.approx([frame.time for frame in frames], abs=1e-4)
    (question,) = found.pop("queries")
    assert question["found"] == pytest.approx(np.median([row["found"] for row in rows]), abs=1e-4)
    assert found["kept"] == question["kept"] == 10 * 40
    assert found["sent"] == sum(len(row["kept_new"]) for row in rows)
    assert found["keyframes"] == sum(row["key"] for row in rows)
    assert min(found["keyframe_ms"], found["propagated_ms"], found["frames_per_second"]) > 0
    assert (found["skipped"], found["interrupted"], found["budget"]) == (0, False, 40)
    assert sorted(path.name for path in Path().iterdir()) == [found["jsonl"], found["video"]]


def test_several_questions_and_where_to_begin_and_end(foveate: Foveate, clip: Path) -> None:
    asked = (clip, "a cake", "a cup", "--start", 0.5, "--frames", 4, "-k", "auto", "--out", "k.mkv", *SMALL, "--json")
    found, rows = last(foveate(*asked)), lines(Path("k.jsonl"))
    assert [row["index"] for row in rows] == [5, 6, 7, 8]
    assert rows[0]["reason"] == "first"
    assert rows[0]["time"] == pytest.approx(0.52)
    assert [question["query"] for question in found["queries"]] == ["a cake", "a cup"]
    for row in rows:
        assert [len(row[name]) for name in ("kept", "kept_new", "found", "detected")] == [2, 2, 2, 2]
        assert all(set(new) <= set(kept) for new, kept in zip(row["kept_new"], row["kept"], strict=True))
    assert len(pictures(Path("k.mkv"))[0]) == 4


def test_lines_alone_from_a_folder_and_a_table(foveate: Foveate, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, rgb in enumerate(pan(3, (64, 96))):
        Image.fromarray(rgb).save(tmp_path / "in" / f"{number}.png")
    found = last(
        foveate("in", "a cake", "--no-video", "--rate", 4, "--no-smoothing", "--out", "a.jsonl", *SMALL, "--json")
    )
    assert [row["time"] for row in lines(Path("a.jsonl"))] == [0, 0.25, 0.5]
    assert found["video"] is None
    table = foveate("in/", "a cake", "--frames", 1, *SMALL)[1]
    assert Path("in_kept.mp4").is_file()
    assert all(text in table for text in ("a cake", "1 frame, ", "\n1 keyframe of", "frames a second"))
    assert "{" not in table


def test_a_damaged_packet_is_reported(foveate: Foveate, clip: Path, tmp_path: Path) -> None:
    content, (position, size) = bytearray(clip.read_bytes()), packets(clip)[6]
    content[position : position + size] = bytes(size)
    (tmp_path / "damaged.mp4").write_bytes(content)
    done = foveate("damaged.mp4", "a cake", *SMALL, "--json")
    found = last(done)
    assert (found["skipped"], found["frames"]) == (1, 9)
    assert "could not be decoded, and left out: 1 picture\n" in done[2]
    assert len(pictures(Path("damaged_kept.mp4"))[0]) == len(lines(Path("damaged_kept.jsonl"))) == 9


def test_earlier_results_are_replaced_when_the_new_ones_are_complete(foveate: Foveate, clip: Path) -> None:
    Path("k.mp4").write_text("old")
    Path("k.jsonl").write_text("old")
    assert foveate(clip, "a cake", "-k", 10**6, "--out", "k.mp4", *SMALL)[0] == 2
    assert Path("k.mp4").read_text() == Path("k.jsonl").read_text() == "old"
    last(foveate(clip, "a cake", "--frames", 2, "--out", "k.mp4", *SMALL, "--json"))
    assert len(pictures(Path("k.mp4"))[0]) == len(lines(Path("k.jsonl"))) == 2
    assert len(list(Path().iterdir())) == 2


# --- ended early ------------------------------------------------------------------------------------------------------


@pytest.mark.crash
def test_an_interrupt_and_a_kill(tmp_path: Path) -> None:
    """Ctrl-C ends the clip there, as if it were shorter; a kill changes nothing, and leaves the lines beside."""
    long = encode(tmp_path / "long.mp4", pan(300, (64, 96), (0, 1)), options={"preset": "ultrafast"})
    command = [sys.executable, "-m", "foveate.cli.main", "video", str(long), "a cake", "--out", "k.mp4", "--json"]
    command += map(str, SMALL)
    stopped, killed = tmp_path / "stopped", tmp_path / "killed"
    children, pipe = {}, subprocess.PIPE
    for folder in (stopped, killed):
        folder.mkdir()
        for name in ("k.mp4", "k.jsonl"):
            (folder / name).write_text("old")
        children[folder] = subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True)
    said = {}
    for folder, number in ((stopped, signal.SIGINT), (killed, signal.SIGKILL)):
        child = children[folder]
        while child.poll() is None and not any(path.stat().st_size > 3000 for path in folder.glob("k.*.jsonl")):
            time.sleep(0.01)
        child.send_signal(number)
        said[folder] = child.communicate(timeout=60)
    out, err = said[stopped]
    assert (children[stopped].returncode, err) == (130, "")
    rows, (shown, times) = lines(stopped / "k.jsonl"), pictures(stopped / "k.mp4")
    found = json.loads(out)
    assert found["interrupted"] is True
    assert found["frames"] == len(rows) == len(shown)
    assert times == pytest.approx([row["time"] for row in rows], abs=1e-4)
    assert len(list(stopped.iterdir())) == 2
    assert (killed / "k.mp4").read_text() == (killed / "k.jsonl").read_text() == "old"
    (part,) = killed.glob("k.*.part.jsonl")
    assert len(list(killed.iterdir())) <= 4
    for some in (rows, lines(part)):
        assert 0 < len(some) < 300
        assert [row["index"] for row in some] == list(range(len(some)))


def test_interrupts_are_noticed_once_and_given_back() -> None:
    with until_interrupted() as stopped:
        assert not stopped()
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with until_interrupted() as stopped:
            os.kill(os.getpid(), signal.SIGINT)
            assert not stopped()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def elsewhere() -> bool:
        with until_interrupted() as stopped:
            return stopped()

    with ThreadPoolExecutor() as pool:
        assert not pool.submit(elsewhere).result()


@pytest.mark.parametrize("count", [3, 0])
def test_a_clip_that_fails_leaves_its_lines(tmp_path: Path, count: int) -> None:
    frames = [*pan(count, (64, 96)), np.zeros((4, 4), np.float32)]
    for name in ("k.mp4", "k.jsonl"):
        (tmp_path / name).write_text("old")
    with pytest.raises(errors.VideoError, match=f"frame {count}") as failure:
        write_results(stream(frames, "a cake", long_side=128), tmp_path / "k.jsonl", tmp_path / "k.mp4")
    assert (tmp_path / "k.mp4").read_text() == (tmp_path / "k.jsonl").read_text() == "old"
    parts = list(tmp_path.glob("k.*.part.jsonl"))
    assert [len(lines(part)) for part in parts] == ([count] if count else [])
    assert all(str(part) in failure.value.fix for part in parts)
    assert len(list(tmp_path.iterdir())) == 2 + len(parts)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_input_leaves_nothing(foveate: Foveate, clip: Path, tmp_path: Path) -> None:
    shutil.copy(clip, "c.mp4")
    shutil.copy(clip, "a.jsonl")
    Path("taken.mp4").mkdir()
    Path("folder").mkdir()
    Path("text.mp4").write_text("words")
    Path("link.mp4").symlink_to("c.mp4")
    before = sorted(tmp_path.rglob("*"))
    for clip_name, arguments, words in (
        ("none.mp4", "", "No such file"),
        ("text.mp4", "", "cannot be opened as a video"),
        ("https://example.org/c.mp4", "", "download it"),
        ("c.mp4", "--out no/k.mp4", "No such file"),
        ("c.mp4", "--out c.mp4", "is the clip itself"),
        ("c.mp4", "--out link.mp4", "is the clip itself"),
        ("a.jsonl", "--out a.mp4", "is the clip itself"),
        ("c.mp4", "--out k.avi", ".mp4 or .mkv"),
        ("c.mp4", "--out k.jsonl", "--no-video"),
        ("c.mp4", "--out o/x.txt", "write --out o/x.mp4"),
        ("c.mp4", "--out taken.mp4/x.txt --no-video", "write --out taken.mp4/x.jsonl\n"),
        ("c.mp4", "--out folder", "write --out folder/c_kept.mp4"),
        ("c.mp4", "--out taken.mp4", "that is a folder"),
        ("c.mp4", "-k 100000", "error: -k 100000"),
        ("c.mp4", "-k 0", 'leave it out for "auto"'),
        ("c.mp4", "text.mp4", "one clip"),
        ("c.mp4", "--encoder nan0", "nan0"),
        ("c.mp4", "--every 0", "leave it out for 12"),
        ("c.mp4", "--size 0", "the clip's own"),
        ("c.mp4", "--rate 5", "--rate 5"),
        ("c.mp4", "--start nan", "--start nan"),
        ("c.mp4", "--start 100", "no frame there"),
    ):
        code, out, err = foveate(clip_name, "a dog", *arguments.split())
        assert (code, out) == (1 if "--out" in arguments or not arguments else 2, ""), (arguments, out, err)
        assert err.startswith("error: ")
        assert "\n  expected: " in err
        assert "\n  fix: " in err
        assert words in err, (arguments, err)
        assert sorted(tmp_path.rglob("*")) == before, arguments
    assert foveate("c.mp4", "a dog", "-k", "many")[0] == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_without_the_extra(foveate: Foveate, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("in").mkdir()
    Image.fromarray(pan(1, (64, 96))[0]).save("in/0.png")
    monkeypatch.setitem(sys.modules, "av", None)
    for arguments in ((clip, "a cake"), ("in", "a cake")):
        code, _, err = foveate(*arguments)
        assert code == 1
        assert "foveate[video]" in err
    last(foveate("in", "a cake", "--no-video", *SMALL, "--json"))


# --- the picture ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frames(clip: Path) -> list[Frame]:
    with stream(clip, ["a cake", "a giraffe"], budget=60, long_side=128) as follow:
        return [frame for frame, _ in zip(follow, range(4), strict=False)]


def history(frames: list[Frame], expected: int | None = None) -> History:
    past = History(len(frames[0].answers), expected)
    for frame in frames:
        past.add(frame)
    return past


def test_kept_cells_show_the_photograph_and_the_rest_is_dark(frames: list[Frame]) -> None:
    frame, page = frames[2], Page.for_frames((98, 160), 2)
    asked: Any = Relevances(tuple(replace(one, map=kept.mask.astype(np.float32)) for one, kept, _ in frame.answers))
    frame = replace(frame, relevance=asked)  # all that is kept is asked for
    out = draw(frame, history(frames[:3], 16), page)
    assert out.shape == (*page.size, 3)
    h, w = page.picture
    photo = np.asarray(Image.fromarray(frame.rgb).resize((w, h), Image.Resampling.BICUBIC)).astype(int)
    mask = np.any([one.mask for one in frame.kept], 0)  # type: ignore[union-attr]
    rows, columns = (np.arange(n) * m // n for n, m in ((h, mask.shape[0]), (w, mask.shape[1])))
    kept = mask[rows][:, columns]
    shown = out[:h, :w].astype(int)
    new = np.zeros(mask.size, bool)
    new[np.concatenate(frame.kept_new)] = True
    fresh = new.reshape(mask.shape)[rows][:, columns]
    sent = kept & ~fresh
    assert min(sent.sum(), fresh.sum()) > 500  # a cell, at least
    assert np.median(np.abs(shown - photo)[fresh]) <= 2
    assert np.median(np.abs(shown - SENT * photo)[sent]) <= 3
    assert shown[~kept].mean() < 0.6 * photo[~kept].mean()


def test_marks_of_keyframes_and_renewed_parts(frames: list[Frame]) -> None:
    page, grid = Page.for_frames((98, 160), 2), frames[1].grid
    plain = replace(frames[1], reason=None, renewed=())

    def differing(frame: Frame) -> NDArray[np.bool_]:
        one, other = (draw(each, history([plain, each], 4), page) for each in (plain, frame))
        return (one != other).any(-1)

    h, w = page.picture
    key = differing(replace(plain, reason="age"))
    assert not key[:h].any()  # no text lies on the picture
    strip = page.size[0] - 3 * page.unit
    assert key[h:strip].sum() > 300  # the lamp
    key = key[strip:]
    assert 0 < key.sum() < 200  # the tick
    columns = np.flatnonzero(key.any(0))
    assert abs(columns.mean() - 1.5 / 4 * w) < 12  # in the second of four columns
    parts = differing(replace(plain, renewed=((2, 4, 6, 10),)))
    edge = slice(6 * h // grid.h - 1, 6 * h // grid.h)
    assert parts[edge, 4 * w // grid.w : 10 * w // grid.w].mean() > 0.5
    assert 0 < parts[strip:].sum() < 200


def test_the_glow_is_the_maps_and_several_have_their_colours(frames: list[Frame]) -> None:
    rgb, frame = np.full((64, 96, 3), 100, np.uint8), frames[1]
    (relevance, kept, new), _ = frame.answers
    ramp = np.tile(np.linspace(0, 1, kept.grid.w, dtype=np.float32), (kept.grid.h, 1))
    nothing = replace(kept, indices=kept.indices[:0], scores=kept.scores[:0])
    bright, flat = replace(relevance, map=ramp), replace(relevance, map=np.zeros_like(ramp))
    one = draw_picture(rgb, replace(frame, relevance=bright, kept=nothing, kept_new=new[:0])).astype(int)
    light = one.sum(-1).mean(0)
    assert light[-3:].mean() > 2.4 * light[:3].mean()
    several: Any = {"relevance": Relevances((flat, bright)), "kept": (nothing, nothing), "kept_new": (new[:0], new[:0])}
    two = draw_picture(rgb, replace(frame, **several)).astype(int)
    assert two[:, -3:, 2].mean() > two[:, -3:, 0].mean() + 50  # the second colour is blue
    assert np.abs(two[:, 0] - 45).max() <= 3  # no relevance: grey, at its darkness


def test_context_is_grey_and_what_is_asked_for_has_a_line(frames: list[Frame]) -> None:
    frame = frames[1]
    (relevance, kept, _), _ = frame.answers
    h, w = frame.grid.shape
    rgb = np.full((8 * h, 8 * w, 3), (200, 100, 50), np.uint8)
    plane = np.zeros((h, w), np.float32)
    plane[1:4, 1:4] = 1
    cells = np.array([w + 1, w + 2, 2 * w + 1, 4 * w - 2, 5 * w - 5], np.int64)
    some = replace(kept, indices=cells, scores=np.ones(len(cells), np.float32), reasons={})
    found = replace(relevance, map=plane, saliency=np.zeros_like(plane))
    several: Any = {"relevance": found, "kept": some, "kept_new": cells}
    drawn = draw_picture(rgb, replace(frame, **several)).astype(int)
    spread = [
        np.ptp(drawn[8 * y + 2 : 8 * y + 6, 8 * x + 2 : 8 * x + 6], axis=2).mean()
        for y, x in zip(*np.divmod(cells, w), strict=True)
    ]
    assert min(spread[:3]) > 100
    assert max(spread[3:]) < 5
    y, x = np.divmod(cells[3], w)
    assert np.ptp(drawn[8 * y : 8 * y + 8, 8 * x : 8 * x + 8], axis=2).max() < 5  # no line through it


def test_frames_of_another_size_are_fitted_in(tmp_path: Path) -> None:
    arrays = [*pan(2, (64, 96)), *pan(2, (96, 40)), *pan(1, (8, 200))]
    follow = stream(arrays, ["a cake", "a giraffe"], long_side=128, budget=4)
    found = write_results(follow, tmp_path / "k.jsonl", tmp_path / "k.mp4")
    shown, _ = pictures(tmp_path / "k.mp4")
    assert len(shown) == found["frames"] == 5
    assert len({picture.shape for picture in shown}) == 1
    assert [row["reason"] for row in lines(tmp_path / "k.jsonl")][2::2] == ["first", "first"]
