"""`foveate video`: the overlay, the lines of JSON, the summary; interrupted, killed, and with bad input."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

from foveate.cli.doctor import examine
from foveate.cli.main import app, main
from foveate.cli.terminal import until_interrupted
from foveate.cli.watch import Lines, Places, places, watch
from foveate.core import errors
from foveate.video import Frame, stream
from foveate.viz import overlay
from foveate.viz.overlay import BELIEF, COLOURS, COLUMNS, LEGEND, SENT, Layout, Strip, drawn, picture
from tests.video_clips import encode, packets, pan

Bytes = NDArray[np.uint8]
Foveate = Callable[..., tuple[int, str, str]]
SMALL = ("--long-side", 128)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    times = [t / 10 + (t % 3) / 100 for t in range(16)]  # a variable frame rate
    return encode(tmp_path_factory.mktemp("clips") / "pan.mp4", pan(16, (98, 160)), rate=10, times=times)


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
    return dict(json.loads(done[1].splitlines()[-1]))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def pictures(path: Path) -> tuple[list[Bytes], list[float]]:
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
        return [np.asarray(frame.to_ndarray(format="rgb24"), np.uint8) for frame in frames], [
            float(frame.time or 0) for frame in frames
        ]


# --- what comes out ---------------------------------------------------------------------------------------------------


def test_one_question(foveate: Foveate, clip: Path) -> None:
    found = last(foveate(clip, "a cup of coffee", "-k", 40, "--every", 6, *SMALL))
    with stream(clip, "a cup of coffee", budget=40, long_side=128, **_every(6)) as follow:
        frames = list(follow)
    rows = lines(Path("pan_kept.jsonl"))
    assert len(rows) == len(frames) == found["frames"] == 16
    for row, frame in zip(rows, frames, strict=True):
        assert row["index"] == frame.index
        assert row["time"] == pytest.approx(frame.time, abs=1e-6)
        assert (row["key"], row["reason"], row["grid"]) == (frame.key, frame.reason, list(frame.grid.shape))
        assert row["renewed"] == [list(box) for box in frame.renewed]
        assert row["kept"] == frame.kept.indices.tolist()  # type: ignore[union-attr]
        assert row["kept_new"] == frame.kept_new.tolist()  # type: ignore[union-attr]
        assert len(row["kept"]) == 40
        assert row["confidence"] == round(float(frame.confidence.mean()), 4)
        assert row["found"] == round(frame.relevance.confidence, 4)  # type: ignore[arg-type]
        assert row["seconds"] > 0
    shown, times = pictures(Path("pan_kept.mp4"))
    assert len(shown) == 16
    assert shown[0].shape == (*Layout.of((98, 160), 1).size, 3)
    assert times == pytest.approx([frame.time for frame in frames], abs=1e-4)
    assert found["keys"] == sum(row["key"] for row in rows)
    assert found["kept"] == 16 * 40 == found["queries"][0]["kept"]
    assert found["sent"] == sum(len(row["kept_new"]) for row in rows)
    assert found["renewed"] == sum(len(row["renewed"]) for row in rows)
    assert found["queries"][0]["found"] == pytest.approx(np.median([row["found"] for row in rows]), abs=1e-4)
    assert (found["skipped"], found["interrupted"], found["budget"]) == (0, False, 40)
    assert (found["video"], found["jsonl"]) == ("pan_kept.mp4", "pan_kept.jsonl")
    assert min(found["key_ms"], found["carried_ms"], found["frames_per_second"]) > 0
    assert sorted(path.name for path in Path().iterdir()) == ["pan_kept.jsonl", "pan_kept.mp4"]


def _every(frames: int) -> dict[str, Any]:
    from foveate.video import Refresh

    return {"refresh": Refresh(every=frames)}


def test_several_questions_and_where_to_begin_and_end(foveate: Foveate, clip: Path) -> None:
    done = foveate(clip, "a cake", "a cup", "--start", 0.5, "--frames", 4, "-k", "auto", "--out", "k.mkv", *SMALL)
    found, rows = last(done), lines(Path("k.jsonl"))
    assert [row["index"] for row in rows] == [5, 6, 7, 8]
    assert rows[0]["reason"] == "first"
    assert rows[0]["time"] == pytest.approx(0.52)
    assert [question["query"] for question in found["queries"]] == ["a cake", "a cup"]
    for row in rows:
        assert [len(row[name]) for name in ("kept", "kept_new", "found", "detected")] == [2, 2, 2, 2]
        assert all(set(new) <= set(kept) for new, kept in zip(row["kept_new"], row["kept"], strict=True))
    assert len(pictures(Path("k.mkv"))[0]) == 4
    assert "a cake" in done[1]
    assert "frames a second" in done[1]


def test_lines_alone_from_a_folder(foveate: Foveate, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, rgb in enumerate(pan(3, (64, 96))):
        Image.fromarray(rgb).save(tmp_path / "in" / f"{number}.png")
    found = last(foveate("in", "a cake", "--no-video", "--rate", 4, "--no-smooth", "--out", "a.jsonl", *SMALL))
    assert [row["time"] for row in lines(Path("a.jsonl"))] == [0, 0.25, 0.5]
    assert found["video"] is None
    one = foveate("in/", "a cake", "--frames", 1, *SMALL)
    assert last(one)["video"] == "in_kept.mp4"
    assert "1 frame, " in one[1]
    assert "\n1 key frame of" in one[1]


def test_the_codecs_vectors(foveate: Foveate, tmp_path: Path) -> None:
    encode(tmp_path / "b.mp4", pan(8), options={"bf": "2"})
    code, _, err = foveate("b.mp4", "a cake", "--flow", "codec", "--size", 96, *SMALL)
    assert code == 0
    assert "cannot be trusted" in err


def test_a_damaged_packet_is_reported(foveate: Foveate, clip: Path, tmp_path: Path) -> None:
    content, (position, size) = bytearray(clip.read_bytes()), packets(clip)[6]
    content[position : position + size] = bytes(size)
    (tmp_path / "damaged.mp4").write_bytes(content)
    done = foveate("damaged.mp4", "a cake", *SMALL)
    found = last(done)
    assert (found["skipped"], found["frames"]) == (1, 15)
    assert "could not be decoded, and left out: 1 picture\n" in done[2]
    assert len(pictures(Path("damaged_kept.mp4"))[0]) == len(lines(Path("damaged_kept.jsonl"))) == 15


def test_earlier_results_are_replaced_when_the_new_ones_are_complete(foveate: Foveate, clip: Path) -> None:
    Path("k.mp4").write_text("old")
    Path("k.jsonl").write_text("old")
    assert foveate(clip, "a cake", "-k", 10**6, "--out", "k.mp4", *SMALL)[0] == 1
    assert Path("k.mp4").read_text() == Path("k.jsonl").read_text() == "old"
    last(foveate(clip, "a cake", "--frames", 2, "--out", "k.mp4", *SMALL))
    assert len(pictures(Path("k.mp4"))[0]) == len(lines(Path("k.jsonl"))) == 2
    assert len(list(Path().iterdir())) == 2


# --- ended early ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("there", [False, True])
def test_an_interrupt_and_a_kill(tmp_path: Path, number: signal.Signals, there: bool) -> None:
    encode(tmp_path / "long.mp4", pan(300, (64, 96), (0, 1)), options={"preset": "ultrafast"})
    if there:
        (tmp_path / "k.mp4").write_text("old")
        (tmp_path / "k.jsonl").write_text("old")
    command = [
        sys.executable,
        "-m",
        "foveate.cli.main",
        "video",
        "long.mp4",
        "a cake",
        "--out",
        "k.mp4",
        *map(str, SMALL),
    ]
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while child.poll() is None and not any(path.stat().st_size > 3000 for path in tmp_path.glob("k*.jsonl")):
        time.sleep(0.01)
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    written, film = tmp_path / "k.jsonl", tmp_path / "k.mp4"
    if there:  # the earlier results stay, however it ended
        assert written.read_text() == film.read_text() == "old"
        (written,), (film,) = tmp_path.glob("k.*.part.jsonl"), tmp_path.glob("k.*.part.mp4")
    rows, (shown, times) = lines(written), pictures(film)
    assert 0 < len(rows) < 300
    assert len(list(tmp_path.iterdir())) == (5 if there else 3)
    if number == signal.SIGINT:
        assert child.returncode == 130
        found = json.loads(out.splitlines()[-1])
        assert found["interrupted"] is True
        assert found["frames"] == len(rows) == len(shown)
        assert "interrupted after" in out
        assert err == ""
        assert (found["video"], found["jsonl"]) == (film.name, written.name)
        assert f"files: {film.name} and {written.name}\n" in out
        assert ("k.mp4 and k.jsonl: as before" in out) is there
    else:
        assert abs(len(rows) - len(shown)) <= 1
    assert times == pytest.approx([row["time"] for row in rows][: len(shown)], abs=1e-4)
    assert [row["index"] for row in rows] == list(range(len(rows)))


def test_interrupts_are_asked_for_once_and_given_back() -> None:
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
    with until_interrupted() as outer, until_interrupted():
        assert not outer()
    said: list[bool] = []

    def elsewhere() -> None:
        with until_interrupted() as stopped:
            said.append(stopped())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert said == [False]


@pytest.mark.parametrize("lost", ["folder", "lines"])
def test_files_that_go_away_while_they_are_written(tmp_path: Path, lost: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()

    def frames() -> Iterator[Bytes]:
        for number, rgb in enumerate(pan(9, (64, 96))):
            if number == 5:
                shutil.rmtree(folder) if lost == "folder" else (folder / "k.jsonl").unlink()
            yield rgb

    into = Places(folder / "k.jsonl", folder / "k.mp4")
    with pytest.raises(errors.OutputError, match="removed while it was written") as failure:
        watch(stream(frames(), "a cake", long_side=128), into)
    if lost == "folder":
        assert "the 5 frames before had been written" in failure.value.fix
        assert not folder.exists()
    else:
        assert f"the 5 frames before are in '{folder / 'k.mp4'}'" in failure.value.fix
        assert len(pictures(folder / "k.mp4")[0]) == 6  # the picture comes before its line


@pytest.mark.parametrize("there", [(), ("k.mp4", "k.jsonl"), ("k.jsonl",)])
@pytest.mark.parametrize(("count", "words"), [(3, "the 3 frames before are in"), (1, "the frame before is in")])
def test_a_clip_that_fails_later_leaves_what_came_before(
    tmp_path: Path, there: tuple[str, ...], count: int, words: str
) -> None:
    frames = [*pan(count, (64, 96)), np.zeros((4, 4), np.float32)]
    into = Places(tmp_path / "k.jsonl", tmp_path / "k.mp4")
    for name in there:
        (tmp_path / name).write_text("old")
    with pytest.raises(errors.VideoError, match=words) as failure:
        watch(stream(frames, "a cake", long_side=128), into)
    places = []
    for name in ("k.mp4", "k.jsonl"):
        place, suffix = tmp_path / name, name.removeprefix("k.")
        if name in there:
            assert place.read_text() == "old"
            (place,) = tmp_path.glob(f"k.*.part.{suffix}")
        places.append(place)
    assert failure.value.fix.endswith(f"{words} '{places[0]}' and '{places[1]}'")
    assert len(pictures(places[0])[0]) == len(lines(places[1])) == count
    assert len(list(tmp_path.iterdir())) == 2 + len(there)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_no_half_line_is_left(tmp_path: Path) -> None:
    with Lines(tmp_path / "k.jsonl") as file:
        file.write({"index": 0})
        whole = file._file
        file._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
        with file._file, pytest.raises(errors.OutputError, match="No space left"):
            file.write({"index": 1})
        file._file = whole
    assert lines(tmp_path / "k.jsonl") == [{"index": 0}]


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_input_leaves_nothing(foveate: Foveate, clip: Path, tmp_path: Path) -> None:
    shutil.copy(clip, "c.mp4")
    shutil.copy(clip, "a.jsonl")
    Path("taken.mp4").mkdir()
    Path("folder").mkdir()
    Path("text.mp4").write_text("words")
    Path("link.mp4").symlink_to("c.mp4")
    before = sorted(tmp_path.rglob("*"))
    for arguments, words in (
        (("none.mp4", "a dog"), ("none.mp4", "no file")),
        (("text.mp4", "a dog"), ("text.mp4", "cannot be opened as a video")),
        (("https://example.org/c.mp4", "a dog"), ("URL", "download it")),
        (("", "a dog"), ("empty path",)),
        (("c.mp4", "a dog", "--out", "no/k.mp4"), ("'no/k.mp4'", "No such file")),
        (("c.mp4", "a dog", "--out", "c.mp4"), ("is the clip itself", "--out")),
        (("c.mp4", "a dog", "--out", "link.mp4"), ("is the clip itself", "--out")),
        (("a.jsonl", "a dog", "--out", "a.mp4"), ("is the clip itself", "--out")),
        (("c.mp4", "a dog", "--out", "k.avi"), ("k.avi", ".mp4 or .mkv", "k.mp4")),
        (("c.mp4", "a dog", "--out", "k.jsonl"), ("--no-video",)),
        (("c.mp4", "a dog", "--out", "k"), ("write --out k.mp4",)),
        (("c.mp4", "a dog", "--out", "o/my x.txt"), ("write --out 'o/my x.mp4'",)),
        (("c.mp4", "a dog", "--out", "taken.mp4/x.txt", "--no-video"), ("write --out taken.mp4/x.jsonl\n",)),
        (("c.mp4", "a dog", "--out", "folder"), ("write --out folder/c_kept.mp4",)),
        (("c.mp4", "a dog", "--out", "folder/"), ("write --out folder/c_kept.mp4",)),
        (("c.mp4", "a dog", "--out", "taken.mp4"), ("taken.mp4", "folder")),
        (("c.mp4", "a dog", "-k", 10**5), ("budget=100000",)),
        (("c.mp4", "a dog", "-k", 0), ("--budget 0", "leave it out for 128")),
        (("c.mp4", ""), ("empty query",)),
        (("c.mp4", "a dog", "a dog"), ("none of them twice",)),
        (("c.mp4", "a dog", "text.mp4"), ("is a file", "one clip")),
        (("c.mp4", "a dog", "--encoder", "nan0"), ("nan0",)),
        (("c.mp4", "a dog", "--every", 0), ("--every 0", "leave it out for 12")),
        (("c.mp4", "a dog", "--memory", 2), ("memory=2",)),
        (("c.mp4", "a dog", "--flow", "raft"), ("flow='raft'",)),
        (("c.mp4", "a dog", "--size", 0), ("--size 0", "the clip's own")),
        (("c.mp4", "a dog", "--rate", 5), ("rate=5",)),
        (("c.mp4", "a dog", "--frames", 0), ("--frames 0",)),
        (("c.mp4", "a dog", "--start", -1), ("--start -1",)),
        (("c.mp4", "a dog", "--start", "nan"), ("--start nan",)),
        (("c.mp4", "a dog", "--start", 100), ("no frame there",)),
    ):
        code, out, err = foveate(*arguments)
        assert (code, out) == (1, ""), (arguments, out, err)
        assert err.startswith("error: ")
        assert "\n  expected: " in err
        assert "\n  fix: " in err
        for word in words:
            assert word in err, (arguments, err)
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
    last(foveate("in", "a cake", "--no-video", *SMALL))


def test_names_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places("x/y.z.mp4", None) == Places(Path("y.z_kept.jsonl"), Path("y.z_kept.mp4"))
    assert places("camera:0", None).video == Path("camera-0_kept.mp4")
    assert places(".", None).video == Path(f"{tmp_path.name}_kept.mp4")
    assert places("a.mp4", Path("b.MKV"), video=False) == Places(Path("b.jsonl"))


def test_help_and_doctor_name_it(foveate: Foveate) -> None:
    code, out, _ = foveate("--help")
    assert code == 0
    assert "Example:" in out
    assert "\n  video " in CliRunner().invoke(app, ["--help"]).stdout
    assert "extra [video]" in [row["what"] for row in examine()["rows"]]


# --- the picture ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frames(clip: Path) -> list[Frame]:
    with stream(clip, ["a cake", "a giraffe"], budget=60, long_side=128) as follow:
        return [frame for frame, _ in zip(follow, range(4), strict=False)]


def test_kept_cells_show_the_photograph_and_the_rest_is_dark(frames: list[Frame]) -> None:
    frame, layout = frames[1], Layout.of((98, 160), 2)
    page = drawn(frame, Strip.empty(16, 2).with_frame(0.9, [0.4, 0.1], False, False), layout)
    assert page.shape == (*layout.size, 3)
    assert page.shape[0] % 2 == page.shape[1] % 2 == 0
    h, w = layout.picture
    photo = np.asarray(Image.fromarray(frame.rgb).resize((w, h), Image.Resampling.BICUBIC)).astype(int)
    mask = np.any([one.mask for one in frame.kept], 0)  # type: ignore[union-attr]
    rows, columns = (np.arange(n) * m // n for n, m in ((h, mask.shape[0]), (w, mask.shape[1])))
    kept = mask[rows][:, columns]
    shown = page[:h, :w].astype(int)
    new = np.zeros(mask.size, bool)
    new[np.concatenate(frame.kept_new)] = True
    fresh = new.reshape(mask.shape)[rows][:, columns]
    sent = kept & ~fresh
    assert min(sent.sum(), fresh.sum()) > 1000
    assert np.median(np.abs(shown - photo)[fresh]) <= 2
    assert np.median(np.abs(shown - SENT * photo)[sent]) <= 3
    assert shown[~kept].mean() < 0.6 * photo[~kept].mean()


def test_marks_of_key_frames_and_renewed_parts(frames: list[Frame]) -> None:
    layout, grid = Layout.of((98, 160), 2), frames[1].grid
    carried = replace(frames[1], key=False, reason=None, renewed=())
    strip = Strip.empty(4, 2).with_frame(1.0, [0.4, 0.1], False, False)

    def differing(frame: Frame, key: bool, renewed: bool) -> NDArray[np.bool_]:
        after = strip.with_frame(0.5, [0.4, 0.1], key, renewed)
        plain = drawn(carried, strip.with_frame(0.5, [0.4, 0.1], False, False), layout)
        return (drawn(frame, after, layout) != plain).any(-1)

    h, w = layout.picture
    key = differing(replace(carried, key=True, reason="age"), True, False)
    assert key[: h // 6, : w // 2].sum() > 1000  # the lamp
    assert not key[h // 6 : h].any()
    assert 0 < key[h:].sum() < 200  # the tick
    columns = np.flatnonzero(key[h:].any(0))
    assert abs(columns.mean() - 1.5 / 4 * w) < 12  # in the second of four columns
    parts = differing(replace(carried, renewed=((2, 4, 6, 10),)), False, True)
    edge = slice(6 * h // grid.h - 1, 6 * h // grid.h)
    assert parts[edge, 4 * w // grid.w : 10 * w // grid.w].mean() > 0.5
    assert 0 < parts[h:].sum() < 200
    assert not differing(carried, False, False).any()


def test_the_glow_is_the_maps_and_several_have_their_colours(frames: list[Frame]) -> None:
    rgb = np.full((64, 96, 3), 100, np.uint8)
    frame = frames[1]
    relevance, kept = frame.relevance[0], frame.kept[0]  # type: ignore[index]
    ramp = np.tile(np.linspace(0, 1, kept.grid.w, dtype=np.float32), (kept.grid.h, 1))
    nothing = replace(kept, indices=kept.indices[:0], scores=kept.scores[:0])
    one = picture(rgb, [replace(relevance, map=ramp)], [nothing], [nothing.indices], frame).astype(int)
    light = one.sum(-1).mean(0)
    assert light[-3:].mean() > 3 * light[:3].mean()
    flat = replace(relevance, map=np.zeros_like(ramp))
    two = picture(rgb, [flat, replace(relevance, map=ramp)], [nothing, nothing], [nothing.indices] * 2, frame).astype(
        int
    )
    assert two[:, -3:, 2].mean() > two[:, -3:, 0].mean() + 50  # the second colour is blue
    assert np.abs(two[:, 0] - 45).max() <= 3  # no relevance: grey, at its darkness


@pytest.mark.parametrize("size", [(1, 1), (64, 48), (98, 160), (900, 20), (20, 900), (2160, 3840)])
@pytest.mark.parametrize("questions", [1, 2, 5])
def test_layouts_of_all_sizes(size: tuple[int, int], questions: int) -> None:
    layout = Layout.of(size, questions)
    height, width = layout.size
    assert height % 2 == width % 2 == 0
    assert 480 <= width <= 1280
    assert layout.picture[0] <= 1280
    assert layout.columns * layout.rows >= questions
    said = [name for line in layout.legend for name in line]  # all of it, whatever the width
    assert len(said) == len(LEGEND)
    assert ("confidence of each question" in said) is (questions > 1)


def test_the_strip_of_one_frame_is_full(frames: list[Frame]) -> None:
    layout, strip = Layout.of((98, 160), 2), Strip.empty(1, 2).with_frame(1.0, [0.9, 0.1], True, False)
    page = drawn(replace(frames[0], key=True, reason="first"), strip, layout, 1)
    ground = page[-layout.unit - 20 : -layout.unit, layout.unit : -layout.unit]
    assert (ground == BELIEF).all(-1).mean() > 0.8
    for colour in COLOURS[:2]:  # a line of each question, across
        near = np.abs(page.astype(np.int64) - np.array(colour)) < 40
        rows = near[-4 * layout.unit :].all(-1).mean(1)
        assert rows.max() > 0.9


def test_a_thing_that_is_not_there_and_numbers_of_one(frames: list[Frame], monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def heard(text: str, *how: int) -> Bytes:
        said.append(text)
        return text_of(text, *how)

    text_of = overlay._text
    monkeypatch.setattr(overlay, "_text", heard)
    frame = replace(frames[1], kept_new=(frames[1].kept[0].indices[:1], frames[1].kept[1].indices[:0]))  # type: ignore[index]
    drawn(frame, Strip.empty(4, 2).with_frame(1.0, [0.9, 0.1], False, False), Layout.of((98, 160), 2), 4)
    count = frame.grid.count
    assert f"60 of {count} cells, 1 new (brighter)" in said
    assert f"60 of {count} cells, 0 new" in said
    absent = frame.relevance[1]  # type: ignore[index]
    assert not absent.detected
    assert f"confidence {absent.confidence:.2f}, not found: spread out" in said
    assert {"confidence of each question", "key frame", "parts renewed"} <= set(said)


def test_twelve_questions_have_colours_of_their_own() -> None:
    assert len(set(COLOURS)) == len(COLOURS) == 12
    colours = np.array(COLOURS, float)
    apart = np.linalg.norm(colours[:, None] - colours[None], axis=-1)
    assert apart[~np.eye(12, dtype=bool)].min() > 50


def test_frames_of_another_size_are_fitted_in(tmp_path: Path) -> None:
    arrays = [*pan(2, (64, 96)), *pan(2, (96, 40)), *pan(1, (8, 200))]
    into = Places(tmp_path / "k.jsonl", tmp_path / "k.mp4")
    found = watch(stream(arrays, ["a cake", "a giraffe"], long_side=128, budget=4), into)
    shown, _ = pictures(tmp_path / "k.mp4")
    assert len(shown) == found["frames"] == 5
    assert len({picture.shape for picture in shown}) == 1
    assert [row["reason"] for row in lines(into.lines)][2::2] == ["first", "first"]


@given(
    expected=st.one_of(st.none(), st.integers(1, 3000)),
    count=st.integers(1, 2500),
    keys=st.sets(st.integers(0, 2499), max_size=5),
)
def test_the_strip_keeps_every_key_frame_and_the_lowest_confidence(
    expected: int | None, count: int, keys: set[int]
) -> None:
    belief = np.random.default_rng(count).random(count).astype(np.float32)
    strip = Strip.empty(expected, 1)
    for number in range(count):
        strip = strip.with_frame(float(belief[number]), [0.5], number in keys, number == 7)
    assert len(strip.belief) <= COLUMNS
    assert strip.count == count
    used = -(-count // strip.each)
    assert used <= len(strip.belief)
    assert set(np.flatnonzero(strip.key)) == {number // strip.each for number in keys if number < count}
    lowest = [belief[at * strip.each : (at + 1) * strip.each].min() for at in range(used)]
    assert np.array_equal(strip.belief[:used], np.array(lowest, np.float32))
    assert np.isnan(strip.belief[used:]).all()
    assert np.isnan(strip.found[used:]).all()
