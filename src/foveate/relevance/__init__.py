"""Query x Texture -> Relevance: where a question looks in an image, and how sure it is. None of it encodes an image.

    relevance = foveate.score(texture, "the red car")        # where it looks: map, confidence, reasons

* value: Relevance and Relevances, what a question found; boxes around the parts of a map; confidence: how sure it is.
* scoring: text vectors become a calibrated map; composition: a phrase's map from those of the things in it.
* steps: segments, cues (evidence), read words (written), weights, a prior and a fusion, in this order.
* options: the keywords of `foveate.score`; presets: names for keywords of encode and score together.
* passes: maps kept as planes for later questions.
"""

from foveate.core.gone import gone_from
from foveate.relevance.boxes import Overlap, cells_of, overlap
from foveate.relevance.fusion import Fusion, Linear, Participation, ScorerWeights, Tensions
from foveate.relevance.options import ScoringOptions
from foveate.relevance.passes import add_dialogue, add_map, add_phrases, add_word_maps
from foveate.relevance.value import Relevance, Relevances

__all__ = [
    "Fusion", "Linear", "Overlap", "Participation", "Relevance", "Relevances", "ScorerWeights", "ScoringOptions",
    "Tensions", "add_dialogue", "add_map", "add_phrases", "add_word_maps", "cells_of", "overlap",
]  # fmt: skip
__getattr__ = gone_from("foveate.relevance")
