"""A scorer of channels (`TextureScorer`): weights per channel, a 1x1 convolution, a 3x3 for context; learned by IoU.

**What.** Any planes of a texture [B, C, h, w] -> a score [B, h, w] that cells are kept by: 13 channels, 40, the
question's own maps, all of it, a pyramid. Learned with a top-K that has a gradient and the IoU of what it keeps with
masks and boxes. Beside it the published recipe as it is written.

**Why.** The documents' first test of the whole idea: after 1,000 steps the IoU of kept cells with true boxes should
rise from .25 to .65.

**Command.** `python -m training.experiments.scorer --data DATA --cache CACHE`, after `training.experiments.examples`.

**Result.** The recipe's IoU triples on dev/coco128, .047 to .149, and is that of the centre by itself (.148). With 64
of 256 cells .302 is all that can be reached; the question alone has .263. Nothing learned beats the question alone:
out. All: docs/log.md.
"""
