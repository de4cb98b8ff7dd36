"""Fewer bytes for the planes of a texture and for its embedding: blocks of graphics hardware, PCA, autoencoders.

    python -m training.experiments.compressed --data DATA --cache CACHE [--out FOLDER]

What: thirteen planes on the quarter grid (planes.py) as float16, bytes, BC4 blocks (blocks.py), and k numbers a sample
by PCA or by an autoencoder of 1 x 1 or 3 x 3 convolutions (learned.py). The features of a cell as numbers of its own
image's basis, of a basis that all share, and of an autoencoder whose loss is the error of scores (embedding.py).

Why: the seed documents expect much of BC6H/BC7 and of learned channels.

Result: nothing that is learned is kept. Planes in BC4 blocks (6.5 bytes a sample of thirteen) are 8.8 dB better than
eight learned numbers (8 bytes); 16 learned numbers of the embedding answer worse than 4 of the image's own basis in a
third of the bytes (dev/coco128), and as 8 of them in 1.6 times the bytes (dev/open). Table: docs/log.md.
"""
