"""Images too large to encode whole, and second looks: which parts of an image does a question make worth encoding?

    from foveate import tiles

    scene = tiles.survey("city.tif")                       # overview and coarse windows are encoded once
    found = tiles.look(scene, "a boat")                    # encodes the parts that the question makes promising
    found = tiles.look_through(scene, "a boat")            # goes on by itself, until all was seen at half its size
    tiles.save(found.scene, "city")                        # tomorrow: tiles.load("city", "city.tif")
    texture = tiles.refine(texture, "a boat")              # an image of usual size: a part again, finer

* `scene`: a large image with what was encoded of it, and what one question found. `file`: a scene in a folder.
* `search`: which tiles are promising, and one map from all of them. `raster`: images read in parts (tiled TIFF).
* `re_encode`: encode a part of a texture's image again at a finer scale, without scenes.
"""

from foveate.tiles.file import load as load
from foveate.tiles.file import save as save
from foveate.tiles.re_encode import refine as refine
from foveate.tiles.scene import Look as Look
from foveate.tiles.scene import Scene as Scene
from foveate.tiles.search import look as look
from foveate.tiles.search import look_through as look_through
from foveate.tiles.search import survey as survey
