"""Learned saliency: where would anyone look, whatever is asked?

    python -m training.experiments.saliency --data DATA --cache CACHE    learns, and chooses by held-out photographs
    python -m training.experiments.saliency --data DATA --cache CACHE --judge    and judges on both held-back sets
    OUT/names.json, OUT/maps-*.png                                   one question's vector; ten maps of each set

Spectral residual (the channel "saliency") knows nothing of things. Here it is learned from labels that were drawn by
eye: a photograph's target is the union of its named things (`--by-frequency` weights each by how often such things were
named); what surrounds things (sky, wall, road: `arrays.STUFF`) is no target. No public set of gaze is at hand, so this
is a saliency of *what people name*, not of where eyes rest.

* arrays.py  32 x 32 samples of every photograph: planes, nano's names, targets, measures
* model.py   logistic readers, and 4 dilated 3 x 3 convolutions (at most 50 KB); training, and the same in NumPy
* kept.py    what it changes for those who ask: kept cells, priors, the seed documents' fusion

Result: 292 numbers over nano's names order cells better than spectral residual on both sets (AUC .90 for .69, .75 for
.65), but keep no more where a question names something: out as a default, by hand where it names nothing
(`kept.plane_of_names`). nano's objectness, which learns nothing, is as good on COCO's things. All: docs/log.md.
"""
