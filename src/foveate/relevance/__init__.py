"""Question -> relevance -> kept cells: pure functions over immutable values. None of them encodes an image.

    query = prepare(encoder, "where is the red car?")        # noun phrases and their text vectors
    relevance = foveate.score(texture, "the red car")        # where it looks: map, confidence, reasons
    kept = foveate.allocate(relevance, 273, policy=Coverage())

Begin with `value`, then `scoring` and `allocation`.

* value: Relevance and Relevances, what a question found.
* query: a question becomes noun phrases (together, or left out), and those become text vectors.
* phrase: what a phrase is made of: the thing, what it is like, where it belongs; and what a question asks for.
* language: is a question in a language that nano does not read?
* negatives: nouns that a question competes with.
* confidence: how sure a map is.
* scoring: text vectors become a calibrated map with a confidence.
* cues: words of the question that name a channel ("red", "written").
* fusion: the map beside its segments, cues, a prior, and what is in the pixels; options of `foveate.score`.
* allocation: a map and a budget become exactly K cells; "auto" takes K from the map.
* policies: which cells: TopK, Coverage, Proportional; whole numbers in proportion.
* windows: budgets made of whole windows of cells.
* crops: a map and a total become crops of 64 to 400 tokens each.
* map_boxes: boxes around the parts of a map.
* overlaps: kept cells beside boxes that are known to be right.
* reading: which of the words that were read answer a question? reading_question: what it asks of them; reading_page:
  labels, neighbours and types of a page; fields: names of one thing on pages; answer_types: what looks like a date, an
  amount, an address; spelling: words that are alike.
* passes: maps kept as planes for later questions.
* coarse_to_fine: the same cells with less scoring; slower than scoring everything, kept because it was measured.
"""

from foveate.relevance.allocation import Allocation, allocate_map
from foveate.relevance.coarse_to_fine import cascade
from foveate.relevance.crops import Regions, regions
from foveate.relevance.fusion import Fusion, Linear, Participation, ScorerWeights, Tensions
from foveate.relevance.overlaps import Overlap, cells_of, overlap
from foveate.relevance.passes import add_dialogue, add_map, add_phrases, add_word_maps
from foveate.relevance.policies import Coverage, Policy, Proportional, TopK
from foveate.relevance.query import Query, channel_weights, noun_phrases, prepare
from foveate.relevance.value import Relevance, Relevances

__all__ = [
    "Allocation", "Coverage", "Fusion", "Linear", "Overlap", "Participation", "Policy", "Proportional", "Query",
    "Regions", "Relevance", "Relevances", "ScorerWeights", "Tensions", "TopK", "add_dialogue", "add_map",
    "add_phrases", "add_word_maps", "allocate_map", "cascade", "cells_of", "channel_weights", "noun_phrases", "overlap",
    "prepare", "regions",
]  # fmt: skip
