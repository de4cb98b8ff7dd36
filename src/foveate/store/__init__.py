"""The store: textures of thousands to millions of images in a folder, safe from crashes, quick to read and to search.

`Store` (store.py) is all that a person needs; begin there. docs/store.md is the specification, with what was measured.

    format.py       what the bytes mean: identity, space, record, shard; limits of what is read
    disk.py         every write, and the lock of the one writer
    index.py        SQLite; rows are checked where they are read
    sources.py      folders and lists -> image files        record.py    features -> record
    ingest.py       adding images                           engine.py    threads or Ray that work
    recovery.py     opening, mending after a crash          maintenance.py    verify, compact, merge
    reader.py       row -> texture                          texture.py   the texture that it gives
    hits.py         short lists, exact scores               ann.py       short lists by FAISS
    words.py        what is written, as bytes and text      writing.py   search by what is written
    shared_basis.py fit a basis that images share           basis_check.py   is it good?
    listing.py      a table of pandas
"""

from foveate.store.ann import AnnReport as AnnReport
from foveate.store.hits import Hit as Hit
from foveate.store.ingest import Added as Added
from foveate.store.ingest import EncodeBatch as EncodeBatch
from foveate.store.ingest import Progress as Progress
from foveate.store.listing import ListedImage as ListedImage
from foveate.store.listing import ListedPage as ListedPage
from foveate.store.store import Store as Store
from foveate.texture.cache import CacheStatistics as CacheStatistics
from foveate.texture.cache import TextureCache as TextureCache
