"""A question -> Query: its noun phrases, what they are made of, and their text vectors. Looks at no image.

    query = prepare(encoder, "where is the red car?")

* query: a question becomes noun phrases (together, or left out), and those become text vectors.
* phrase: what a phrase is made of: the thing, what it is like, where it belongs; choice: which of several it is.
* cues: words that name a channel ("red", "written"); negatives: nouns that a question competes with.
* dialogue: which questions go back to what was asked before; spelling: words that are alike.
* words/: the lists that all of these go by, to be edited; lists: how they are read.
"""

from foveate.language.query import Query, channel_weights, noun_phrases, prepare

__all__ = ["Query", "channel_weights", "noun_phrases", "prepare"]
