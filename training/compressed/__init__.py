"""Fewer bytes for the planes of a texture and for its embedding: blocks of graphics hardware, PCA, autoencoders.

    python -m training.compressed --data DATA --cache CACHE [--out FOLDER]

What: thirteen planes on the quarter grid (planes.py) as float16, bytes, BC4 blocks (blocks.py), and k numbers a sample
by PCA or by an autoencoder of 1 x 1 or 3 x 3 convolutions (learned.py). The features of a cell as numbers of its own
image's basis, of a basis that all share, and of an autoencoder whose loss is the error of scores (embedding.py).

Why: the seed documents expect much of BC6H/BC7 and of learned channels.

Result: in docs/log.md.
"""
