"""Question -> relevance -> kept cells.

* `query`: a question becomes noun phrases, and those become text vectors.
* `score`: text vectors become a calibrated map over a texture's cells, with a confidence.
* `allocate`: a map and a budget become exactly K cells.

All three are pure functions over immutable values. None of them encodes an image.
"""
