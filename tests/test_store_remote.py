"""A store on an object store: an S3 server of this machine. It may stop on the way; several may write to it."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from foveate import Store
from foveate.core.errors import OutputError, StoreNotFoundError
from foveate.store import ingest
from tests.store_toys import Toy, pictures

server = pytest.importorskip("moto.server")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


numbers = count()


class S3:
    """A server that can be stopped, and goes on with what it had."""

    def __init__(self) -> None:
        self.server = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        self.host, self.port = self.server.get_host_and_port()
        url = f"http://{self.host}:{self.port}"
        self.options = {
            "aws_access_key_id": "x", "aws_secret_access_key": "x", "aws_region": "us-east-1",
            "aws_endpoint": url, "allow_http": "true", "client_max_retries": "1", "retry_timeout": "2",
            "timeout": "5s", "connect_timeout": "1s",
        }  # fmt: skip
        self.bucket = f"bucket-{next(numbers)}"  # moto keeps them while the process lives
        urllib.request.urlopen(urllib.request.Request(f"{url}/{self.bucket}", method="PUT"), timeout=10).close()

    def stop(self) -> None:
        self.server.stop()

    def go_on(self) -> None:
        self.server = server.ThreadedMotoServer(ip_address=self.host, port=self.port, verbose=False)
        self.server.start()


@pytest.fixture
def s3() -> Iterator[S3]:
    made = S3()
    yield made
    made.stop()


def opened(s3: S3, **how: int) -> Store:
    return Store(f"s3://{s3.bucket}/photos.fov", encoder=Toy(), options=s3.options, **how)  # type: ignore[arg-type]


def clear(s3: S3) -> None:
    """Delete all that is in the bucket."""
    import boto3  # type: ignore[import-untyped]

    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    boto3.resource("s3", endpoint_url=s3.options["aws_endpoint"], **keys).Bucket(s3.bucket).objects.delete()


def test_the_way_through(s3: S3, quick: Path) -> None:
    folder, here = pictures(quick / "photos", 12), Store(quick / "s.fov", encoder=Toy())
    store = opened(s3)
    with pytest.raises(StoreNotFoundError):
        len(store)
    here.add(folder)
    assert store.add(folder, columns={"album": "x"}).added == 12
    assert store.keys() == here.keys()
    assert [(hit.id, hit.score) for hit in store.search("a dog", 5)] == [
        (h.id, h.score) for h in here.search("a dog", 5)
    ]
    assert store["001.png"].embedding.tobytes() == here["001.png"].embedding.tobytes()
    assert store["001.png"].original
    assert store.add(folder).known == 12
    assert store.tag(["001.png", "002.png"], ["dog"]) == 2
    assert {hit.name for hit in store.search("a cat", 9, where="tag = 'dog' and album = 'x'")} == {"001.png", "002.png"}
    other = opened(s3)
    assert other.add(pictures(quick / "more", 4, 50)).added == 4
    assert len(store) == 16
    assert store.remove("001.png") == 1
    assert (len(other), "001.png" in other) == (15, False)
    assert store.verify().ok
    store.compact(timedelta(0))
    assert (len(store.versions()) >= 1, store.stats()["images"]) == (True, 15)
    before = store.versions()[-1].number
    store.remove("002.png")
    store.restore(before)
    assert len(other) == 15
    assert other.verify().ok


def test_a_store_that_was_made_anew_is_noticed(s3: S3, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foveate.store.store.LOOK", 0)
    store = opened(s3)
    store.add(pictures(quick / "photos", 3))
    names, version, kept = store.keys(), store.dataset.version, store._reader()
    assert store._reader() is kept
    clear(s3)
    other = Store(Path(store.path), encoder=Toy(), options=s3.options)  # `Path` takes a slash of the address away
    other.add(pictures(quick / "more", 4, 50))
    assert other.dataset.version == version
    assert store.keys() == other.keys() != names


def test_two_writers_at_once(s3: S3, quick: Path) -> None:
    folder, wrong = pictures(quick / "photos", 40), list[BaseException]()

    def work() -> None:
        try:
            opened(s3).add(folder)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    store = opened(s3)
    assert (len(store), len(set(store.keys()))) == (40, 40)
    assert store.verify().ok


def test_a_connection_that_is_lost_on_the_way(s3: S3, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "COMMIT_IMAGES", 4)
    folder, store = pictures(quick / "photos", 12), opened(s3)
    stopped: list[int] = []

    def stop(progress: ingest.Progress) -> None:
        if progress.committed >= 4 and not stopped:
            stopped.append(progress.committed)
            s3.stop()

    with pytest.raises(OutputError, match="s3://bucket-"):
        store.add(folder, progress=stop)
    for ask in (lambda: len(store), store.keys, lambda: store.search("a dog"), lambda: opened(s3), store.verify):
        with pytest.raises(OutputError, match="cannot be reached"):
            ask()
    s3.go_on()
    assert len(store) == stopped[0] == 4
    assert store.add(folder).added == 8
    assert store.verify().ok
