"""Pictures as values: what a question found, what was kept, what a texture holds. Begin with `heatmap`.

Functions return Pillow images; the commands write them. pictures.py and pages.py draw (one image; pages of results),
values.py chooses how each value shows itself, planes.py draws channels, charts.py curves, overlay.py frames of a clip;
bridges.py makes values for other tools. Below them: layers.py (heat, kept cells and frames over a photograph),
cartogram.py (area in proportion to tokens), paper.py (blocks of text and pictures), colours.py.
"""

from foveate.viz.bridges import to_fiftyone, to_rerun, to_supervision
from foveate.viz.cartogram import REST, Homunculus, redraw
from foveate.viz.charts import curve
from foveate.viz.pages import PICTURES, answer_page, look_page, overview, question_page, search_sheet
from foveate.viz.pictures import compare, heatmap, homunculus, kept
from foveate.viz.planes import channel_sheet, describe_range
from foveate.viz.values import picture_of

__all__ = [
    "PICTURES", "REST", "Homunculus", "answer_page", "channel_sheet", "compare", "curve", "describe_range", "heatmap",
    "homunculus", "kept", "look_page", "overview", "picture_of", "question_page", "redraw", "search_sheet",
    "to_fiftyone", "to_rerun", "to_supervision",
]  # fmt: skip
