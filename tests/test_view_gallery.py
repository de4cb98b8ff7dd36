"""Folders and stores in the viewer: lists, small pictures, search; what is answered equals what foveate says itself."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from starlette.testclient import TestClient

import foveate
from foveate import Store
from foveate.core.errors import ImageNotFoundError, StoreKeyError, StoreVersionError
from foveate.core.image import load_image, shrink
from foveate.store.sources import Source, find_sources
from foveate.view import gallery
from foveate.view.gallery import AskedPage, FolderListing, ListedFile, open_folder
from foveate.view.opening import open_target
from tests.conftest import PHOTOS
from tests.store_toys import id_of
from tests.view_client import check_refusal, client_of, message

HOSTILE = ("<img src=x onerror=alert(1)>.jpg", "%2e%2e%2fetc%2fpasswd.jpg", "a\nb.jpg", "\u202egpj.exe.jpg", "ÉTÉ.JPG")
BYTES = b"not\xffunicode.jpg"


def listed(asked: TestClient, **how: Any) -> dict[str, Any]:
    answer = asked.get("/api/gallery", params=how)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photographs, one turned by its EXIF, one with alpha, one that is none, and names that are none either."""
    made = tmp_path / "photos"
    shutil.copytree(PHOTOS, made)
    (made / "below").mkdir()
    for name in HOSTILE:
        shutil.copy(PHOTOS / "yellow_bus.jpg", made / "below" / name)
    shutil.copy(os.fsencode(PHOTOS / "yellow_bus.jpg"), os.fsencode(made) + b"/below/" + BYTES)
    (made / "broken.jpg").write_bytes((PHOTOS / "yellow_bus.jpg").read_bytes()[:5000])
    (made / "text.png").write_text("no image")
    bus = Image.open(PHOTOS / "yellow_bus.jpg")
    exif = bus.getexif()
    exif[0x0112] = 6
    bus.save(made / "turned.jpg", exif=exif)
    alpha = bus.convert("RGBA")
    alpha.putalpha(bus.convert("L"))
    alpha.save(made / "alpha.png")
    Image.fromarray(np.linspace(0, 65535, 64 * 32).astype(np.uint16).reshape(32, 64)).save(made / "deep.png")
    return made


def test_a_folder_is_listed_without_reading_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object) -> None:
        raise AssertionError(source)

    monkeypatch.setattr(gallery, "read", refuse)
    asked = client_of(folder)
    every = listed(asked, limit=200)
    assert [image["name"] for image in every["images"]] == [
        source.name.encode("utf-8", "replace").decode() for source in find_sources(folder).files
    ]
    assert every["total"] == len(every["images"]) == 14
    assert {f"below/{name}" for name in HOSTILE} <= {image["name"] for image in every["images"]}
    session = asked.get("/api/session").json()
    assert (session["kind"], session["name"], session["first"]) == ("folder", "photos", None)
    assert session["index"] == "foveate index photos -o photos.fov"


def test_pages_and_parts_of_names_are_parts_of_the_list(folder: Path) -> None:
    asked = client_of(folder)
    every = listed(asked, limit=200)["images"]
    for limit in (1, 3, 5):
        pages = [listed(asked, offset=offset, limit=limit) for offset in range(0, len(every) + limit, limit)]
        assert [image for page in pages for image in page["images"]] == every
        assert {page["total"] for page in pages} == {len(every)}
    for part in ("bus", "BUS", "été", "below/", "<img", "%", "_", "nothing has this"):
        found = listed(asked, part=part, limit=200)
        assert found["place"] is None
        for place, image in enumerate(found["images"]):
            assert listed(asked, part=part, limit=0, of=image["id"])["place"] == place
        assert found["images"] == [image for image in every if part.casefold() in image["name"].casefold()]
        assert found["total"] == len(found["images"])


@settings(max_examples=30)
@given(st.integers(0, 40), st.integers(0, 40), st.text(max_size=2))
def test_a_page_is_a_slice(offset: int, limit: int, part: str) -> None:
    names = [f"{i % 3}/{i}É.jpg" for i in range(30)]
    files = {str(i): ListedFile(Source(f"/nowhere/{name}", name), name) for i, name in enumerate(names)}
    page = FolderListing(files).page(AskedPage(offset=offset, limit=limit, part=part))
    found = [(str(i), name) for i, name in enumerate(names) if part.casefold() in name.casefold()]
    assert (page.total, list(page.images)) == (len(found), found[offset : offset + limit])


def test_small_pictures_are_the_images(folder: Path) -> None:
    asked = client_of(folder)
    for image in listed(asked, limit=200)["images"]:
        answer = asked.get(f"/api/gallery/{image['id']}/thumbnail")
        if image["name"] in ("broken.jpg", "text.png"):
            assert answer.status_code == 422
            assert f"'{image['name']}'" in answer.json()["error"]["received"]
            assert str(folder) not in answer.text
            continue
        assert answer.headers["content-type"] == "image/jpeg"
        small = np.asarray(Image.open(io.BytesIO(answer.content)).convert("RGB")).astype(float)
        name = image["name"] if "�" not in image["name"] and "?" not in image["name"] else "yellow_bus.jpg"
        whole = shrink(load_image(folder / name).rgb, max(small.shape)).astype(float)
        assert max(small.shape) <= gallery.SIDE
        assert small.shape == whole.shape
        assert np.abs(small - whole).mean() < 6, name
    assert asked.get("/api/gallery/unknown/thumbnail").status_code == 404


def test_an_image_of_the_list_is_opened_and_a_bad_one_says_why(folder: Path) -> None:
    asked = client_of(folder)
    ids = {image["name"]: image["id"] for image in listed(asked, limit=200)["images"]}
    header, _ = message(asked.get(f"/api/images/{ids['yellow_bus.jpg']}"))
    assert (header["name"], header["note"]) == ("yellow_bus.jpg", "")
    answer = asked.get(f"/api/images/{ids['text.png']}")
    assert answer.status_code == 422
    assert answer.json()["error"]["received"].startswith("'text.png' is not an image")
    assert "/" not in answer.json()["error"]["fix"]


def test_the_first_page_looks_again(folder: Path) -> None:
    asked = client_of(folder)
    before = {image["name"]: image["id"] for image in listed(asked, limit=200)["images"]}
    (folder / "cake_and_coffee.jpg").unlink()
    shutil.copy(PHOTOS / "yellow_bus.jpg", folder / "new.jpg")
    after = {image["name"]: image["id"] for image in listed(asked, limit=200)["images"]}
    assert set(after) == set(before) - {"cake_and_coffee.jpg"} | {"new.jpg"}
    assert all(after[name] == before[name] for name in set(after) & set(before))
    assert asked.get(f"/api/images/{before['cake_and_coffee.jpg']}").status_code == 404
    (folder / "new.jpg").unlink()
    answer = asked.get(f"/api/images/{after['new.jpg']}")
    assert answer.status_code == 404
    assert str(folder) not in answer.text
    shutil.rmtree(folder)
    assert listed(asked)["total"] == 0


def test_questions_for_a_page_that_are_none(folder: Path) -> None:
    asked = client_of(folder)
    for query in ("offset=-1", "offset=x", "limit=201", "limit=1e3", "offset=٣", f"part={'x' * 201}"):
        check_refusal(asked.get(f"/api/gallery?{query}"))


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ImageNotFoundError, match="no images in the folder"):
        open_folder(tmp_path)


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "photos.fov"
    shutil.copytree(PHOTOS, path.parent / "photos")
    Store(path).add(path.parent / "photos")
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A store, beside the photographs that it was made of."""
    shutil.copytree(made.parent, tmp_path / "here")
    return tmp_path / "here" / "photos.fov"


def search(asked: TestClient, query: str, **how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return message(asked.post("/api/search", json={"query": query, **how}))


def test_the_list_of_a_store_is_its_keys(made: Path) -> None:
    asked, store = client_of(made), Store(made)
    every = listed(asked, limit=200)
    assert [image["name"] for image in every["images"]] == store.keys()
    assert [image["id"] for image in every["images"]] == [id_of(store, name) for name in store]
    assert [image["name"] for image in listed(asked, part="CAKE")["images"]] == ["cake_and_coffee.jpg"]
    assert listed(asked, part="%")["total"] == 0
    small = asked.get(f"/api/gallery/{every['images'][0]['id']}/thumbnail")
    assert small.content == store[store.keys()[0]].thumbnail
    assert max(Image.open(io.BytesIO(small.content)).size) == 128


@pytest.mark.filterwarnings("ignore::foveate.core.errors.ReadingWarning")
def test_a_search_is_that_of_the_store_with_its_maps(made: Path) -> None:
    asked, store = client_of(made), Store(made)
    for query in ("a bus", "broccoli and a child", "a zorkmid on a cake"):
        header, arrays = search(asked, query)
        hits = store.search(query, 48)
        assert [(hit["name"], hit["score"], hit["detected"]) for hit in header["hits"]] == [
            (hit.name, hit.score, hit.detected) for hit in hits
        ]
        maps = dict(store.score_all(query))
        for place, hit in enumerate(hits):
            np.testing.assert_array_equal(hit.map, maps[hit.name])
            np.testing.assert_array_equal(arrays[f"map:{place}"], np.rint(255 * np.clip(maps[hit.name], 0, 1)))
        assert header["unknown"] == list(hits[0].unknown)
        assert header["looked_for"] == hits[0].looked_for
    assert search(asked, "a zorkmid")[0]["unknown"] == ["zorkmid"]
    assert search(asked, "a police car")[0]["looked_for"] == {"police car": "car"}
    assert len(search(asked, "a bus", count=1)[0]["hits"]) == 1
    assert "--read" in search(asked, 'a sign "STOP"')[0]["note"]


def test_searches_that_are_none(made: Path) -> None:
    asked = client_of(made)
    for body in ("", "[]", "{}", '{"query": 3}', '{"query": ""}', '{"query": "x", "count": 0}'):
        check_refusal(asked.post("/api/search", content=body))


def test_without_its_file_the_kept_picture_is_shown_and_said(tmp_path: Path) -> None:
    photo = shutil.copy(PHOTOS / "cake_and_coffee.jpg", tmp_path)
    Store(tmp_path / "photos.fov").add(photo)
    Path(photo).unlink()
    asked = client_of(tmp_path / "photos.fov")
    key = listed(asked)["images"][0]["id"]
    header, _ = message(asked.get(f"/api/images/{key}"))
    assert "not there any more" in header["note"]
    pixels = Image.open(io.BytesIO(asked.get(f"/api/images/{key}/pixels").content))
    assert pixels.size == (header["width"], header["height"])
    assert search(asked, "cake")[0]["hits"][0]["detected"]


def test_only_ids_of_the_list_are_taken(made: Path) -> None:
    asked = client_of(made)
    photo = made.parent / "photos" / "yellow_bus.jpg"
    for other in (str(photo), "yellow_bus.jpg", "photos/yellow_bus.jpg", "0" * 64, "../../etc/passwd", "\0"):
        for route in (f"/api/images/{other}", f"/api/gallery/{other}/thumbnail"):
            assert asked.get(route.replace("\0", "%00").replace("..", "%2e%2e")).status_code in (404, 422), route
        answer = asked.post("/api/score", json={"image": other, "query": "a bus"})
        assert answer.status_code == 404
        assert answer.json()["error"]["received"].startswith("no image")


def test_damage_is_said_without_a_path(store: Path) -> None:
    key = listed(client_of(store))["images"][0]["id"]
    shutil.rmtree(store / "data")
    asked = client_of(store)
    answers = [asked.get(f"/api/images/{key}"), asked.get(f"/api/gallery/{key}/thumbnail")]
    for manifest in (store / "_versions").iterdir():
        manifest.write_bytes(b"none")
    answers += [asked.get("/api/gallery"), asked.post("/api/search", json={"query": "a bus"})]
    for answer in answers:
        assert answer.status_code == 422
        assert "photos.fov" in answer.text
        assert str(store.parent) not in answer.text


def test_pages_and_conditions_are_those_of_the_store(made: Path) -> None:
    asked, wide = client_of(made), "width > height"
    hits = search(asked, "a bus")[0]["hits"]
    pages = [search(asked, "a bus", count=1, offset=place)[0]["hits"] for place in range(4)]
    assert pages == [*([hit] for hit in hits), []]
    found = search(asked, "a bus", where=wide)[0]
    assert [hit["name"] for hit in found["hits"]] == [hit.name for hit in Store(made).search("a bus", where=wide)]
    assert found["of"] == listed(asked, where=wide)["total"] == len(found["hits"]) == 2
    for where in ("widht > 3", "1; DROP TABLE t", "x" * 1001):
        check_refusal(asked.get("/api/gallery", params={"where": where}))
        check_refusal(asked.post("/api/search", json={"query": "a bus", "where": where}))


def test_images_like_one_of_the_store(made: Path) -> None:
    asked, store = client_of(made), Store(made)
    for name in store:
        header, maps = message(asked.post(f"/api/gallery/{id_of(store, name)}/like", json={"count": 2}))
        hits = store.search(store[name], 2)
        assert [(hit["name"], hit["score"]) for hit in header["hits"]] == [(hit.name, hit.score) for hit in hits]
        assert (header["like"], header["of"], header["hits"][0]["name"]) == (name, 3, name)
        for place, hit in enumerate(hits):
            np.testing.assert_array_equal(maps[f"map:{place}"], np.rint(255 * hit.map))
            np.testing.assert_array_equal(hit.map, hit.relevance.map)
            assert hit.relevance.confidence == pytest.approx(hit.score)
            assert not hit.unknown + hit.words
    check_refusal(asked.post(f"/api/gallery/{'0' * 64}/like", json={}), 404)


def test_the_store_says_its_pages(made: Path) -> None:
    store = Store(made)
    page = store.page(1, 1)
    (image,) = page.images
    assert (page.total, image.name, image.id) == (3, store.keys()[1], id_of(store, store.keys()[1]))
    assert (image.height, image.width) == (store[image.id].grid.height, store[image.id].grid.width)
    assert Path(image.path) == made.parent / "photos" / image.name
    assert store.page(3).images == ()
    with pytest.raises(foveate.FoveateError):
        store.page(-1)
    with pytest.raises(StoreKeyError):
        id_of(store, "none")


def test_a_folder_that_is_a_store_is_opened_as_one(store: Path, tmp_path: Path) -> None:
    assert open_target(store).session["kind"] == "store"
    other = tmp_path / "other.fov"
    other.mkdir()
    (other / "format.json").write_text("{}")
    with pytest.raises(StoreVersionError, match="foveate store upgrade"):
        open_target(other)
