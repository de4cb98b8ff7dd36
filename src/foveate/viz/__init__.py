"""Pictures as values: what a question found, what was kept, what a texture holds. Begin with `draw_question`.

    pictures.py    photographs with heat and kept cells; pages of them for a question, a model's answer, a large image,
                   a texture's channels, a search
    values.py      what `value.show()` draws
    homunculus.py  the image redrawn with area in proportion to tokens
    overlay.py     a frame of a clip, with what has happened so far
    basis_page.py  what the check of a basis found, as a page of HTML

Functions return arrays [H, W, 3] or Pillow images; the commands write them.
"""

from foveate.viz.homunculus import REST, Homunculus, draw_homunculus, redraw
from foveate.viz.pictures import (
    PICTURES,
    colour_heat,
    describe_range,
    draw_answer,
    draw_boxes,
    draw_channels,
    draw_heat,
    draw_hits,
    draw_kept,
    draw_question,
    draw_regions,
    draw_scene,
)
from foveate.viz.values import picture_of

__all__ = [
    "PICTURES",
    "REST",
    "Homunculus",
    "colour_heat",
    "describe_range",
    "draw_answer",
    "draw_boxes",
    "draw_channels",
    "draw_heat",
    "draw_hits",
    "draw_homunculus",
    "draw_kept",
    "draw_question",
    "draw_regions",
    "draw_scene",
    "picture_of",
    "redraw",
]
