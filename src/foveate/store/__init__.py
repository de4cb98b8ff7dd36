"""The store: textures of thousands to millions of images in a folder, safe from crashes, quick to read and to search.

    photos.fov/format.json          what it is made of                                     identity.py
    photos.fov/basis.safetensors    the shared basis                                       shared_basis.py
    photos.fov/shards/*.safetensors images, a few hundred a file, never changed            shard.py, record.py
    photos.fov/index.sqlite         where they are; made again from the shards if lost     index.py
    photos.fov/vectors.faiss        approximate nearest neighbours, if asked for           ann.py

`Store` (store.py) is all that a person needs. Below it: opening.py mends and opens, adding.py and work.py encode,
reader.py and texture.py read, asking.py, search.py and vectors.py search, ann.py does so by FAISS, cache.py keeps
textures in memory, upkeep.py verifies and compacts, disk.py and lock.py write. docs/store.md is the
specification, with what was measured.
"""

from foveate.store.ann import AnnReport as AnnReport
from foveate.store.cache import CacheStatistics as CacheStatistics
from foveate.store.cache import TextureCache as TextureCache
from foveate.store.ingest import Added as Added
from foveate.store.ingest import Progress as Progress
from foveate.store.search import Hit as Hit
from foveate.store.store import Store as Store
