"""A vocabulary of cells: can an id out of a codebook that all images share stand for a cell?

    python -m training.experiments.vocabulary --data DATA --cache CACHE

K-means of 256 to 16,384 entries over nano's features in the metric of questions, residual and product quantisation,
blocks of cells, and no codebook at all, against the 24 numbers of an image's own basis: bytes, what is left of
relevance, search by an inverted index, and what photographs share. A quarter of an hour of one core.

* `cells.py` gathers the cells of the learning photographs once. `codebooks.py` is the k-means, `fitting.py` what is
  fitted. `kept.py` has the ways to keep a texture, `index.py` the search, `sharing.py` the purity by labels.
Result: an id costs 1/14 of int8's bytes (1/62 after LZMA), and .22 (dev/coco128) and .05 (dev/open) of precision: out.
More entries do not help, since what is asked for is rare. Stuff is shared by photographs, things are not. An index of
entries is no better than the store's vectors; the peaks of nano's planes, 290 bytes, are nearly the exact ranking.

* Textures as `encode` makes them (rank 24) count as exact, and codebooks are fitted to the features that they give.
"""
