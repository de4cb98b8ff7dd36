"""Learned channels: can planes be learned from pixels instead of made by hand?

    python -m training.experiments.learned_channels --data DATA --cache CACHE [--out FOLDER]

The seed documents' `LearnedTextureStuffer` (RGB, 3 x 3 convolution to 64, ReLU, 1 x 1 to N planes) is trained from the
pixels for two readers at once: saliency is one vector over the planes, a question a matrix times its vector over nano's
names. The same readers are trained on the planes made by hand, and on filters that stay as they were drawn at random.
`planes.png` shows what eight planes have learned; the report says how much of each plane made by hand they explain.

Result: out. 32 learned planes answer questions a little better than 11 made by hand on dev/coco128 and no better on
dev/open; as saliency they are worse on dev/open. They are colours and edges again (docs/log.md, "Learned channels").
"""
