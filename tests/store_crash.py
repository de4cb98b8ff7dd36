"""Processes that index into one store at once, or are killed at any moment.

    python tests/store_crash.py kill --times 40 --seed 0        some minutes; of two processes: --processes 2
    python tests/store_crash.py race --times 20 --processes 4   all begin at once where no store is

After each kill: nothing is lost that was reported as committed, little else is, all that is there is whole, nothing is
there twice. In the end the same call has done the rest, and the store is that of one process that nobody disturbed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from foveate import Store
from foveate.encoders.protocol import DenseFeatures
from foveate.store import ingest
from foveate.store.ingest import Progress
from foveate.store.texture import StoredTexture
from tests.store_toys import Toy, mine, pictures, quick_folder


@dataclass(frozen=True)
class Slow(Toy):
    seconds: float = 0.0

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        time.sleep(self.seconds)
        return super().encode_image(rgb, long_side=long_side)


@dataclass(frozen=True)
class Pace:
    """How a child works: seconds an image and a commit, commits until fragments are joined, whether it reads."""

    image: float = 0.02
    commit: float = 0.1
    small: int = 5
    read: bool = False


def index(folder: Path, path: Path, pace: Pace) -> None:
    """The life of a child: each line is the time, images that are done and new, and of these the committed ones."""
    ingest.COMMIT_SECONDS, ingest.SMALL = pace.commit, pace.small

    def report(progress: Progress) -> None:
        print(time.time(), progress.added, progress.committed, flush=True)

    Store(path, encoder=Slow(seconds=pace.image)).add(folder, progress=report, read=mine if pace.read else None)


def started(folder: Path, path: Path, pace: Pace) -> subprocess.Popen[str]:
    arguments = [sys.executable, __file__, "index", "--folder", folder, "--store", path, "--image", pace.image]
    arguments += ["--commit", pace.commit, "--small", pace.small, *(["--read"] if pace.read else [])]
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'src'}"}
    command = [str(argument) for argument in arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=root
    )


def finished(child: subprocess.Popen[str], codes: tuple[int, ...] = (0,)) -> list[tuple[float, int, int]]:
    """Its reports. Raises AssertionError where it ended otherwise."""
    out, errors = child.communicate()
    assert child.returncode in codes, (child.returncode, errors)
    lines = [line.split() for line in out.split("\n")[:-1]]  # the last one may be cut
    return [(float(moment), int(added), int(committed)) for moment, added, committed in lines]


def numbers_of(texture: StoredTexture) -> str:
    parts = (texture.embedding, texture.residual, texture.basis.rows, texture.basis.mean, texture.planes["saliency"])
    written = b"" if texture.words is None else texture.words.text.encode()
    return hashlib.sha256(b"".join(part.tobytes() for part in parts) + written).hexdigest()


def contents(path: Path) -> dict[str, str]:
    """Each image's numbers by its id; nothing may be there twice, and every byte must be as it was written."""
    store = Store(path, encoder=Toy(), cache=0)
    if store.identity is None:
        return {}
    images = store.page(0, 10**6).images
    ids = {image.id for image in images}
    assert len(images) == len(ids) == len(store), "an image is there twice"
    verified = store.verify()
    assert verified.ok, verified.damaged
    assert len(store.search("a dog", 5)) == min(5, len(ids))
    return {image.id: numbers_of(store[image.path]) for image in images}


def kill(base: Path, times: int, seed: int, images: int, pace: Pace, processes: int = 1) -> str:
    """SIGKILL at random moments. -> what came of it."""
    rng = random.Random(seed)
    folder, path = pictures(base / "photos", images), base / "killed.fov"
    Store(base / "right.fov", encoder=Toy()).add(folder, read=mine if pace.read else None)
    right, lost, late, complete, before = contents(base / "right.fov"), 0, 0.0, 0, 0
    for _ in range(times):
        children = [started(folder, path, pace) for _ in range(processes)]
        first = children[0].stdout
        assert first is not None
        first.readline()  # imports take a second, and longer where others are at work
        time.sleep(rng.random() * (pace.image * images / processes + 5 * pace.commit))
        for child in children:
            child.kill()
        reports = [finished(child, (0, -signal.SIGKILL)) for child in children]
        found = contents(path)
        assert found.items() <= right.items()
        committed = max((lines[-1][2] for lines in reports if lines), default=0)  # others may have committed the same
        assert len(found) >= before + committed * (processes == 1), (before, committed)
        assert len(found) >= committed
        if processes == 1 and reports[0]:
            over = [moment for moment, added, _ in reports[0] if before + added > len(found)]
            lost = max(lost, len(over))
            late = max(late, reports[0][-1][0] - over[0] if over else 0.0)
        before = len(found)
        if found == right:
            complete += 1
            shutil.rmtree(path)
            before = 0
    finished(started(folder, path, pace))
    assert contents(path) == right
    return (
        f"{times} kills of {processes} processes: all committed images there, none unreadable, none twice; "
        f"{complete} times the job was done; at most {lost} images lost, of {late:.1f} seconds"
    )


def race(base: Path, times: int, processes: int, images: int, pace: Pace) -> str:
    """Processes that begin at once where no store is. -> what came of it."""
    folder = pictures(base / "photos", images)
    Store(base / "right.fov", encoder=Toy()).add(folder, read=mine if pace.read else None)
    right, seconds = contents(base / "right.fov"), 0.0
    for number in range(times):
        path = base / f"{number}.fov"
        begun = time.time()
        children = [started(folder, path, pace) for _ in range(processes)]
        reports = [finished(child) for child in children]
        seconds += max(lines[-1][0] for lines in reports) - begun
        assert contents(path) == right
        store = Store(path, encoder=Toy())
        assert all(one.images <= images for one in store.versions())
        assert store.add(folder, read=mine if pace.read else None).known == images
        shutil.rmtree(path)
    return f"{times} times {processes} processes at once: all rows, none twice; {seconds / times:.1f} seconds each"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("kill", "race", "index"))
    for name, value in (("times", 40), ("seed", 0), ("images", 60), ("processes", 1), ("small", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, second in (("image", 0.02), ("commit", 0.1)):
        parser.add_argument(f"--{name}", type=float, default=second)
    parser.add_argument("--read", action="store_true")
    for name in ("folder", "store"):
        parser.add_argument(f"--{name}", type=Path)
    given = parser.parse_args()
    how = Pace(given.image, given.commit, given.small, given.read)
    if given.what == "index":
        index(given.folder, given.store, how)
        sys.exit()
    with quick_folder(Path(tempfile.gettempdir())) as place:
        if given.what == "kill":
            print(kill(place, given.times, given.seed, given.images, how, given.processes))
        else:
            print(race(place, given.times, given.processes, given.images, how))
