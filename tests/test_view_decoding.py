"""Uploads are decoded in a process of their own, which may die, hang, lie or be short of memory."""

from __future__ import annotations

import io
import signal
import struct
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from starlette.testclient import TestClient

from foveate.core.errors import FoveateError, ImageDecodeError, ImageTooLargeError
from foveate.core.image import FORMATS, Picture, load_image
from foveate.reading.pdf import open_source
from foveate.view import decoding
from foveate.view.app import make_app
from foveate.view.decoding import Decoder
from foveate.view.opening import open_target
from foveate.view.wire import pack
from tests.conftest import PHOTOS

BUS = (PHOTOS / "yellow_bus.jpg").read_bytes()
SHARED = Decoder()


@pytest.fixture
def decoder() -> Decoder:
    return Decoder()


def png(mode: str, seed: int = 0, size: tuple[int, int] = (7, 5)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], len(mode)), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels[..., 0] if mode == "L" else pixels).save(out, "PNG")
    return out.getvalue()


def opened(decoder: Decoder, content: bytes, name: str = "image") -> Picture:
    found = decoder.decode(content, name)
    assert isinstance(found, Picture)
    return found


@pytest.mark.parametrize("content", [BUS, png("L"), png("RGB"), png("RGBA"), png("RGB", size=(1, 1))])
def test_an_image_is_that_of_load_image(content: bytes) -> None:
    here, there = load_image(content), opened(SHARED, content, "a name")
    assert there.name == "a name"
    assert np.array_equal(here.rgb, there.rgb)
    assert (here.valid is None) == (there.valid is None)
    assert here.valid is None or np.array_equal(here.valid, np.asarray(there.valid))


def turned(kind: str, mode: str, **how: Any) -> bytes:
    """An image in one of the formats, with EXIF that turns it."""
    image, exif, out = Image.open(io.BytesIO(BUS)).resize((40, 30)).convert(mode), Image.Exif(), io.BytesIO()
    exif[0x0112], exif[0x010E] = 6, "a bus"
    image.save(out, kind, exif=exif, **how)
    return out.getvalue()


KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("JPEG", "RGB", {}), ("JPEG", "CMYK", {}), ("JPEG", "L", {"progressive": True}), ("PNG", "P", {}),
    ("PNG", "LA", {}), ("PNG", "1", {}), ("WEBP", "RGBA", {}), ("WEBP", "RGB", {"lossless": True}),
    ("TIFF", "RGB", {}), ("TIFF", "RGB", {"compression": "tiff_lzw"}), ("TIFF", "RGB", {"compression": "jpeg"}),
    ("TIFF", "1", {"compression": "group4"}), ("TIFF", "RGB", {"compression": "tiff_adobe_deflate"}),
    ("BMP", "RGB", {}), ("GIF", "P", {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "mode", "how"), KINDS)
def test_every_decoder_works_where_no_file_can_be_opened(kind: str, mode: str, how: dict[str, Any]) -> None:
    content = turned(kind, mode, **how)
    decoder = Decoder()  # one that decoded nothing yet
    assert np.array_equal(opened(decoder, content).rgb, load_image(content).rgb)
    if sys.platform == "linux":
        process = psutil.Process(decoder._running().pid)
        assert process.rlimit(psutil.RLIMIT_NOFILE) == (process.num_fds(),) * 2
    assert {kind for kind, *_ in KINDS} == set(FORMATS)


@pytest.mark.parametrize("content", [b"", b"hello", BUS[:2000], b"%PDF-1.7 ", png("RGB")[:60], BUS[:200] + BUS[300:]])
def test_errors_are_those_in_this_process(content: bytes) -> None:
    with pytest.raises(FoveateError) as here:
        open_source(content)
    with pytest.raises(type(here.value)) as there:
        SHARED.decode(content, "n.jpg")
    assert there.value.received == here.value.received.replace("'bytes'", "'n.jpg'", 1)
    assert (there.value.expected, there.value.fix) == (here.value.expected, here.value.fix)


@given(st.binary(max_size=400), st.integers(0, 300))
def test_no_bytes_end_it(noise: bytes, at: int) -> None:
    before = SHARED._running()
    with pytest.raises(FoveateError, match="'x'"):
        SHARED.decode(BUS[:at] + noise, "x")
    assert SHARED._running() is before


def bomb(side: int) -> bytes:
    """A PNG of a few kilobytes that says, and has, so many pixels in a row and rows."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + side // 8)) for _ in range(side)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_bomb_is_refused() -> None:
    content = bomb(16_000)
    assert len(content) < 100_000
    with pytest.raises(ImageTooLargeError):
        SHARED.decode(content, "bomb.png")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no addresses")
def test_memory_is_limited() -> None:
    """With little of it a large image is an error, and the next one, small, is read."""
    small, content = Decoder(memory=540 * 2**20), bomb(7_800)  # 61 million pixels: 180 MB as RGB, and once more
    with pytest.raises(ImageDecodeError, match="large"):
        small.decode(content, "large.png")
    assert opened(small, BUS, "bus").rgb.shape == load_image(BUS).rgb.shape


def test_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Decoder(seconds=0.3)
    for script in ("import time; time.sleep(60)", "import sys; sys.stdin.buffer.read(9); import time; time.sleep(60)"):
        monkeypatch.setattr(decoding, "COMMAND", (sys.executable, "-c", script))
        with pytest.raises(ImageDecodeError, match=r"within 0\.3 s"):
            slow.decode(BUS * 100, "slow.jpg")
    monkeypatch.undo()
    assert opened(Decoder(), BUS, "bus").rgb.size


def framed(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


def answered(header: Any, **arrays: Any) -> bytes:
    return framed(pack(header, {name: np.asarray(array) for name, array in arrays.items()}))


@pytest.mark.parametrize(
    "said",
    [
        b"", b"\1", b"\xff" * 8, framed(b"none"), (2**40).to_bytes(8, "little"), framed(framed(b'{"a": 7}')),
        answered({}), answered(7), answered({"error": ["SystemExit", "a", "b", "c"]}),
        answered({"error": ["FoveateError", "a", "b", "c"]}), answered({"error": ["sys", "", ""]}),
        answered({}, rgb=np.zeros(4, np.uint8)), answered({}, rgb=np.zeros((1, 1, 3), np.float32)),
        answered({}, rgb=np.zeros((1, 1, 3), np.uint8), valid=np.zeros((9, 9), np.uint8)),
        answered({}, rgb=np.zeros((1, 1, 3), np.uint8))[:-1],
    ],
)  # fmt: skip
def test_a_process_that_was_taken_over_is_not_believed(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"import sys; sys.stdin.buffer.read({len(BUS)}); sys.stdout.buffer.write({said!r})"
    monkeypatch.setattr(decoding, "COMMAND", (sys.executable, "-c", script))
    with pytest.raises(ImageDecodeError, match="broke the decoder"):
        Decoder().decode(BUS, "evil.jpg")


@pytest.mark.crash
def test_a_process_that_dies_is_an_error_and_the_next_image_is_read(decoder: Decoder) -> None:
    decoder.decode(BUS)
    first = decoder._running()
    first.send_signal(signal.SIGSTOP)
    threading.Timer(0.3, first.kill).start()
    with pytest.raises(ImageDecodeError, match="broke the decoder"):
        decoder.decode(BUS, "x")
    assert opened(decoder, BUS).rgb.size
    second = decoder._running()  # asked again, a dead one is replaced by another, for which a wait has no end
    second.kill()
    second.wait()
    assert opened(decoder, BUS).rgb.size  # one that died between images is no image's fault


def test_many_threads_get_each_their_image() -> None:
    contents = [png("RGB", seed) for seed in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda content: opened(SHARED, content), contents)
        for content, picture in zip(contents, found, strict=True):
            assert np.array_equal(picture.rgb, load_image(content).rgb)


def test_it_ends_with_its_decoder() -> None:
    decoder = Decoder()
    decoder.start()
    process = psutil.Process(decoder._running().pid)
    del decoder
    process.wait(10)
    assert not process.is_running()


def test_it_reads_no_module_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("numpy", "PIL", "cv2", "foveate", "signal"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'seen')!r}, 'w')")
    assert opened(Decoder(), BUS).rgb.size
    assert not (tmp_path / "seen").exists()


def test_a_bad_upload_is_an_error_and_the_page_goes_on() -> None:
    client = TestClient(make_app(open_target(None)), base_url="http://127.0.0.1")
    for content in (b"", b"GIF89a", BUS[:5000], bomb(16_000)):
        answer = client.post("/api/images", content=content, headers={"x-file-name": "bad.gif"})
        assert answer.status_code in (413, 422)
        assert "bad.gif" in answer.json()["error"]["received"]
    answer = client.post("/api/images", content=BUS)
    assert answer.status_code == 201
    assert client.get(f"/api/images/{answer.json()['id']}/pixels").status_code == 200
