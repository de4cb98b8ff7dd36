"""Question -> relevance -> kept cells.

* `query`: a question becomes noun phrases, and those become text vectors.
* `score`: text vectors become a calibrated map over a texture's cells, with a confidence.
* `allocate`: a map and a budget become exactly K cells. `policies` says which, `whole` makes windows of them, `budget`
  takes K from the map.
* `regions`: a map and a total become crops of 64 to 400 tokens each. `sizes` and `shares` do its sums.

All of them are pure functions over immutable values. None of them encodes an image.
"""
