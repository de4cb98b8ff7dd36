"""Values show themselves: in a notebook, on a desktop, in a file, and without the photograph."""

from __future__ import annotations

import copy
import io
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageShow

import foveate
from foveate import Allocation, Relevance, Relevances, Texture
from foveate.core import display
from foveate.core.display import FORMATS, Drawable, free_path
from foveate.core.errors import FoveateError, OptionError, OutputError


@pytest.fixture(scope="module")
def values(texture: Texture) -> dict[str, Drawable]:
    relevance = foveate.score(texture, "a child")
    several = foveate.score(texture, ["a child", "broccoli"])
    return {"texture": texture, "one": relevance, "several": several, "kept": foveate.allocate(relevance, 200)}


def test_every_value_has_a_picture(values: dict[str, Drawable]) -> None:
    for value in values.values():
        picture = value.picture()
        assert (picture.mode, min(picture.size) > 100) == ("RGB", True)
        with Image.open(io.BytesIO(value._repr_png_() or b"")) as shown:
            assert shown.format == "PNG"
            assert shown.width / shown.height == pytest.approx(picture.width / picture.height, rel=0.01)
            assert shown.width * shown.height <= 1.01 * max(display.NOTEBOOK, picture.width * picture.height / 4)
    assert values["several"].picture().size[0] > values["one"].picture().size[0]  # a panel a question


@pytest.mark.parametrize("suffix", [".png", ".JPG", ".webp", ".tif", ".pdf"])
def test_the_end_of_a_name_says_the_format(values: dict[str, Drawable], tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a picture{suffix}"
    values["one"].save_image(path, side=120)
    if suffix == ".pdf":
        assert path.read_bytes().startswith(b"%PDF")
    else:
        with Image.open(path) as written:
            assert written.format == FORMATS[suffix.lower()][0]
            assert written.size == values["one"].picture(side=120).size
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", OutputError),
        ("folder", OutputError),
        ("folder.png", OutputError),
        ("missing/picture.png", OutputError),
        ("picture", OptionError),
        ("picture.gif", OptionError),
        ("pic\0ture.png", OutputError),
    ],
)
def test_a_bad_path_changes_nothing(
    values: dict[str, Drawable], tmp_path: Path, name: str, error: type[FoveateError]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match="fix: "):
        values["one"].save_image(tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(OptionError, match="of type int"):
        values["one"].save_image(3)  # type: ignore[arg-type]


def test_a_picture_that_a_format_cannot_hold() -> None:
    with pytest.raises(OutputError, match=r"20000 x 2 pixels cannot be written as WEBP[^$]*pass 'a/b.png'"):
        display.encode_picture(Image.new("RGB", (20_000, 2)), Path("a/b.webp"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a screen; the current folder."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_server_gets_a_file_under_a_free_name(
    values: dict[str, Drawable], server: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        values["one"].show(side=120)
    assert {path.name for path in server.iterdir()} == {"relevance.png", "relevance-2.png", "relevance-3.png"}
    assert str(server / "relevance-3.png") in capsys.readouterr().out
    assert free_path(server / "other.png") == server / "other.png"


def test_a_desktop_opens_its_viewer(
    values: dict[str, Drawable], server: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(ImageShow, "_viewers", [])
    values["kept"].show(side=120)  # no viewer is installed
    assert str(server / "allocation.png") in capsys.readouterr().out
    seen: list[Image.Image] = []
    viewer = SimpleNamespace(show=lambda image, **options: not seen.append(image))  # type: ignore[func-returns-value]
    monkeypatch.setattr(ImageShow, "_viewers", [viewer])
    values["kept"].show(side=120)
    assert [each.size for each in seen] == [values["kept"].picture(side=120).size]
    assert len(list(server.iterdir())) == 1


def test_a_notebook_displays(values: dict[str, Drawable], server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=shown.append))
    values["texture"].show()
    assert isinstance(shown[0], Image.Image)
    assert not list(server.iterdir())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not display.in_notebook()


def test_a_value_keeps_its_texture_and_pickles_without_it(texture: Texture, values: dict[str, Any]) -> None:
    one: Relevance = values["one"]
    kept: Allocation = values["kept"]
    several: Relevances = values["several"]
    assert one.texture is kept.texture is several[1].texture is texture
    assert one.on(foveate.Grid(10, 12, texture.grid.height, texture.grid.width)).texture is texture
    assert foveate.score(texture, "a dog", prior=one).texture is texture
    for value in (one, kept):
        again = pickle.loads(pickle.dumps(value))
        assert again.texture is None
        assert value.texture is texture
        assert len(pickle.dumps(value)) < texture.pixel.nbytes
        assert min(again.picture().size) > 100  # the map, or the cells, alone
    assert pickle.loads(pickle.dumps(several))[0].texture is None
    for name in ("texture", "one", "kept"):
        assert copy.copy(values[name]) is copy.deepcopy(values[name]) is values[name]  # it never changes


def test_options_of_a_picture_are_checked_whatever_the_value(values: dict[str, Drawable]) -> None:
    for name, said in (("one", "side, labels"), ("kept", "side, labels"), ("several", "side"), ("texture", "none")):
        with pytest.raises(OptionError, match="bogus=1 of a picture") as caught:
            values[name].picture(bogus=1)
        assert said in caught.value.expected
    with pytest.raises(OptionError, match="bogus=1"):
        foveate.viz.picture_of(values["one"], bogus=1)
    panels = values["several"].picture(side=100, labels=False)
    assert 150 < panels.width < 300 > panels.height


def test_a_notebook_shows_text_where_there_is_nothing_to_draw(values: dict[str, Any]) -> None:
    none = values["several"][:0]
    assert none._repr_png_() is None
    assert np.asarray(none).shape == none.logits.shape == (0, 0, 0)
    with pytest.raises(OptionError, match="no questions"):
        none.show()


def test_what_is_no_value_has_no_picture() -> None:
    with pytest.raises(OptionError, match="a picture of str"):
        foveate.viz.picture_of("photo.jpg")


def test_what_has_a_relevance_shows_it(broccoli: Path, tmp_path: Path) -> None:
    store = foveate.Store(tmp_path / "s.fov")
    store.add(broccoli)
    (hit,) = store.search("broccoli")
    assert hit.picture(side=200).size == hit.relevance.picture(side=200).size
    found = foveate.tiles.look(foveate.tiles.survey(broccoli), "broccoli", share=0)
    assert found.relevance.texture is found.scene.overview
    assert min(found.picture(side=200).size) > 100
    frame = next(iter(foveate.video.stream([foveate.load_image(broccoli).rgb], "broccoli")))
    assert frame.picture(side=200).size == frame.relevance.picture(side=200).size
