"""The store: textures of thousands to millions of images as a Lance dataset, quick to read and to search.

`Store` (store.py) is all that a person needs; begin there. docs/format.md says what a dataset holds.

    schema.py       the columns, and what all images share      dataset.py  Lance, and its errors as ours
    record.py       features <-> a record's bytes               texture.py  the texture that a record gives
    reader.py       one version: rows -> textures, vectors      words.py    what is written, as bytes and text
    sources.py      folders and lists -> image files            ingest.py   adding images
    work.py         a file -> a row                             engine.py   threads or Ray that work
    hits.py         short lists, exact scores                   writing.py  search by what is written
    example.py      search by an image or a part of one         upkeep.py   list, tags, versions, verify, export
    upgrade.py      stores of earlier releases
    shared_basis.py fit a basis that images share               basis_check.py   is it good?
"""

from foveate.store.hits import Hit as Hit
from foveate.store.ingest import Added as Added
from foveate.store.ingest import Progress as Progress
from foveate.store.store import Store as Store
from foveate.store.upkeep import ListedImage as ListedImage
from foveate.store.upkeep import ListedPage as ListedPage
from foveate.store.upkeep import Verified as Verified
from foveate.store.upkeep import Version as Version
from foveate.store.work import EncodeBatch as EncodeBatch
from foveate.texture.cache import CacheStatistics as CacheStatistics
from foveate.texture.cache import TextureCache as TextureCache
