"""Stores of earlier releases, which those releases wrote: toys in format 1, 3 and 4, and photographs in format 4."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import foveate
from foveate import Store
from foveate.core.errors import OutputError, StoreDamagedError, StoreNotFoundError
from foveate.store import dataset as dataset_module
from foveate.store import upgrade as module
from foveate.store.upgrade import Upgraded, copy_store
from tests.store_toys import Planes, Toy

HERE = Path(__file__).parent
TOYS = {"store-v1.fov": Toy(), "store-v3.fov": Planes(), "store-v4.fov": Planes()}
PHOTOS = HERE / "data" / "old_store"


@pytest.mark.parametrize("golden", TOYS)
def test_toys_of_each_format_give_what_they_gave(golden: str, quick: Path) -> None:
    encoder, said = TOYS[golden], json.loads((HERE / "golden" / golden / "expected.json").read_text())
    progress: list[tuple[int, int]] = []
    done = copy_store(HERE / "golden" / golden / "store", quick / "new.fov", lambda *at: progress.append(at))
    assert (done, progress[-1]) == (Upgraded(len(said["names"]), ()), (len(said["names"]),) * 2)
    store = Store(quick / "new.fov", encoder=encoder)
    assert store.keys() == said["names"]
    for name, numbers in said["scores"].items():
        scores = store[name].scores(encoder.encode_text(["a dog"]))[0]
        np.testing.assert_allclose(scores[0, :4], numbers, atol=1e-6)
    assert sorted(hit.name for hit in store.search("a dog")) == sorted(said["hits"])
    assert store.verify().ok


def test_photographs_with_words_give_what_they_gave(quick: Path) -> None:
    """One was read later, one has a copy, a name and an image were removed: of six shards three images are left."""
    said = json.loads((PHOTOS / "expected.json").read_text())
    assert copy_store(PHOTOS / "store", quick / "new.fov") == Upgraded(3, ())
    store = Store(quick / "new.fov")
    assert len(store) == 3
    text = foveate.load_encoder("nano").encode_text(["cake"])
    for name, words in said["words"].items():
        texture = store[name]
        assert texture.words is not None
        assert texture.words.text == words
        np.testing.assert_allclose(texture.scores(text)[0].ravel()[::97][:6], said["cells"][name], atol=2e-6)
        for query, score in said["scores"][name].items():
            assert foveate.score(texture, query).confidence == pytest.approx(score, abs=1e-4)
    for query in ("cake", "broccoli"):
        found = [(Path(hit.name).name, hit.score) for hit in store.search(query, 3)]
        assert found[0][0] == Path(said["hits"][query][0][0]).name
        right = {Path(name).name: score for name, score in said["hits"][query]}
        assert dict(found) == pytest.approx(right, abs=1e-4)
    assert len(store.search('"cake 4"')) == 3
    assert store.verify().ok


def test_it_goes_on_where_it_was_killed(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inserts, real = list[int](), dataset_module.insert

    def failing(dataset: object, table: object) -> int:
        inserts.append(1)
        if len(inserts) == 2:
            raise KeyboardInterrupt
        return real(dataset, table)

    monkeypatch.setattr(module, "COMMIT_IMAGES", 1)
    monkeypatch.setattr(module, "insert", failing)
    with pytest.raises(KeyboardInterrupt):
        copy_store(PHOTOS / "store", quick / "new.fov")
    assert not (quick / "new.fov").exists()  # a part is no store
    assert copy_store(PHOTOS / "store", quick / "new.fov").images == 3
    assert len(inserts) == 2 + 2
    assert Store(quick / "new.fov").verify().ok
    with pytest.raises(OutputError, match="is there already"):
        copy_store(PHOTOS / "store", quick / "new.fov")
    with pytest.raises(StoreNotFoundError):
        copy_store(quick / "new.fov", quick / "newer.fov")


@pytest.mark.parametrize("damage", ["record", "vectors", "cut", "head", "all"])
def test_damage_is_listed_and_left_out(quick: Path, damage: str) -> None:
    old = Path(shutil.copytree(PHOTOS / "store", quick / "old.fov"))
    files = sorted((old / "shards").iterdir())
    for file in files if damage == "all" else files[1:2]:
        content = bytearray(file.read_bytes())
        if damage == "cut":
            del content[len(content) // 2 :]
        else:
            content[{"record": len(content) // 2, "vectors": len(content) - 9}.get(damage, 20)] ^= 8
        file.write_bytes(content)
    if damage == "all":
        with pytest.raises(StoreDamagedError, match="no shard can be read"):
            copy_store(old, quick / "new.fov")
        return
    done = copy_store(old, quick / "new.fov")
    assert len(done.damaged) == 1
    store = Store(quick / "new.fov")
    assert len(store) == done.images == len(store.search("cake", 9))
    assert 2 <= done.images <= 3
    assert store.verify().ok
