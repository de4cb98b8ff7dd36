"""A vocabulary of cells: can an id out of a codebook that all images share stand for a cell?

    python -m training.vocabulary --data DATA --cache CACHE

K-means of 256 to 16,384 entries over nano's features in the metric of questions, residual and product quantisation,
blocks of cells, and no codebook at all, against the 24 numbers of an image's own basis: bytes, what is left of
relevance, search by an inverted index, and what photographs share. Some ten minutes of one core.

* `cells.py` gathers the cells of the learning photographs once. `codebooks.py` is the k-means, `fitting.py` what is
  fitted. `kept.py` has the ways to keep a texture, `index.py` the search, `sharing.py` the purity by labels.
* Textures as `encode` makes them (rank 24) count as exact, and codebooks are fitted to the features that they give.
"""
