"""Learned saliency: where would anyone look, whatever is asked?

    python -m training.saliency --data DATA --cache CACHE            learns, and chooses by held-out photographs
    python -m training.saliency --data DATA --cache CACHE --judge    and judges on both held-back sets

Spectral residual (the channel "saliency") knows nothing of things. Here it is learned from labels that were drawn by
eye: a photograph's target is the union of its named things, each weighted by how often such things were named; what
surrounds things (sky, wall, road: `arrays.STUFF`) is no target. No public set of gaze is at hand, so this is a saliency
of *what people name*, not of where eyes rest.

* arrays.py  32 x 32 samples of every photograph: planes, nano's names, targets, measures
* model.py   logistic readers, and 4 dilated 3 x 3 convolutions (at most 50 KB); training, and the same in NumPy
* kept.py    what it changes for those who ask: kept cells, priors, the seed documents' fusion

Results and what was tried: docs/log.md, "Learned saliency".
"""
