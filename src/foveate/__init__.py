"""foveate: encode an image once, ask it anything, spend the visual tokens where the question looks.

    import foveate
    texture = foveate.encode("photo.jpg")                        # once per image: the slow part, returns a value
    relevance = foveate.score(texture, "where is the red car?")  # per question: about a hundred microseconds
    kept = foveate.allocate(relevance, budget=273)               # exactly 273 cells

    relevance.map, .confidence, .detected, .boxes(), .answer     # where, how sure, what is written there
    kept.indices, .mask, .why(0); relevance.show(), kept.show()  # which cells, and why; pictures

Beside these: teach (a word of yours), Store (search in many images), load_encoder, load_image; foveate.vlm (models get
only these cells), .video (clips), .tiles (large images), .viz (pictures). What goes wrong is a FoveateError.
In a shell: foveate --help. More: docs/get_started.md, docs/python.md. Names are resolved when they are first used.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from foveate.core.version import __version__ as __version__

_WHERE = {
    "encode": "pipeline",
    "score": "pipeline",
    "allocate": "pipeline",
    "teach": "pipeline",
    "load_encoder": "encoders",
    "load_image": "core.image",
    "TaughtWords": "encoders.taught",
    "Texture": "texture",
    "Relevance": "relevance.value",
    "Relevances": "relevance.value",
    "Allocation": "allocation.allocation",
    "Grid": "core.grid",
    "Store": "store",
    "FoveateError": "core.errors",
}
_ELSEWHERE = {  # what people look for here, and where it is
    "ask": "foveate.vlm.load(name).ask",
    "attach": "foveate.vlm.attach",
    "boxes": "relevance.boxes",
    "load": "foveate.vlm.load",
    "look": "foveate.tiles.look",
    "read": "foveate.encode(image, read=True)",
    "refine": "foveate.tiles.refine",
    "search": "foveate.Store(folder).search",
    "stack": "foveate.texture.stack",
    "stream": "foveate.video.stream",
    "survey": "foveate.tiles.survey",
}
_NAMES = sorted([*_WHERE, "__version__"])  # no __all__: help(foveate) would print every class of it, 1,300 lines

if TYPE_CHECKING:
    from foveate.allocation.allocation import Allocation as Allocation
    from foveate.core.errors import FoveateError as FoveateError
    from foveate.core.grid import Grid as Grid
    from foveate.core.image import load_image as load_image
    from foveate.encoders.load import load_encoder as load_encoder
    from foveate.encoders.taught import TaughtWords as TaughtWords
    from foveate.pipeline import allocate as allocate
    from foveate.pipeline import encode as encode
    from foveate.pipeline import score as score
    from foveate.pipeline import teach as teach
    from foveate.relevance.value import Relevance as Relevance
    from foveate.relevance.value import Relevances as Relevances
    from foveate.store import Store as Store
    from foveate.texture.texture import Texture as Texture


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        if find_spec(f"foveate.{name}") is not None:  # a room, imported when it is first used
            return importlib.import_module(f"foveate.{name}")
        fix = f"use {_ELSEWHERE[name]}" if name in _ELSEWHERE else f"it has {', '.join(_NAMES)}"
        raise AttributeError(f"module 'foveate' has no attribute {name!r}; {fix}")
    found = getattr(importlib.import_module(f"foveate.{_WHERE[name]}"), name)
    globals()[name] = found  # Python asks here only once
    return found


def __dir__() -> list[str]:
    return list(_NAMES)
