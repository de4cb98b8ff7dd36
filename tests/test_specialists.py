"""A classifier of anybody's joins nano: its classes are words of a texture, here and, once named, elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import foveate
from foveate.core.errors import EncoderFilesError, OptionError, QueryError, StoreError, TextureEncoderError
from foveate.encoders import Specialist
from foveate.encoders.names import SELDOM
from foveate.encoders.protocol import check_features
from foveate.encoders.specialists import files_of, name_in_textures
from tests.colour_classifiers import COLOURS, LABELS, write_labels, write_onnx
from tests.conftest import PHOTOS

pytestmark = pytest.mark.slow  # networks are opened in most of them

PIXELS = {"pixels": "0..1"}
RED, BLUE = (250, 5, 5), (5, 5, 250)
PLACE = (slice(64, 192), slice(320, 480))  # of the red square


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    """A grey photograph with a red square in it."""
    rgb = np.array(
        Image.open(PHOTOS / "cake_and_coffee.jpg").convert("RGB").resize((512, 384)).convert("L").convert("RGB")
    )
    rgb[PLACE] = RED
    return rgb


@pytest.fixture(scope="module")
def fruit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_labels(write_onnx(tmp_path_factory.mktemp("models") / "fruit.onnx", metadata=PIXELS))


def inside(relevance: foveate.Relevance) -> bool:
    """Whether the peak of a map over 384 x 512 pixels lies in the red square, or in a cell beside it."""
    rows, columns = relevance.map.shape
    y, x = (int(i) for i in np.unravel_index(int(relevance.map.argmax()), relevance.map.shape))
    y, x = y * 384 // rows, x * 512 // columns
    return PLACE[0].start - 32 <= y < PLACE[0].stop + 32 and PLACE[1].start - 32 <= x < PLACE[1].stop + 32


def test_its_words_are_found_where_they_are(picture: np.ndarray, fruit: Path) -> None:
    texture = foveate.encode(picture, specialists=[fruit])
    assert texture.encoder.name == "nano+fruit"
    for word in ("a rambutan", "hairy lychees", "the rambutan"):
        found = foveate.score(texture, word)
        assert found.detected, word
        assert inside(found), word
        assert found.unknown == ()
        share = found.map[found.map > 0.5].size / found.map.size
        assert share < 2.5 * (128 * 160) / (384 * 512)
    for word in ("a kingfisher", "a katydid wing"):  # nothing is blue or green
        assert not foveate.score(texture, word).detected
    assert not foveate.score(foveate.encode(picture), "a rambutan").detected  # nano by itself knows none


def test_what_nano_sees_stays_what_it_is() -> None:
    photo = PHOTOS / "yellow_bus.jpg"
    own = foveate.load_encoder("nano")
    rgb = foveate.load_image(photo).rgb
    alone = own.encode_image(rgb)
    joined = foveate.load_encoder(f"nano+{silent()}")
    both = joined.encode_image(rgb)
    check_features(joined, both, rgb.shape[:2])
    assert both.grid == alone.grid
    np.testing.assert_array_equal(both.full(joined.width)[..., : own.width], alone.full(own.width))
    assert not both.full(joined.width)[..., own.width :].any()
    texture, usual = foveate.encode(photo, encoder=joined), foveate.encode(photo)
    for question in ("the yellow bus", "a wheel", "a dog", "the bus's window", "what is beside the bus?"):
        assert foveate.score(texture, question).confidence == pytest.approx(
            foveate.score(usual, question).confidence, abs=0.02
        )
    optional = ("reads_phrases", "long_side", "knows", "understands", "understood_as", "surer", "names")
    assert all(hasattr(joined, name) == hasattr(own, name) for name in (*optional, *vars(type(own))))


_made: list[Path] = []


def silent() -> Path:
    """A specialist for which everything is background, but a colour that no photograph has."""
    import tempfile

    if not _made:
        folder = Path(tempfile.mkdtemp())
        _made.append(
            write_labels(
                write_onnx(folder / "silent.onnx", metadata=PIXELS), ["background", "zyzzyva", *["background"] * 4]
            )
        )
    return _made[0]


SHAPES: dict[str, dict[str, Any]] = {
    "channels last": {"last": True},
    "bytes": {"kind": "uint8"},
    "probabilities": {"softmax": True, "last": True, "kind": "uint8"},
    "one size": {"size": (384, 512)},
    "one square size": {"size": (512, 512)},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_files_of_all_shapes_say_the_same(shape: str, picture: np.ndarray, fruit: Path, tmp_path: Path) -> None:
    file = write_labels(write_onnx(tmp_path / "other.onnx", metadata=PIXELS, **SHAPES[shape]))
    one, other = Specialist.read(fruit), Specialist.read(file)
    padded = np.full((384, 512, 3), picture[-1, -1], np.uint8)
    padded[: len(picture)] = picture
    (expected, _), (found, covered) = one.look(padded), other.look(padded)
    assert expected.shape == (12, 16, 3)
    assert covered == ((64, 64) if shape == "one square size" else (48, 64))
    # Means of 3 x 3 cells are of logits, or of probabilities where a file has only these.
    if shape == "probabilities":
        assert (found.argmax(2) == expected.argmax(2))[expected.max(2) > 0.9].all()
        assert found[3:5, 11:14, 0].min() > 0.6
    else:
        np.testing.assert_allclose(found[:11], expected[:11], atol=2e-3)


@pytest.mark.parametrize("size", [("h", "w"), (224, 224)])
def test_a_classifier_of_whole_pictures_is_asked_of_windows(
    size: tuple[Any, Any], picture: np.ndarray, tmp_path: Path
) -> None:
    file = write_labels(write_onnx(tmp_path / "pooled.onnx", pooled=True, size=size, metadata=PIXELS))
    picture = picture.copy()
    picture[:, 256:] = RED
    relevance = foveate.score(foveate.encode(picture, specialists=[file]), "a rambutan")
    assert relevance.detected
    quarters = [part.mean() for part in np.split(relevance.map, 4, axis=1)]
    assert quarters[0] < 0.15 < 0.8 < min(quarters[2:])
    assert np.unravel_index(relevance.map.argmax(), relevance.map.shape)[1] >= 32


def test_a_picture_that_is_long_and_one_that_is_tiny(fruit: Path, tmp_path: Path) -> None:
    pooled = write_labels(write_onnx(tmp_path / "pooled.onnx", pooled=True, metadata=PIXELS))
    one = write_labels(write_onnx(tmp_path / "one.onnx", size=(64, 96), metadata=PIXELS))
    encoder = foveate.load_encoder(f"nano+{fruit}+{pooled}+{one}")
    assert encoder.name == "nano+fruit+pooled+one"
    for shape in ((9, 700), (700, 9), (64, 64), (1, 1)):
        for side in (None, 32, 96):
            dense = encoder.encode_image(np.full((*shape, 3), RED, np.uint8), long_side=side)
            check_features(encoder, dense, shape)
            seen = dense.full(encoder.width)[..., [-9, -6, -3]].max((0, 1))  # as a rambutan by each of them
            assert shape != (64, 64) or seen.min() > 0.4


def test_who_speaks_for_a_word(tmp_path: Path) -> None:
    """Its file for what it was brought for, nano for the names that it sees at a finer stride."""
    nano: Any = foveate.load_encoder("nano")
    labels = ["dog", "soldier, legionary", "goldfinch", *["background"] * 3]
    first = write_labels(write_onnx(tmp_path / "first.onnx", metadata=PIXELS), labels)
    second = write_labels(write_onnx(tmp_path / "second.onnx", metadata=PIXELS), ["tamarillo", *labels[1:]])
    encoder: Any = foveate.load_encoder(f"nano+{first}+{second}")
    own = nano.width

    def asked(word: str) -> list[int]:
        vector = encoder.encode_text([word])[0]
        return np.flatnonzero(vector[own:] >= 0.5).tolist()

    assert nano.knows("dog")
    assert asked("dog") == []
    np.testing.assert_array_equal(encoder.encode_text(["dog"])[0, :own], nano.encode_text(["dog"])[0])
    assert nano.understood_as("soldier") == ("person", SELDOM)
    assert asked("a soldier") == asked("legionaries") == [1]
    assert encoder.understood_as("soldier") is None
    assert nano.knows("goldfinch")  # a class of its own
    assert asked("goldfinches") == [2]
    assert encoder.encode_text(["goldfinch"])[0, :own].max() < 0.2
    assert asked("tamarillo") == [3]
    assert not nano.understands("tamarillo")
    assert encoder.understands("tamarillo")
    assert set(encoder.names) >= {"tamarillo", "dog", "soldier"}


def test_labels_have_several_words_and_groups(picture: np.ndarray, tmp_path: Path) -> None:
    labels = [
        "Nephelium lappaceum (Rambutan's fruit)",
        "katydid",
        "Kingfisher; halcyon",
        *LABELS[3:],
        "zyzzyvas\t0 2",
        "",
    ]
    file = write_labels(write_onnx(tmp_path / "many.onnx", metadata=PIXELS), labels)
    specialist = Specialist.read(file)
    assert specialist.classes == ("nephelium lappaceum", "katydid", "kingfisher")
    assert specialist.words["rambutan fruit"] == (0,)
    assert specialist.words["halcyon"] == (2,)
    assert specialist.words["zyzzyvas"] == (0, 2)
    assert "background" not in specialist.words
    texture = foveate.encode(picture, specialists=[specialist])
    assert inside(found := foveate.score(texture, "zyzzyvas"))
    assert found.detected


def test_labels_lie_beside_a_file_or_in_it(tmp_path: Path) -> None:
    file = write_onnx(tmp_path / "a.onnx", metadata={**PIXELS, "names": json.dumps(dict(enumerate(LABELS)))})
    assert Specialist.read(file).classes == ("rambutan", "katydid wing", "kingfisher")
    (tmp_path / "a_labels.txt").write_text("\n".join(["one", *LABELS[1:]]))
    assert Specialist.read(file).classes[0] == "one"
    (tmp_path / "a.txt").write_text("\ufefftwo\r\n" + "\r\n".join(LABELS[1:]), "utf-8")
    assert Specialist.read(file).classes[0] == "two"
    (tmp_path / "a.json").write_text(json.dumps({"labels": ["three", *LABELS[1:]]}))
    assert Specialist.read(file).classes[0] == "three"
    assert Specialist.read(file, labels=["four", *LABELS[1:]]).classes[0] == "four"


def test_a_specialist_is_read_once_and_again_when_its_file_changes(fruit: Path, tmp_path: Path) -> None:
    name = f"nano+{fruit}"
    assert foveate.load_encoder(name) is foveate.load_encoder(name)
    file = write_labels(write_onnx(tmp_path / "b.onnx", metadata=PIXELS))
    first = foveate.load_encoder(f"nano+{file}")
    write_labels(file, ["durian", *LABELS[1:]])
    second = foveate.load_encoder(f"nano+{file}")
    assert first.revision != second.revision
    assert not first.knows("durian")  # type: ignore[attr-defined]
    assert second.knows("durian")  # type: ignore[attr-defined]
    moved = write_labels(write_onnx(tmp_path / "c.onnx", metadata=PIXELS), ["durian", *LABELS[1:]])
    assert Specialist.read(moved).revision == Specialist.read(file).revision  # of what it is, not of where it lies


def test_a_texture_is_asked_again_in_its_process_and_refused_where_the_file_is_not_named(
    picture: np.ndarray, fruit: Path, tmp_path: Path
) -> None:
    texture = foveate.encode(picture, specialists=[fruit])
    named = foveate.encode(picture, encoder=f"nano+{fruit}")
    assert named.encoder == texture.encoder
    texture.save(tmp_path / "t.safetensors")
    again = foveate.Texture.load(tmp_path / "t.safetensors")
    assert foveate.score(again, "a rambutan").confidence == foveate.score(texture, "a rambutan").confidence
    assert str(fruit.parent) not in repr(texture.encoder)
    script = """
import sys, foveate
texture = foveate.Texture.load(sys.argv[1])
try:
    foveate.score(texture, "a rambutan")
except foveate.FoveateError as error:
    print(type(error).__name__, error.fix)
print(foveate.score(texture, "a rambutan", encoder=sys.argv[2]).detected)
print(foveate.score(texture, "a rambutan").detected)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "t.safetensors"), f"nano+{fruit}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    refused, *found = done.stdout.splitlines()
    assert refused.startswith("TextureEncoderError pass it: score(texture, query, encoder='nano+fruit.onnx'")
    assert found == ["True", "True"]
    other = write_labels(write_onnx(tmp_path / "fruit.onnx", metadata=PIXELS), ["durian", *LABELS[1:]])
    with pytest.raises(TextureEncoderError, match="revision"):
        foveate.score(texture, "a rambutan", encoder=f"nano+{other}")
    with pytest.raises(TextureEncoderError, match="'nano\\+fruit', revision"):
        foveate.score(texture, "a rambutan", encoder="nano")
    foveate.encode(picture, specialists=[fruit])  # the last one of a name is found by it


def test_commands_take_it_where_they_take_an_encoder(picture: np.ndarray, fruit: Path, tmp_path: Path) -> None:
    Image.fromarray(picture).save(tmp_path / "picture.png")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        here = [sys.executable, "-m", "foveate", *command]
        return subprocess.run(here, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})

    encoder = ("--encoder", f"nano+{fruit}")
    made = run("encode", "picture.png", "-o", "t.safetensors", *encoder)
    assert made.returncode == 0, made.stderr
    assert "nano+fruit, revision" in made.stdout
    refused = run("look", "t.safetensors", "a rambutan")
    assert refused.returncode != 0
    assert "does not load what a file names" in refused.stderr
    assert "--encoder" in refused.stderr
    looked = run("look", "t.safetensors", "a rambutan", *encoder)
    assert looked.returncode == 0, looked.stderr
    assert "Traceback" not in made.stderr + refused.stderr + looked.stderr


def test_a_store_keeps_it_and_a_stream_goes_by_it(picture: np.ndarray, fruit: Path, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    Image.fromarray(picture).save(tmp_path / "pictures" / "red.png")
    grey = picture.copy()
    grey[PLACE] = 128
    Image.fromarray(grey).save(tmp_path / "pictures" / "grey.png")
    name = f"nano+{fruit}"
    store = foveate.Store(tmp_path / "store", encoder=name)
    store.add(tmp_path / "pictures")
    best = store.search("a rambutan")[0]
    assert "red.png" in str(best)
    again = foveate.Store(tmp_path / "store", encoder=name)
    assert len(again) == 2
    assert "red.png" in str(again.search("a rambutan")[0])
    with pytest.raises((StoreError, TextureEncoderError)):
        foveate.Store(tmp_path / "store", encoder="nano").add(tmp_path / "pictures")
    from foveate.video import stream

    frames = list(stream([picture, picture], "a rambutan", encoder=name, budget=64))
    assert len(frames) == 2
    assert all(inside(frame.relevance) for frame in frames)  # type: ignore[arg-type]


def test_names_of_encoders() -> None:
    assert files_of("nano") == files_of("clip:a+b.onnx") == files_of("nanoplus") == ()
    assert files_of("nano+a+b/birds.onnx+c.tflite+d.onnx") == ("a+b/birds.onnx", "c.tflite", "d.onnx")
    assert name_in_textures("nano+a+b/birds.onnx+c.tflite") == "nano+birds+c"
    assert name_in_textures("clip:folder") == "clip:folder"
    with pytest.raises(EncoderFilesError, match="ends in"):
        foveate.load_encoder("nano+nobody")
    with pytest.raises(OptionError, match="device"):
        foveate.load_encoder("nano+nobody.onnx", "cuda")


def test_parts_natives_and_taught_words_go_by_it(fruit: Path) -> None:
    """Whatever encodes again, or adds words, keeps the specialist: its words are found there, too."""
    from foveate.tiles import refine

    photo = np.array(Image.open(PHOTOS / "cake_and_coffee.jpg").convert("L").resize((1600, 1200)).convert("RGB"))
    photo[300:420, 1000:1150] = RED  # a cell of the whole picture
    texture = foveate.encode(photo, specialists=[fruit])
    assert refine(texture).encoder == texture.encoder
    native = foveate.score(foveate.encode(photo, specialists=[fruit], long_side="native"), "a rambutan")
    y, x = (int(i) for i in np.unravel_index(int(native.map.argmax()), native.map.shape))
    assert native.detected
    assert 32 <= y < 56  # of 150 rows; the square is 37.5 to 52.5
    assert 120 <= x < 148  # of 200 columns; it is 125 to 144
    large = photo[200:520, 900:1250]
    seen = foveate.encode(large, specialists=[fruit])
    words = foveate.teach("our mark", [(seen, (0, 0, 60, 60))])
    both = foveate.score(seen, ["a rambutan", "our mark"], words=words)
    assert both[0].detected
    assert both[0].unknown == both[1].unknown == ()


def test_a_viewer_does_not_tell_where_the_files_lie() -> None:
    pytest.importorskip("starlette")
    from foveate.view.session import SessionEncoding

    assert SessionEncoding("nano+/a/folder/birds.onnx+b.tflite").told == {"encoder": "nano+birds+b"}
    assert SessionEncoding("clip:some/name").told == {"encoder": "clip:some/name"}


def test_other_languages_are_refused_as_nano_refuses_them(picture: np.ndarray, fruit: Path) -> None:
    texture = foveate.encode(picture, specialists=[fruit])
    with pytest.raises(QueryError, match="German"):
        foveate.score(texture, "wo ist der rote Bus")


def write(text: str | bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(text if isinstance(text, bytes) else text.encode())


def onnx(
    metadata: dict[str, str] | None = None, labels: Sequence[str] | None = LABELS, **how: Any
) -> Callable[[Path], object]:
    def make(file: Path) -> None:
        write_onnx(file, metadata=PIXELS if metadata is None else metadata, **how)
        if labels is not None:
            write_labels(file, labels)

    return make


def with_text(name: str, content: bytes, **how: Any) -> Callable[[Path], object]:
    def make(file: Path) -> None:
        onnx(**how)(file)
        (file.parent / name).write_bytes(content)

    return make


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no file": ("x.onnx", lambda file: None, "is not there.*a file.*check the path"),
    "a folder": ("x.onnx", lambda file: file.mkdir(), "is not there"),
    "another kind": ("x.pt", write("x"), "ends in '.pt'.*onnx or .tflite.*convert it"),
    "corrupt": ("x.onnx", write(b"\x08\x08abc"), "cannot be read by onnxruntime.*an ONNX file.*export it again"),
    "empty": ("x.onnx", write(b""), "cannot be read by onnxruntime"),
    "a text": ("x.onnx", write("no network\n" * 50), "cannot be read by onnxruntime"),
    "no labels": ("x.onnx", onnx(labels=None), "has no labels.*one line a class.*x.txt or x_labels.txt"),
    "empty labels": ("x.onnx", onnx(labels=[]), "has '' as label 1|has no labels"),
    "too few labels": ("x.onnx", onnx(labels=LABELS[:5]), r"an output \[1, 6, 7, 7\], and 5 labels.*as many labels"),
    "too many": ("x.onnx", onnx(labels=[*LABELS, "more"]), "and 7 labels"),
    "a label of no word": ("x.onnx", onnx(labels=["??", *LABELS[1:]]), "has '\\?\\?' as label 1.*write a word"),
    "an empty line": ("x.onnx", onnx(labels=["", *LABELS[1:]]), "has '' as label 1"),
    "a group of nothing": ("x.onnx", onnx(labels=[*LABELS, "all\t0 9"]), "the group 'all.t0 9' in line 7.*from 0"),
    "a group in words": ("x.onnx", onnx(labels=[*LABELS, "all\tred"]), "the group"),
    "bytes for labels": (
        "x.onnx",
        with_text("x.txt", b"\xff\xfe\x00caf\xe9"),
        "'x.txt' beside it, which is no text.*UTF-8",
    ),
    "a JSON that is none": ("x.onnx", with_text("x.json", b"{pixels: 1}"), "has no JSON in x.json"),
    "a JSON of a list": ("x.onnx", with_text("x.json", b"[1]"), "has no object in x.json"),
    "numbers as labels": ("x.onnx", with_text("x.json", b'{"labels": [1, 2, 3, 4, 5, 6]}'), "has 1 as label 1"),
    "four channels": ("x.onnx", onnx(channels=4), r"takes \[1, 4, 'h', 'w'\].*one image"),
    "no pixels": ("x.onnx", onnx(metadata={}), "takes floats, and nothing says.*'0..255' or .*x.json"),
    "other pixels": ("x.onnx", onnx(metadata={"pixels": "bgr"}), "has pixels='bgr'.*imagenet"),
    "pixels of no text": ("x.onnx", with_text("x.json", b'{"pixels": ["0..1"]}'), "has pixels="),
    "two outputs a place": ("x.onnx", onnx(metadata={**PIXELS, "output": "boxes"}), "has output='boxes'"),
    "labels in another JSON": ("x.onnx", onnx(metadata={"names": "{0: 'a'}", **PIXELS}, labels=None), "no JSON in its"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_cannot_be_used_is_refused_with_what_to_do(case: str, picture: np.ndarray, tmp_path: Path) -> None:
    name, make, message = BAD[case]
    make(tmp_path / name)
    with pytest.raises(EncoderFilesError, match="(?s)the specialist .*" + message) as caught:
        foveate.encode(picture, specialists=[tmp_path / name])
    assert caught.value.fix
    assert caught.value.expected


def test_one_class_alone_is_a_yes_or_no(picture: np.ndarray, tmp_path: Path) -> None:
    """Red or not: its logit is above 0 where it is, and a softmax would be 1 everywhere."""
    file = write_onnx(tmp_path / "red.onnx", metadata=PIXELS, colours=[(1, 0, 0)])
    picture = picture // 4
    picture[PLACE] = RED
    texture = foveate.encode(picture, specialists=[Specialist.read(file, labels=["rambutan"])])
    assert inside(found := foveate.score(texture, "a rambutan"))
    assert found.detected
    picture[PLACE] = BLUE
    nothing = foveate.encode(picture, specialists=[Specialist.read(file, labels=["rambutan"])])
    assert not foveate.score(nothing, "a rambutan").detected


def test_networks_that_are_no_classifiers_of_images(tmp_path: Path) -> None:
    """Those of this package: of masks, of writing, and nano's own."""
    from foveate.channels import text
    from foveate.encoders import nano

    for file in (
        Path(text.__file__).parent / "assets" / "writing.onnx",
        Path(nano.__file__).parent / "assets" / nano.IMAGE,
    ):
        with pytest.raises(EncoderFilesError, match=r"takes|has an output"):
            Specialist.read(file, labels=["one", "two"], pixels="0..1")


def test_specialists_are_a_list_and_join_nano(picture: np.ndarray, fruit: Path) -> None:
    for wrong in ("birds.onnx", [3], [None]):
        with pytest.raises(OptionError, match="specialists="):
            foveate.encode(picture, specialists=wrong)  # type: ignore[arg-type]
    joined = foveate.load_encoder(f"nano+{fruit}")
    with pytest.raises(OptionError, match=r"specialists for the encoder 'nano\+fruit'"):
        foveate.encode(picture, encoder=joined, specialists=[fruit])
    assert foveate.encode(picture, specialists=[]).encoder.name == "nano"


def test_many_images_at_a_time_are_what_each_is_alone(picture: np.ndarray, fruit: Path) -> None:
    others = [picture, picture[:, ::-1].copy(), picture[::-1].copy(), picture]
    together = foveate.encode(others, specialists=[fruit], threads=4)
    for rgb, texture in zip(others, together, strict=True):
        np.testing.assert_array_equal(texture.embedding, foveate.encode(rgb, specialists=[fruit]).embedding)
    assert len(COLOURS) == len(LABELS)


def test_specialists_are_none_or_a_list(picture: np.ndarray, fruit: Path) -> None:
    nobody: Any
    for nobody in (None, (), []):
        assert foveate.encode(picture, channels="fast", specialists=nobody).encoder.name == "nano"
    one: Any
    for one in (fruit, str(fruit), "", 5, Specialist.read(fruit)):
        with pytest.raises(OptionError, match=r"specialists=.*\n.*a list of files.*\n.*birds.onnx"):
            foveate.encode(picture, specialists=one)
