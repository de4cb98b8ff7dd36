"""The file of approximate nearest neighbours: one, so that it is replaced as a whole.

    vectors.faiss     FAISS's index | key of each image, 32 bytes | facts, JSON | their length and CRC-32 | "FOVNEAR1"

FAISS reads the first part and does not mind the rest. An image's number there is its place among the keys: keys stay
what they are when shards are rewritten and the index is made again, rows do not.

What is notable
* It is a cache of the shards: whoever loses it loses nothing but time.
* Opening compares the CRC-32 of the facts, the keys and FAISS's head (centres and lengths, by which it finds its way in
  the rest). The vectors are compared by `verify` only: they are not read when the file is opened. A wrong bit there can
  hide an image, not invent one: what is found is scored from the shards.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import StoreDamagedError
from foveate.store.approximate import Lists
from foveate.store.disk import Disk

NEAREST_FILE = "vectors.faiss"
FORMAT, VERSION, MAGIC = "foveate-nearest", 1, b"FOVNEAR1"
FOOTER = struct.Struct("<QI8s")
KEY = 32  # bytes
PIECE = 2**22
Keys = NDArray[np.uint8]


@dataclass(frozen=True)
class Facts:
    """What the file says of itself.

    Attributes:
        faiss: version that wrote it. space: hash of the space the vectors are in.
        images, vectors: how many. lists: of FAISS. probes: lists asked of a question.
        wanted, recall: the share of the exact scan's best images that was asked for, and that `probes` lists gave.
        whole: files of the shards all of whose images are covered.
        length, head: bytes of FAISS's part, and of what comes before the vectors. checks: CRC-32 of the part, of the
            head, of the keys.
    """

    faiss: str
    space: str
    images: int
    vectors: int
    lists: int
    probes: int
    wanted: float
    recall: float
    whole: tuple[str, ...]
    length: int = 0
    head: int = 0
    checks: tuple[int, int, int] = (0, 0, 0)


def write(disk: Disk, path: Path, lists: Lists, keys: Keys, facts: Facts) -> Facts:
    """Publish the file. `keys`: uint8 [images, 32]. -> the facts with lengths and checks. Raises OutputError."""
    length = check = 0
    first = bytearray()
    room = 4 * lists.lists * (lists.width + 8) + 2**20  # centres, lengths, and what else a head may hold
    with disk.publishing(path) as out:

        def take(part: bytes) -> None:
            nonlocal length, check
            out(part)
            length += len(part)
            check = zlib.crc32(part, check)
            if len(first) < room:
                first.extend(part[: room - len(first)])

        head = lists.write(take)
        if not 0 < head <= len(first):
            raise AssertionError(f"a head of {head} bytes in {length}")
        flat = np.ascontiguousarray(keys).tobytes()
        out(flat)
        checks = (check, zlib.crc32(memoryview(first)[:head]), zlib.crc32(flat))
        done = Facts(**{**asdict(facts), "length": length, "head": head, "checks": checks})
        said = json.dumps({"format": FORMAT, "version": VERSION, **asdict(done)}).encode()
        out(said + FOOTER.pack(len(said), zlib.crc32(said), MAGIC))
    return done


def read_facts(path: Path) -> Facts:
    """What a file says of itself. Raises StoreDamagedError; FileNotFoundError where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - FOOTER.size))
            length, check, magic = FOOTER.unpack(file.read(FOOTER.size))
            if magic != MAGIC or length > size - FOOTER.size:
                raise ValueError("its end is not that of such a file")
            file.seek(size - FOOTER.size - length)
            content = file.read(length)
        if zlib.crc32(content) != check:
            raise ValueError("its facts differ in their CRC-32")
        said = json.loads(content)
        if said.pop("format") != FORMAT or said.pop("version") != VERSION:
            raise ValueError("its format is another one")
        facts = Facts(**{**said, "whole": tuple(said["whole"]), "checks": tuple(said["checks"])})
        if facts.length + KEY * facts.images + length + FOOTER.size != size:
            raise ValueError(f"{size} bytes do not hold {facts.images} images")
        return facts
    except FileNotFoundError:
        raise
    except Exception as cause:  # a hostile file fails in many ways
        raise damaged(path, cause) from cause


def read_keys(path: Path, facts: Facts) -> Keys:
    """The keys, mapped: uint8 [images, 32]. The heads of file and keys are compared. Raises StoreDamagedError."""
    try:
        with path.open("rb") as file:
            if zlib.crc32(file.read(facts.head)) != facts.checks[1]:
                raise ValueError("its head differs in its CRC-32")
        keys: Keys = np.memmap(path, np.uint8, "r", facts.length, (facts.images, KEY))
        if zlib.crc32(keys.data) != facts.checks[2]:
            raise ValueError("its keys differ in their CRC-32")
        return keys
    except (OSError, ValueError) as cause:
        raise damaged(path, cause) from cause


def flaw(path: Path, facts: Facts) -> str:
    """Compare all of FAISS's part with its checksum: what is wrong, or ""."""
    check, left = 0, facts.length
    try:
        read_keys(path, facts)
        with path.open("rb") as file:
            while left > 0 and (part := file.read(min(PIECE, left))):
                check, left = zlib.crc32(part, check), left - len(part)
    except (OSError, StoreDamagedError) as cause:
        return str(getattr(cause, "received", cause))
    return "" if check == facts.checks[0] and not left else "its vectors differ in their CRC-32"


def damaged(path: Path, what: object) -> StoreDamagedError:
    """The error for a file that is not what was written."""
    return StoreDamagedError(
        f"the file '{path}' is damaged ({what})",
        expected="the bytes that were written",
        fix="foveate store approximate STORE makes it again, store verify --repair removes it; nothing is lost",
    )
