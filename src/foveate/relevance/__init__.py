"""Query x Texture -> Relevance: where a question looks in an image, and how sure it is. None of it encodes an image.

    relevance = foveate.score(texture, "the red car")        # where it looks: map, confidence, reasons

* value: Relevance and Relevances, what a question found; boxes: boxes around the parts of a map.
* scoring: text vectors become a calibrated map with a confidence.
* confidence: how sure a map is; from where on a thing counts as being there.
* composition: maps of the things that a phrase is made of become the map of the phrase.
* evidence: planes that the words of a question ask for (colours, motion).
* written: the words of an image that answer a question, as a plane.
* options: the keywords of `foveate.score`. steps: segments, cues, words, weights, a prior and a fusion, in this order.
* fusion: ways to combine the map with what is in the pixels and what stands out.
* presets: names for keywords of encode and score together.
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
