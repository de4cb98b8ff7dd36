"""Pictures as values: what a question found, what was kept, what a texture holds. Begin with `draw_question`.

    pictures.py    photographs with heat and kept cells; pages of them for a question, a model's answer, a large image,
                   a texture's channels, a search
    overlay.py     a frame of a clip, with what has happened so far
    basis_page.py  what the check of a basis found, as a page of HTML

Functions return arrays [H, W, 3] or Pillow images; the commands write them.
"""

from foveate.viz.pictures import (
    colour_heat,
    draw_answer,
    draw_channels,
    draw_heat,
    draw_hits,
    draw_kept,
    draw_question,
    draw_scene,
)

__all__ = [
    "colour_heat",
    "draw_answer",
    "draw_channels",
    "draw_heat",
    "draw_hits",
    "draw_kept",
    "draw_question",
    "draw_scene",
]
