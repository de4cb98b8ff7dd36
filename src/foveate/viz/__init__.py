"""Pictures as values: what a question found, what was kept, what a texture holds. Begin with `heatmap`.

    pictures.py    one image: heatmap, kept, homunculus; compare: several questions side by side
    pages.py       pages of results: a question with its cells, a model's answer, a large image, a search
    values.py      picture_of: how each value shows itself
    planes.py      channel_sheet: all channels of a texture
    charts.py      curve: what is kept over budgets, from a report; the page of a check of a basis
    layers.py      heat, kept cells and frames over a photograph, as arrays
    cartogram.py   how an image is redrawn with area in proportion to tokens
    paper.py       blocks of text and pictures that never cover each other; fonts
    colours.py     the scale of heat, colours of questions
    bridges.py     values for supervision, FiftyOne, Rerun
    overlay.py     a frame of a clip, with what has happened so far

Functions return Pillow images; the commands write them.
"""

from foveate.viz.bridges import to_fiftyone, to_rerun, to_supervision
from foveate.viz.cartogram import REST, Homunculus, redraw
from foveate.viz.charts import curve
from foveate.viz.pages import PICTURES, answer_page, look_page, overview, question_page, search_sheet
from foveate.viz.pictures import compare, heatmap, homunculus, kept
from foveate.viz.planes import channel_sheet, describe_range
from foveate.viz.values import picture_of

__all__ = [
    "PICTURES",
    "REST",
    "Homunculus",
    "answer_page",
    "channel_sheet",
    "compare",
    "curve",
    "describe_range",
    "heatmap",
    "homunculus",
    "kept",
    "look_page",
    "overview",
    "picture_of",
    "question_page",
    "redraw",
    "search_sheet",
    "to_fiftyone",
    "to_rerun",
    "to_supervision",
]
